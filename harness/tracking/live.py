"""Live tracking: curves and states reach MLflow while stages run, without holding the run up.

Whoever runs the engine drops messages into a queue and goes on. One background thread imports
MLflow, gathers messages for a second at a time and writes them: points of running trainings as
they are, and a run's whole record again when one of its stages has finished or failed. The thread
never raises. When MLflow fails, it says so once and ignores all further messages. Nothing depends
on live tracking: what it missed, the next `sync` adds.

A stage that several runs share is computed once, and its curves appear in each of these runs.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from harness.runtime import Event, Plan, Stage, StageFailed, StageFinished, StageProgress, Store
from harness.tracking.connection import Connection, Marks, join_within
from harness.tracking.record import Status
from harness.tracking.runs import run_identity, run_record, trained_in
from harness.trainer.runs import asked_together

if TYPE_CHECKING:
    from mlflow.entities import Metric

    from harness.registry.profile import Profile
    from harness.tracking.server import Server
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

SIGN_S = 60.0
"""Seconds between two signs of life of the runs that are computed."""

SYSTEM_S = 10.0
"""Seconds between two readings of the machine while runs are computed."""


@dataclass(frozen=True)
class LivePoint:
    """One point that the running stage of a fingerprint has reported."""

    stage: str
    step: int
    metrics: Mapping[str, float]


Message: TypeAlias = "LivePoint | str"
"""A point, or the fingerprint of a stage that has finished or failed."""


@dataclass(frozen=True)
class _Written:
    """What was last written of a run."""

    run_id: str
    start_ms: int
    status: Status


class LiveRuns:
    """The runs that are being computed, found by stage; writes what is new of them.

    One that several tables judge differently is judged on the benchmarks of all of them.
    """

    def __init__(
        self,
        store: Store,
        marks: Marks,
        served: Mapping[str, Sequence[str]],
        tables: Iterable[TableRuns],
    ) -> None:
        self._store = store
        self._marks = marks
        self._served = served
        self._runs: dict[str, tuple[Run, Profile]] = {}
        self._trained: dict[str, dict[str, str]] = {}
        self._needed: dict[str, list[str]] = {}
        self._shown: set[str] = set()
        self._written: dict[str, _Written] = {}
        for table in asked_together(tables):
            for run in table.runs.values():
                self._add(run, table.profile)

    @property
    def asked(self) -> dict[str, tuple[str, ...]]:
        """The benchmarks asked for of each run, by its identity."""
        return {identity: run.asked for identity, (run, _) in self._runs.items()}

    def has_curves(self, stage: Stage) -> bool:
        """Return whether a stage's points are shown: it trains one of the runs."""
        return stage.fingerprint in self._trained

    def is_shown(self, stage: Stage) -> bool:
        """Return whether a stage's end shows in MLflow: it trains or judges one of the runs."""
        return stage.fingerprint in self._shown

    def is_needed(self, stage: Stage) -> bool:
        """Return whether one of the runs cannot do without a stage."""
        return stage.fingerprint in self._needed

    def write_points(self, server: Server, points: Iterable[LivePoint]) -> None:
        """Add points of running trainings to all runs they belong to."""
        from harness.tracking.server import point_metrics

        metrics: dict[str, list[Metric]] = {}
        for point in points:
            if self._store.status(point.stage) == "done":
                continue  # the runs' records have the whole curve
            # A store keeps no infinities, so live points have none either.
            values = {n: v if math.isfinite(v) else math.nan for n, v in point.metrics.items()}
            for identity, prefix in self._trained[point.stage].items():
                written = self._written.get(identity) or self._write(server, identity)
                if written is not None:
                    new = point_metrics(prefix, written.start_ms, point.step, values)
                    metrics.setdefault(identity, []).extend(new)
        for identity, some in metrics.items():
            self._add_points(server, identity, some)

    def write_settled(self, server: Server, stages: Iterable[str]) -> None:
        """Write the records of all runs that need stages which have finished or failed."""
        for identity in dict.fromkeys(name for stage in stages for name in self._needed[stage]):
            self._write(server, identity)

    def write_signs(self, server: Server) -> None:
        """Say of the runs that are computed that they still are."""
        for identity in self._running():
            if not server.sign(self._written[identity].run_id):
                del self._written[identity]

    def write_system(self, server: Server, readings: Mapping[str, float]) -> None:
        """Add a reading of the machine to the runs that are computed."""
        from harness.tracking.server import system_metrics

        for identity in self._running():
            metrics = system_metrics(self._written[identity].start_ms, readings)
            self._add_points(server, identity, metrics)

    def write_ends(self, server: Server) -> None:
        """Write the records of the runs that are not computed any more."""
        for identity in self._running():
            self._write(server, identity)

    def _add_points(self, server: Server, identity: str, metrics: list[Metric]) -> None:
        if not server.add_points(self._written[identity].run_id, metrics):
            del self._written[identity]  # another work folder writes it

    def _running(self) -> list[str]:
        return [name for name, written in self._written.items() if written.status == "RUNNING"]

    def _add(self, run: Run, profile: Profile) -> None:
        identity = run_identity(run)
        if identity in self._runs:
            return
        self._runs[identity] = run, profile
        for prefix, stages in trained_in(run).items():
            for stage in stages:
                self._trained.setdefault(stage.fingerprint, {})[identity] = prefix
        for stage in Plan(run.targets):
            self._needed.setdefault(stage.fingerprint, []).append(identity)
        self._shown |= {stage.fingerprint for stage in (*run.training, *run.judged.values())}

    def _write(self, server: Server, identity: str) -> _Written | None:
        """Write the points of a batch, then the runs whose stages have ended."""
        record = run_record(*self._runs[identity], self._store, self._served, self._marks.read())
        if record is None:
            return None
        # What is dear and can wait is written when everything has ended.
        record = replace(record, files=None, model=None, describe=None)
        found = server.find([record]).get(identity, [])
        change, run_id = server.apply(record, found, settle=False)
        if change == "kept":
            self._written.pop(identity, None)
            return None
        self._written[identity] = _Written(run_id, record.start_ms, record.status)
        return self._written[identity]


