"""The tracker: the rest of the harness's interface to MLflow.

While stages run, points of training and ended runs are written every few seconds, as best it can;
`finish` adds what it missed. Only one command per work folder is tracked live. It holds a lock: a
run that is RUNNING in MLflow while nobody holds the lock was left by a killed command.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import UserError
from harness.quiet import QUIET
from harness.runtime import (
    CurvePoint,
    Event,
    Plan,
    StageFailed,
    StageFinished,
    StageProgress,
    Store,
)
from harness.runtime.files import hold
from harness.tracking.connection import (
    DatabaseLocked,
    Mlflow,
    artifacts_path,
    chosen_uri,
    database_path,
    uri_text,
)
from harness.tracking.record import COMPUTED_IN, MetricValue, Record, TrackingError, curve_metrics
from harness.tracking.runs import RowRun, run_record, runs_of, steps_before
from harness.tracking.tables import TableState, state_records

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns
    from harness.tracking.server import TrackingServer


class Tracker:
    """Projects a store to MLflow; the curves of a shared stage appear in every run that shares it.

    `every_s` is the least time between two live writes, in seconds.
    """

    def __init__(self, mlflow: Mlflow, store: Store, *, every_s: float = 10.0) -> None:
        self._mlflow = mlflow
        self._store = store
        self._every_s = every_s
        self._lock = ExitStack()
        self._is_live = False
        self._last = time.monotonic()
        self._runs: dict[str, RowRun] = {}  # by identity
        self._written: dict[str, tuple[str, int]] = {}  # identity: MLflow run id, start in ms
        # By stage: the runs that it trains, the runs that are written once it finishes or fails.
        self._trained: dict[str, list[str]] = {}
        self._shown: dict[str, list[str]] = {}
        self._needed: dict[str, list[str]] = {}
        # What is not written yet.
        self._points: list[StageProgress] = []
        self._settled: dict[str, None] = {}

    def start(self, tables: Sequence[TableRuns]) -> None:
        """Start tracking the tables' runs live, unless another command does so in this folder."""
        self._is_live = self._lock.enter_context(hold(self._mlflow.live_lock, wait=False))
        for of in (of for table in tables for of in runs_of(table)):
            identity, run = of.identity, of.run
            self._runs[identity] = of
            for stage in run.training:
                self._trained.setdefault(stage.fingerprint, []).append(identity)
            for stage in (*run.training, *run.judged.values()):
                self._shown.setdefault(stage.fingerprint, []).append(identity)
            for stage in Plan(run.targets):
                self._needed.setdefault(stage.fingerprint, []).append(identity)

    def observe(self, event: Event) -> None:
        """Note an engine event, and write what was noted if the last time was a while ago."""
        if not self._is_live:
            return
        match event:
            case StageProgress(stage) if stage.fingerprint in self._trained:
                self._points.append(event)
            case StageFinished(stage):
                self._settled |= dict.fromkeys(self._shown.get(stage.fingerprint, ()))
            case StageFailed(stage):
                self._settled |= dict.fromkeys(self._needed.get(stage.fingerprint, ()))
        is_due = time.monotonic() - self._last >= self._every_s
        if is_due and (self._points or self._settled):
            self._write_noted()

    def close(self) -> None:
        """End live tracking: nothing is left RUNNING, and nothing else is written."""
        if self._written:
            try:
                self._mlflow.end_computed()
            except Exception as error:  # noqa: BLE001  nothing depends on MLflow, whatever it is
                self._mlflow.warn(error)
        self._is_live = False
        self._written.clear()
        self._lock.close()

    def finish(self, states: Callable[[], Sequence[TableState]]) -> None:
        """Write everything and end live tracking; errors and Ctrl-C only warn."""
        self._is_live = False
        try:
            self._mlflow.attempt(lambda: self.records(states()))
        except KeyboardInterrupt:
            stopped = "stopped before MLflow had everything: `harness sync TABLE` adds the rest"
            self._mlflow.warn(TrackingError(stopped))
        self.close()

    def sync(self, states: Sequence[TableState]) -> Counter[str]:
        """Bring MLflow up to date with the store; return the number of runs per kind of change."""
        records = self.records(states)
        return self._mlflow.write(records) if records else Counter()

    def records(self, states: Sequence[TableState]) -> list[Record]:
        """Return the distinct records of the tables: each table's rows, then its runs."""
        found = [record for state in states for record in state_records(state, self._store)]
        return sorted({it.identity: it for it in found}.values(), key=lambda it: bool(it.parent))

    def _write_noted(self) -> None:
        """Write what was noted, or keep it for the next time if the database is locked."""
        try:
            with self._mlflow.writing(wait=False) as server, self._mlflow.deadline():
                self._write(server)
        except DatabaseLocked:
            pass
        except Exception as error:  # noqa: BLE001  a run goes on without MLflow, whatever it is
            self._is_live = False
            self._mlflow.warn(error)
        else:
            self._points.clear()
            self._settled.clear()
        self._last = time.monotonic()

    def _write(self, server: TrackingServer) -> None:
        """Add points to every run that they belong to, then write the runs whose stages ended."""
        points: dict[str, list[MetricValue]] = {}
        before = cache(lambda identity: steps_before(self._runs[identity].run, self._store))
        for event in self._points:
            for run_id, values in self._values(server, event, before):
                points.setdefault(run_id, []).extend(values)
        for run_id, added in points.items():
            server.add_points(run_id, added)
        for identity in self._settled:
            self._write_run(server, identity)

    def _values(
        self,
        server: TrackingServer,
        found: StageProgress,
        before: Callable[[str], Mapping[str, int]],
    ) -> Iterator[tuple[str, Iterator[MetricValue]]]:
        """Yield the MLflow id of each run that a point belongs to, with the values to log."""
        stage = found.stage.fingerprint
        if self._store.status(stage) == "done":
            return  # the runs' records have the complete curve
        # The store keeps no infinities, so neither do live points.
        values = {n: v if math.isfinite(v) else math.nan for n, v in found.metrics.items()}
        point = CurvePoint(found.step, values)
        for identity in self._trained[stage]:
            if identity in self._written or self._write_run(server, identity):
                run_id, start_ms = self._written[identity]
                yield run_id, curve_metrics(start_ms, before(identity)[stage], point)

    def _write_run(self, server: TrackingServer, identity: str) -> bool:
        """Write a run's record; return whether it has one yet."""
        record = run_record(self._runs[identity], self._store, is_computed=True)
        if record is None:
            return False
        if record.status == "RUNNING":
            record = replace(record, tags={**record.tags, COMPUTED_IN: self._mlflow.place})
        found = server.find([record]).get(identity, [])
        _, run_id = server.apply(record, found, afresh=identity not in self._written)
        self._written[identity] = run_id, record.start_ms
        return True


class Ui(NamedTuple):
    """How to serve MLflow's pages."""

    command: list[str]
    environment: dict[str, str]


def ui_command(work_dir: Path, port: int = 5000, uri: str | None = None) -> Ui:
    """Return the command that serves MLflow's pages on the loopback interface.

    First ends the runs that killed commands left RUNNING.
    """
    where = chosen_uri(work_dir, uri)
    if where.startswith(("http://", "https://")):
        raise UserError(f"MLflow at {uri_text(where)} is a server: open that address in a browser")
    Mlflow(work_dir, uri=where).end_left()
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
    return Ui(command, environment)
