"""The tracker: the rest of the harness's interface to MLflow.

    tracker.start(tables)                    before a run; cheap
    tracker.observe(event)                   takes an engine event; returns at once
    tracker.finish(lambda: states)           after the run: everything, or one warning
    tracker.sync(states)                     `harness sync`: everything, or an error

While stages run, a background thread imports MLflow, batches messages for a few seconds and writes
them: points of ongoing training, and a run's record when one of its training or judge stages
finishes or any stage fails. It is best effort: the next `sync` adds what it missed.

Only one command per work folder is tracked live. It holds a lock for its lifetime: a run that is
RUNNING in MLflow while nobody holds the lock was left by a killed command.
"""

from __future__ import annotations

import math
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from harness.errors import UserError
from harness.pipeline.runs import asked_together
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
    PATIENCE_S,
    Mlflow,
    artifacts_path,
    chosen_uri,
    database_path,
    uri_text,
)
from harness.tracking.record import COMPUTED_IN, MetricValue, Record, curve_metrics
from harness.tracking.runs import run_identity, run_record, trained_in
from harness.tracking.tables import TableState, state_records

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns
    from harness.registry.profile import Profile
    from harness.tracking.server import TrackingServer

Message: TypeAlias = "StageProgress | str"
"""A curve point, or the fingerprint of a stage that has finished or failed."""