class Live:
    """A background thread that writes runs to MLflow while they are computed.

    Once MLflow has failed, everything after that is ignored.
    """

    def __init__(
        self, connection: Connection, runs: LiveRuns, warn: Callable[[str], None], flush_s: float
    ) -> None:
        self._connection = connection
        self._runs = runs
        self._warn = warn
        self._flush_s = flush_s
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._read = time.monotonic()
        self.failed = threading.Event()

    def observe(self, event: Event) -> None:
        """Take an event of the engine; returns at once."""
        match event:
            case StageProgress(stage, step, metrics) if self._runs.has_curves(stage):
                self._put(LivePoint(stage.fingerprint, step, dict(metrics)))
            case StageFinished(stage) if self._runs.is_shown(stage):
                self._put(stage.fingerprint)
            case StageFailed(stage) if self._runs.is_needed(stage):
                self._put(stage.fingerprint)

    def close(self, timeout_s: float) -> None:
        """Write what is left and stop; what needs longer ends with the process."""
        if self._thread is not None:
            self._queue.put(None)
            join_within(timeout_s, self._thread)
            if self._thread.is_alive():
                self._give_up(self._connection.too_slow())

    def _put(self, message: Message) -> None:
        if self.failed.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
            self._thread.start()
        self._queue.put(message)

    def _run(self) -> None:
        """Write batches of messages until told to stop."""
        try:
            closing, signed = False, time.monotonic()
            while not closing and not self.failed.is_set():
                batch, closing = self._gather()
                due = time.monotonic() - signed >= SIGN_S
                self._write(batch, sign=due, end=closing)
                if due:
                    signed = time.monotonic()
        except Exception as error:  # noqa: BLE001  a run goes on without MLflow, whatever it is
            self._give_up(self._connection.sentence(error))

    def _gather(self) -> tuple[Sequence[Message], bool]:
        """Wait for a message, then a while for more; the flag says that there will be none.

        Without a message the wait ends when the machine is to be read, or a sign of life is due.
        """
        batch: list[Message] = []
        until = time.monotonic() + min(SIGN_S, SYSTEM_S)
        while (left := until - time.monotonic()) > 0:
            try:
                message = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if message is None:
                return batch, True
            batch.append(message)
            until = min(until, time.monotonic() + self._flush_s)
        return batch, False

    def _write(self, batch: Sequence[Message], *, sign: bool, end: bool) -> None:
        """Write the points of a batch, the runs whose stages have ended, and signs and ends."""
        with self._connection.writing() as server:
            points = (message for message in batch if isinstance(message, LivePoint))
            self._runs.write_points(server, points)
            settled = (message for message in batch if isinstance(message, str))
            self._runs.write_settled(server, settled)
            if sign:
                self._runs.write_signs(server)
            if time.monotonic() - self._read >= SYSTEM_S:
                self._read = time.monotonic()
                self._runs.write_system(server, server.machine())
            if end:
                self._runs.write_ends(server)

    def _give_up(self, why: str) -> None:
        """Say once that MLflow is not available, and ignore everything from now on."""
        if not self.failed.is_set():
            self.failed.set()
            self._warn(why)
