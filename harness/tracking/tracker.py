"""The trackers: what the rest of the harness knows of MLflow.

    tracker.start(tables)                    before a run; cheap
    tracker.observe(event)                   takes an event of the engine; returns at once
    tracker.finish(lambda: states)           after the run: everything, or one warning
    tracker.sync(states)                     `harness sync`: everything, or an error

Tables, trials, evaluations and published results are written in one way (`Mlflow`): records are
made of them, and the server is brought to hold those. A note says which it had after that, so that
a run that has computed nothing new does not even import MLflow.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import UserError
from harness.evaluation.scores import all_kept
from harness.pipeline.runs import asked_together
from harness.quiet import QUIET
from harness.runtime import Event, Store
from harness.runtime.files import hold
from harness.tracking.connection import (
    PATIENCE_S,
    Connection,
    artifacts_path,
    chosen_uri,
    database_path,
    shown,
)
from harness.tracking.live import Live, LiveRuns, lock_of, place_of
from harness.tracking.projection import evaluation_record, table_records
from harness.tracking.record import Record
from harness.tracking.tables import Details
from harness.tracking.view import address

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns
    from harness.report.model import Cell
    from harness.tracking.server import Server

_LOG = logging.getLogger(__name__)

Warn = Callable[[str], None]
"""Takes the one sentence that says MLflow is not available, in whichever thread finds out."""


class Mlflow:
    """The tracking server of a work folder, which is brought to hold records.

    Without a URI it is `MLFLOW_TRACKING_URI`, else the work folder's own database.
    """

    def __init__(self, work_dir: Path, warn: Warn = _LOG.warning, uri: str | None = None) -> None:
        self.connection = Connection(work_dir, uri, warn)
        self._work_dir = work_dir
        self._has_failed = False

    def write(self, records: Sequence[Record]) -> Counter[str]:
        """Bring the server to hold some records; return how many runs were changed, and how.

        Runs that a killed command has left RUNNING are ended.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            StoreError: The store cannot be read.
        """
        with self.connection.writing() as server:
            found = server.find(records)
            changes: Counter[str] = Counter(
                server.apply(record, found.get(record.identity, []))[0] for record in records
            )
            self.connection.notes.add(records)
            self._end_left(server)
        return changes

    def attempt(
        self, records: Callable[[], Sequence[Record]], patience_s: float = PATIENCE_S
    ) -> None:
        """Bring the server to hold what it lacks; at worst there is a warning, and only one."""

        def catch_up() -> bool:
            wanted = records()
            if not self.connection.notes.covers(wanted):
                self.write(wanted)
            return True

        if not self._has_failed:
            self._has_failed = not self.connection.attempt(catch_up, patience_s)

    def end_left(self) -> dict[str, str]:
        """End what a killed command has left RUNNING; return the addresses of first views, by name.

        Raises:
            TrackingError: The server cannot be reached.
        """
        with self.connection.writing() as server:
            self._end_left(server)
            return server.views()

    def _end_left(self, server: Server) -> None:
        lock = lock_of(self._work_dir)
        if lock.exists():
            with suppress(OSError), hold(lock, wait=False) as is_nobodys:
                if is_nobodys:
                    server.end_left(place_of(self._work_dir))


class TableState(NamedTuple):
    """A table at a profile: the runs behind it, the report's cells, and what is said beside."""

    runs: TableRuns
    cells: Sequence[Cell]
    details: Callable[[], Details] | None = None


