"""The trackers: what the rest of the harness knows of MLflow.

    tracker.start(tables)                    before a run; cheap
    tracker.observe(event)                   takes an event of the engine; returns at once
    tracker.finish(lambda: states)           after the run: everything, or one warning
    tracker.sync(states)                     `harness sync`: everything, or an error

Tables, trials and evaluations are written in one way: what the work folder knows is read under the
lock, records are made from it, and the server is brought to hold them. A note says which it had
after that, so that a run that has computed nothing new does not even import MLflow.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import UserError
from harness.evaluation.scores import all_kept
from harness.pipeline.runs import asked_together
from harness.quiet import QUIET
from harness.runtime import Event, Store
from harness.tracking.connection import (
    PATIENCE_S,
    Asked,
    Connection,
    Marks,
    Notes,
    artifacts_path,
    chosen_uri,
    database_path,
    shown,
)
from harness.tracking.live import Live, LiveRuns
from harness.tracking.projection import (
    Source,
    StudyName,
    evaluation_record,
    table_records,
    trial_identity,
    trial_record,
)
from harness.tracking.record import Record, join
from harness.tracking.runs import commit_of, run_identity, run_record
from harness.tracking.tables import Details
from harness.tracking.view import address

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns
    from harness.registry.profile import Profile
    from harness.report.model import Cell
    from harness.report.sweep import SweepTrial
    from harness.tracking.server import Change

_LOG = logging.getLogger(__name__)

Warn = Callable[[str], None]
"""Takes the one sentence that says MLflow is not available, in whichever thread finds out."""


class TableState(NamedTuple):
    """A table at a profile: the runs behind it, the report's cells, and what is said beside."""

    runs: TableRuns
    cells: Sequence[Cell]
    details: Callable[[], Details] | None = None


class _Writer:
    """Brings one tracking server to hold records."""

    def __init__(self, work_dir: Path, uri: str | None, warn: Warn) -> None:
        self.connection = Connection(work_dir, uri, warn)
        self.marks = Marks(work_dir)
        self.notes = Notes(work_dir, self.connection.uri)

    def write(
        self, records: Callable[[Asked], Sequence[Record]], *, end_stale: bool
    ) -> list[tuple[Change, str]]:
        """Bring the server to hold some records; return what was done of each, and its run's id.

        `records` makes them from what the work folder knows now. With `end_stale`, runs that are
        RUNNING and that nothing computes are ended, too.

        Raises:
            UserError: MLflow is a file in a folder that cannot be written, and lacks something.
            TrackingError: MLflow cannot be reached, or refuses what is written.
            StoreError: The store cannot be read.
        """
        if self.connection.is_read_only():
            wanted = records(self.marks.read())
            if not self.notes.covers(wanted):
                raise UserError(
                    f"MLflow at {shown(self.connection.uri)} lacks what was computed since, and "
                    "its folder cannot be written: name another with MLFLOW_TRACKING_URI"
                )
            return [("unchanged", "")] * len(wanted)
        with self.connection.writing() as server:
            # What begins from here on marks its runs first, and writes when this is done.
            asked = self.marks.read()
            wanted = records(asked)
            found = server.find(wanted)
            changes = [server.apply(record, found.get(record.identity, [])) for record in wanted]
            self.notes.add(wanted)
            if end_stale:
                asked = self.marks.read()
                server.end_stale(asked.benchmarks.keys(), asked.computing)
                self.marks.gather(asked)
        return changes

    def count(self, records: Sequence[Record]) -> Counter[str]:
        """Bring the server to hold some records; return how many runs were changed, and how."""
        changes = self.write(lambda _: records, end_stale=False) if records else ()
        return Counter(change for change, _ in changes)


