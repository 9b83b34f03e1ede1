"""The tracker: what the rest of the harness uses of MLflow.

While stages run, it writes every few seconds the runs that finished stages train or judge, as best
it can; `finish` adds what that missed.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.quiet import QUIET
from harness.runtime import Event, Store
from harness.runtime.plan import StageFinished
from harness.tracking.connection import (
    DatabaseLocked,
    Mlflow,
    artifacts_path,
    database_path,
    uri_text,
)
from harness.tracking.record import Record, TrackingError
from harness.tracking.runs import RowRun, run_record, runs_of
from harness.tracking.tables import TableState, state_records

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns


class Tracker:
    """Projects a store to MLflow; the curves of a shared stage appear in every run that shares it.

    `every_s` is the least time between two writes while stages run, in seconds.
    """

    def __init__(self, mlflow: Mlflow, store: Store, *, every_s: float = 10.0) -> None:
        self._mlflow = mlflow
        self._store = store
        self._every_s = every_s
        self._last = time.monotonic()
        self._runs: dict[str, list[RowRun]] = {}  # by fingerprint of each stage shown in them
        self._changed: dict[str, RowRun] = {}  # by identity, not written yet

    def follow(self, tables: Sequence[TableRuns]) -> None:
        """Let `observe` write the tables' runs."""
        for of in (of for table in tables for of in runs_of(table)):
            for stage in (*of.run.training, *of.run.judged.values()):
                self._runs.setdefault(stage.fingerprint, []).append(of)

    def observe(self, event: Event) -> None:
        """Note which runs a stage changed, and write them if the last write was a while ago."""
        if isinstance(event, StageFinished):
            runs = self._runs.get(event.stage.fingerprint, ())
            self._changed |= {of.identity: of for of in runs}
        if self._changed and time.monotonic() - self._last >= self._every_s:
            self._write_changed()
            self._last = time.monotonic()

    def _write_changed(self) -> None:
        """Write the changed runs, or keep them for the next time if the database is locked."""
        try:
            self._mlflow.write(self._changed_records, wait=False)
        except DatabaseLocked:
            return
        except Exception as error:  # noqa: BLE001  a run goes on without MLflow, whatever it is
            self._runs.clear()
            self._mlflow.warn(error)
        self._changed.clear()

    def _changed_records(self) -> list[Record]:
        found = [run_record(of, self._store, is_asked=True) for of in self._changed.values()]
        return [record for record in found if record is not None]

    def finish(
        self,
        states: Callable[[], Sequence[TableState]],
        known: Callable[[], Sequence[TableState]] | None = None,
    ) -> None:
        """Write everything, unless MLflow has all that is `known`; errors and Ctrl-C only warn."""
        try:
            self._mlflow.attempt(
                lambda: self.records(states()), lambda: self.records((known or states)())
            )
        except KeyboardInterrupt:
            stopped = "stopped before MLflow had everything: the same command adds the rest"
            self._mlflow.warn(TrackingError(stopped))

    def sync(self, states: Sequence[TableState]) -> Counter[str]:
        """Bring MLflow up to date with the store; return the number of runs per kind of change."""
        return self._mlflow.write(lambda: self.records(states))

    def records(self, states: Sequence[TableState]) -> list[Record]:
        """Return the distinct records of the tables: each table's rows, then its runs."""
        found = [record for state in states for record in state_records(state, self._store)]
        return sorted({it.identity: it for it in found}.values(), key=lambda it: bool(it.parent))


def ui_command(work_dir: Path, port: int = 5000) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves MLflow's pages on loopback, and its environment.

    First creates the database if there is none.
    """
    mlflow = Mlflow(work_dir)
    where = mlflow.uri
    if where.startswith(("http://", "https://")):
        raise UserError(f"MLflow at {uri_text(where)} is a server: open that address in a browser")
    with mlflow.writing():
        pass
    path = database_path(where)
    command = [sys.executable, "-m", "mlflow", "server"]
    if path is not None:
        command += ["--artifacts-destination", str(artifacts_path(path))]
    # One worker and no job execution: MLflow's defaults start a dozen processes.
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level warning"]
    environment = {
        **QUIET,
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        # On the command line, a password would be visible in process listings.
        "MLFLOW_BACKEND_STORE_URI": where,
    }
    return command, environment