class Tracker:
    """Projects a store to MLflow.

    `served` has the `table/row` places each run id stands behind, over all tables.
    """

    def __init__(
        self,
        work_dir: Path,
        store: Store,
        served: Mapping[str, Sequence[str]],
        *,
        uri: str | None = None,
        warn: Warn = _LOG.warning,
        flush_s: float = 10.0,
    ) -> None:
        self._mlflow = Mlflow(work_dir, warn, uri)
        self._work_dir = work_dir
        self._store = store
        self._served = served
        self._warn = warn
        self._flush_s = flush_s
        self._alone = ExitStack()
        self._live: Live | None = None

    def start(self, tables: Sequence[TableRuns]) -> None:
        """Begin to track the runs of some tables live, unless another command does so here."""
        try:
            is_alone = self._alone.enter_context(hold(lock_of(self._work_dir), wait=False))
        except OSError as error:
            self._warn(f"MLflow is written after the run only: {error}")
            return
        if is_alone:
            runs = LiveRuns(self._store, place_of(self._work_dir), self._served, tables)
            self._live = Live(self._mlflow.connection, runs, self._warn, self._flush_s)

    def observe(self, event: Event) -> None:
        """Take an event of the engine: a point of a curve, or a stage that has ended."""
        if self._live is not None:
            self._live.observe(event)

    def close(self, timeout_s: float = 15.0) -> bool:
        """End live tracking, waiting so long at most; return whether MLflow has failed."""
        live, self._live = self._live, None
        if live is not None:
            live.close(timeout_s)
        self._alone.close()
        return live is not None and live.failed.is_set()

    def finish(
        self,
        states: Callable[[], Sequence[TableState]],
        timeout_s: float = 15.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """End live tracking and bring MLflow to the store's state; at worst there is a warning.

        `timeout_s` is waited for the former, `patience_s` for the latter.
        """
        if not self.close(timeout_s):
            self._mlflow.attempt(lambda: self.records(states()), patience_s)

    def is_current(self, states: Sequence[TableState]) -> bool:
        """Return whether the last sync left nothing to do for some tables; imports no MLflow.

        What others have done to the server since is not noticed; `sync` would.
        """
        return self._mlflow.connection.notes.covers(self.records(states))

    def sync(self, states: Sequence[TableState]) -> Counter[str]:
        """Bring MLflow to the store's state, whatever it holds; return how many runs were changed.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            StoreError: The store cannot be read.
        """
        records = self.records(states)
        return self._mlflow.write(records) if records else Counter()

    def records(self, states: Sequence[TableState]) -> list[Record]:
        """Return the distinct records of some tables; tables may share runs."""
        together = asked_together([state.runs for state in states])
        return list(
            {
                record.identity: record
                for runs, state in zip(together, states, strict=True)
                for record in table_records(
                    runs, state.cells, self._store, self._served, state.details
                )
            }.values()
        )


class EvaluationTracker:
    """Projects kept evaluations to MLflow."""

    def __init__(self, work_dir: Path, warn: Warn, uri: str | None = None) -> None:
        self._mlflow = Mlflow(work_dir, warn, uri)
        self._work_dir = work_dir

    def write(self, files: Iterable[Path]) -> None:
        """Write some evaluations; at worst there is a warning."""
        self._mlflow.attempt(lambda: [evaluation_record(path) for path in files])

    def sync(self) -> Counter[str]:
        """Bring MLflow to the state of all kept evaluations; return what was done.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            HarnessError: An evaluation cannot be read.
        """
        files = all_kept(self._work_dir / "evaluations")
        return self._mlflow.write([evaluation_record(path) for path in files])


class Ui(NamedTuple):
    """How to serve MLflow's pages.

    `views` are the pages of the tables' experiments, after the server's address, by the
    experiment's name.
    """

    command: list[str]
    environment: dict[str, str]
    views: dict[str, str]


def ui_command(
    work_dir: Path, port: int = 5000, uri: str | None = None, warn: Warn = _LOG.warning
) -> Ui:
    """Return the command that serves MLflow's pages on the loopback interface.

    Runs of processes that were killed are ended first, so that RUNNING means what it says.

    One worker and no job execution: MLflow's defaults start a dozen processes.

    Raises:
        UserError: The tracking URI is a server, which serves its pages itself.
        TrackingError: The database cannot be created or reached.
    """
    where = chosen_uri(work_dir, uri)
    if where.startswith(("http://", "https://")):
        raise UserError(f"MLflow at {shown(where)} is a server: open that address in a browser")
    views = Mlflow(work_dir, warn, where).end_left()
    path = database_path(where)
    command = [sys.executable, "-m", "mlflow", "server"]
    if path is not None:
        command += ["--artifacts-destination", str(artifacts_path(path))]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level warning"]
    environment = {
        **QUIET,
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        # Whoever lists this machine's processes would read a password in the command.
        "MLFLOW_BACKEND_STORE_URI": where,
    }
    return Ui(command, environment, {name: address(number) for name, number in views.items()})