class Tracker:
    """Projects a store to MLflow.

    Without a URI it is `MLFLOW_TRACKING_URI`, else the work folder's own database. `served` has the
    `table/row` places each run id stands behind, over all tables.
    """

    def __init__(
        self,
        work_dir: Path,
        store: Store,
        served: Mapping[str, Sequence[str]],
        *,
        uri: str | None = None,
        warn: Warn = _LOG.warning,
        flush_s: float = 1.0,
    ) -> None:
        self._writer = _Writer(work_dir, uri, warn)
        self._store = store
        self._served = served
        self._warn = warn
        self._flush_s = flush_s
        self._mark = ExitStack()
        self._live: Live | None = None

    def start(self, tables: Sequence[TableRuns]) -> None:
        """Mark the runs of some tables as computed, and begin to track them live."""
        runs = LiveRuns(self._store, self._writer.marks, self._served, tables)
        try:
            self._mark = self._writer.marks.begin(runs.asked)
        except OSError as error:
            self._warn(f"MLflow is written after the run only: {error}")
        else:
            self._live = Live(self._writer.connection, runs, self._warn, self._flush_s)

    def observe(self, event: Event) -> None:
        """Take an event of the engine: a point of a curve, or a stage that has ended."""
        if self._live is not None:
            self._live.observe(event)

    def close(self, timeout_s: float = 15.0) -> bool:
        """End live tracking, waiting so long at most; return whether MLflow has failed."""
        self._mark.close()
        if self._live is None:
            return False
        live, self._live = self._live, None
        live.close(timeout_s)
        return live.failed.is_set()

    def finish(
        self,
        states: Callable[[], Sequence[TableState]],
        timeout_s: float = 15.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """End live tracking and bring MLflow to the store's state; at worst there is a warning.

        `timeout_s` is waited for the former, `patience_s` for the latter.
        """

        def catch_up() -> None:
            found = states()
            if not self.is_current(found):
                self.sync(found)

        if not self.close(timeout_s):
            self._writer.connection.attempt(catch_up, patience_s)

    def is_current(self, states: Sequence[TableState]) -> bool:
        """Return whether the last sync left nothing to do for some tables; imports no MLflow.

        What others have done to the server since is not noticed; `sync` would.
        """
        asked = self._writer.marks.read()
        return not asked.ended and self._writer.notes.covers(self._records(states, asked))

    def sync(self, states: Sequence[TableState]) -> Counter[str]:
        """Bring MLflow to the store's state, whatever it holds; return how many runs were changed.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            StoreError: The store cannot be read.
        """
        first = self._writer.marks.read()
        known = self._records(states, first)
        if not first.ended and not known:
            return Counter()
        changes = self._writer.write(
            lambda asked: known if asked == first else self._records(states, asked), end_stale=True
        )
        return Counter(change for change, _ in changes)

    def records(self, states: Sequence[TableState]) -> list[Record]:
        """Return what the store says of some tables, for any place it may be written to."""
        return self._records(states, self._writer.marks.read())

    def _records(self, states: Sequence[TableState], asked: Asked) -> list[Record]:
        """Return the distinct records of some tables; tables may share runs."""
        together = asked_together([state.runs for state in states])
        return list(
            {
                record.identity: record
                for runs, state in zip(together, states, strict=True)
                for record in table_records(
                    runs, state.cells, self._store, self._served, asked, state.details
                )
            }.values()
        )


class EvaluationTracker:
    """Projects kept evaluations to MLflow."""

    def __init__(self, work_dir: Path, warn: Warn, uri: str | None = None) -> None:
        self._writer = _Writer(work_dir, uri, warn)
        self._work_dir = work_dir

    def write(self, files: Iterable[Path]) -> None:
        """Write some evaluations; at worst there is a warning."""

        def catch_up() -> None:
            records = [evaluation_record(path) for path in files]
            if not self._writer.notes.covers(records):
                self._writer.count(records)

        self._writer.connection.attempt(catch_up)

    def sync(self) -> Counter[str]:
        """Bring MLflow to the state of all kept evaluations; return what was done.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            HarnessError: An evaluation cannot be read.
        """
        files = all_kept(self._work_dir / "evaluations")
        return self._writer.count([evaluation_record(path) for path in files])


class PublishedTracker:
    """Projects published results to MLflow."""

    def __init__(self, work_dir: Path, warn: Warn, uri: str | None = None) -> None:
        self._writer = _Writer(work_dir, uri, warn)

    def sync(self, results_dir: Path) -> Counter[str]:
        """Bring MLflow to the state of all published tables and sweeps; return what was done.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            HarnessError: A published file is missing, was changed, or fits no declaration.
        """
        from harness.tracking.published import published_records

        return self._writer.count(published_records(results_dir))


class TrialTracker:
    """Projects the trials of a sweep, and the runs behind them, to MLflow.

    The runs are written to `runs/<profile>` like those of tables, with their curves; each side has
    tags that lead to the other. MLflow is never waited for twice: when it has failed, there is one
    warning and no further attempt; where it `must` be written, there is an error.
    """

    def __init__(
        self,
        work_dir: Path,
        store: Store,
        name: StudyName,
        warn: Warn,
        uri: str | None = None,
        *,
        must: bool = False,
    ) -> None:
        self._writer = _Writer(work_dir, uri, warn)
        self._must = must
        self._store = store
        self._name = name
        self._has_written = False
        self._has_failed = False

    def write(
        self,
        trial: SweepTrial,
        runs: Sequence[Run],
        profile: Profile | None,
        source: Source,
    ) -> str | None:
        """Bring MLflow to the state of a trial and, once it has ended, of its runs.

        The profile is None where the runs could not be planned; the id of the trial's MLflow run,
        which is returned, where MLflow cannot be reached.
        """
        tags: dict[str, str] = {"runs": join(run_identity(run) for run in runs)}
        if trial.state != "running" and profile is not None:
            found = self.write_runs(runs, profile, {"trial": str(trial.number)})
            tags["runs.mlflow"] = join(found)
        done = replace(source, commit=commit_of(runs, self._store))
        return self._attempt(lambda _: [trial_record(self._name, trial, done, tags)])[0]

    def is_read_only(self) -> bool:
        """Return whether MLflow is a file that this user may not write."""
        return self._writer.connection.is_read_only()

    @contextmanager
    def computing(self, trials: Mapping[int, Sequence[Run]]) -> Iterator[None]:
        """Mark trials, by number, and their runs as computed by this process inside the block."""
        asked = {run_identity(run): run.asked for runs in trials.values() for run in runs}
        asked |= {trial_identity(self._name, number): () for number in trials}
        with ExitStack() as mark:
            with suppress(OSError):  # then they are ended in MLflow too soon, and written later
                mark.enter_context(self._writer.marks.begin(asked))
            yield

    def write_runs(
        self, runs: Sequence[Run], profile: Profile, tags: Mapping[str, str]
    ) -> list[str | None]:
        """Bring MLflow to the state of some runs of the sweep; return their MLflow ids."""
        own = {"sweep": self._name.sweep, "study": self._name.study, **tags}

        def records(asked: Asked) -> list[Record]:
            found = [run_record(run, profile, self._store, {}, asked) for run in runs]
            return [replace(record, tags={**record.tags, **own}) for record in found if record]

        return self._attempt(records)

    def _attempt(self, records: Callable[[Asked], list[Record]]) -> list[str | None]:
        """Write some records; return the ids of their MLflow runs, `[None]` if that fails."""
        if self._has_failed:
            return [None]
        first, self._has_written = not self._has_written, True
        if self._must:
            return [run_id for _, run_id in self._writer.write(records, end_stale=first)]
        changes = self._writer.connection.attempt(
            lambda: self._writer.write(records, end_stale=first)
        )
        self._has_failed = changes is None
        return [None] if changes is None else [run_id for _, run_id in changes]


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
    writer = _Writer(work_dir, where, warn)
    writer.write(lambda _: [], end_stale=True)
    views = {name: address(number) for name, number in writer.connection.server().views().items()}
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
    return Ui(command, environment, views)