class Tracker:
    """Projects a store to MLflow.

    `served` returns the `table/row` places that each run id serves, over all tables. The curves of
    a shared stage appear in every run that shares it. A run that several tables need has the
    benchmarks of all of them.
    """

    def __init__(
        self,
        mlflow: Mlflow,
        store: Store,
        served: Callable[[], Mapping[str, Sequence[str]]],
        *,
        flush_s: float = 10.0,
    ) -> None:
        self._mlflow = mlflow
        self._store = store
        self._served = cache(served)
        self._flush_s = flush_s
        self._alone = ExitStack()
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._runs: dict[str, tuple[Run, Profile]] = {}  # tracked live, by identity
        self._written: dict[str, tuple[str, int]] = {}  # identity: MLflow run id, start in ms
        # By stage: metric prefixes of its curves by run; whether it updates runs; runs needing it.
        self._trained: dict[str, dict[str, str]] = {}
        self._shown: set[str] = set()
        self._needed: dict[str, list[str]] = {}

    def start(self, tables: Sequence[TableRuns]) -> None:
        """Start tracking the tables' runs live, unless another command does so in this folder."""
        if not self._alone.enter_context(hold(self._mlflow.live_lock, wait=False)):
            return
        for table in asked_together(tables):
            for run in table.runs.values():
                self._runs[run_identity(run)] = run, table.profile
        for identity, (run, _) in self._runs.items():
            for prefix, stages in trained_in(run).items():
                for stage in stages:
                    self._trained.setdefault(stage.fingerprint, {})[identity] = prefix
            for stage in Plan(run.targets):
                self._needed.setdefault(stage.fingerprint, []).append(identity)
            self._shown |= {stage.fingerprint for stage in (*run.training, *run.judged.values())}

    def observe(self, event: Event) -> None:
        """Queue an engine event if it is a curve point or the end of a relevant stage."""
        message: Message | None = None
        match event:
            case StageProgress(stage) if stage.fingerprint in self._trained:
                message = event
            case StageFinished(stage) if stage.fingerprint in self._shown:
                message = stage.fingerprint
            case StageFailed(stage) if stage.fingerprint in self._needed:
                message = stage.fingerprint
        if message is None or self._mlflow.failed.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()
        self._queue.put(message)

    def close(self, timeout_s: float = 15.0) -> None:
        """End live tracking, waiting at most `timeout_s`; pending writes end with the process."""
        if self._thread is not None:
            self._queue.put(None)
            self._mlflow.wait_for(self._thread, timeout_s)
            self._thread = None
        self._alone.close()

    def finish(
        self,
        states: Callable[[], Sequence[TableState]],
        timeout_s: float = 15.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """End live tracking within `timeout_s`, then sync within `patience_s`; errors only warn."""
        self.close(timeout_s)
        self._mlflow.attempt(lambda: self.records(states()), patience_s)

    def sync(self, states: Sequence[TableState]) -> Counter[str]:
        """Bring MLflow up to date with the store; return the number of runs per kind of change.

        Raises:
            TrackingError: MLflow cannot be reached, or rejects a write.
            StoreError: The store cannot be read.
        """
        records = self.records(states)
        return self._mlflow.write(records) if records else Counter()

    def records(self, states: Sequence[TableState]) -> list[Record]:
        """Return the distinct records of the tables, which may share runs."""
        together = asked_together([state.runs for state in states])
        found = (
            state_records(state._replace(runs=runs), self._store, self._served())
            for runs, state in zip(together, states, strict=True)
        )
        return list({record.identity: record for records in found for record in records}.values())

    # --- The background thread ---

    def _work(self) -> None:
        """Write batches of messages until closed or failed."""
        try:
            closing = False
            while not closing and not self._mlflow.failed.is_set():
                batch, closing = self._gather()
                with self._mlflow.writing() as server:
                    self._write(server, batch)
                    if closing:  # incomplete runs are no longer being computed
                        server.end_left(self._mlflow.place)
        except Exception as error:  # noqa: BLE001  a run goes on without MLflow, whatever it is
            self._mlflow.give_up(error)

    def _gather(self) -> tuple[list[Message], bool]:
        """Return a batch of messages and whether it is the last."""
        batch: list[Message] = []
        message = self._queue.get()
        until = time.monotonic() + self._flush_s
        while message is not None:
            batch.append(message)
            try:
                message = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return batch, False
        return batch, True

    def _write(self, server: TrackingServer, batch: Sequence[Message]) -> None:
        """Add points to every run that they belong to, then write the runs whose stages ended."""
        points: dict[str, list[MetricValue]] = {}
        for message in batch:
            if isinstance(message, StageProgress):
                for run_id, values in self._points(server, message):
                    points.setdefault(run_id, []).extend(values)
        for run_id, added in points.items():
            server.add_points(run_id, added)
        settled = (message for message in batch if isinstance(message, str))
        for identity in dict.fromkeys(i for stage in settled for i in self._needed.get(stage, ())):
            self._write_run(server, identity)

    def _points(
        self, server: TrackingServer, found: StageProgress
    ) -> Iterator[tuple[str, Iterator[MetricValue]]]:
        """Yield the MLflow id of each run that a point belongs to, with the values to log."""
        if self._store.status(found.stage.fingerprint) == "done":
            return  # the runs' records have the complete curve
        # The store keeps no infinities, so neither do live points.
        values = {n: v if math.isfinite(v) else math.nan for n, v in found.metrics.items()}
        point = CurvePoint(found.step, values)
        for identity, prefix in self._trained[found.stage.fingerprint].items():
            if identity in self._written or self._write_run(server, identity):
                run_id, start_ms = self._written[identity]
                yield run_id, curve_metrics(prefix, start_ms, point)

    def _write_run(self, server: TrackingServer, identity: str) -> bool:
        """Write a run's record; return whether it has one yet."""
        run, profile = self._runs[identity]
        record = run_record(run, profile, self._store, self._served(), is_computed=True)
        if record is None:
            return False
        if record.status == "RUNNING":
            record = replace(record, tags={**record.tags, COMPUTED_IN: self._mlflow.place})
        found = server.find([record]).get(identity, [])
        _, run_id = server.apply(record, found, afresh=identity not in self._written)
        self._written[identity] = run_id, record.start_ms
        return True


class Ui(NamedTuple):
    """How to serve MLflow's pages; `views` maps experiment names to URL paths of first views."""

    command: list[str]
    environment: dict[str, str]
    views: dict[str, str]


def ui_command(work_dir: Path, port: int = 5000, uri: str | None = None) -> Ui:
    """Return the command that serves MLflow's pages on the loopback interface.

    First ends the runs that killed commands left RUNNING.

    Raises:
        UserError: The tracking URI is a server, which serves its own pages.
        TrackingError: The database cannot be created or reached.
    """
    where = chosen_uri(work_dir, uri)
    if where.startswith(("http://", "https://")):
        raise UserError(f"MLflow at {uri_text(where)} is a server: open that address in a browser")
    # Opens the first view, on the pages for training runs rather than for LLM traces.
    page = "/#/experiments/{}/runs?viewStateShareKey=harness&workflowType=machine_learning"
    views = {name: page.format(n) for name, n in Mlflow(work_dir, uri=where).views().items()}
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
    return Ui(command, environment, views)
