"""Live tracking: curves and states reach MLflow while stages run, without holding the run up.

Whoever runs the engine drops messages into a queue and goes on. One background thread imports
MLflow, gathers messages for some seconds at a time and writes them: points of running trainings as
they are, and a run's record again when one of its stages has finished or failed. The thread never
raises. When MLflow fails, it says so once and ignores all further messages. Nothing depends on
live tracking: what it missed, the next `sync` adds.

One command of a work folder at a time is tracked live, and holds a lock as long as it lives: what
is RUNNING in MLflow while nobody holds it was left by one that was killed.

A stage that several runs share is computed once, and its curves appear in each of these runs.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from harness.pipeline.runs import asked_together
from harness.runtime import Event, Plan, StageFailed, StageFinished, StageProgress, Store
from harness.tracking.connection import Connection, too_slow
from harness.tracking.record import COMPUTED_IN, metric_name, point_ms, sha256
from harness.tracking.runs import run_identity, run_record, trained_in

if TYPE_CHECKING:
    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns
    from harness.registry.profile import Profile
    from harness.tracking.server import Point, Server


Message: TypeAlias = "StageProgress | str"
"""A point of a curve, or the fingerprint of a stage that has finished or failed."""


def lock_of(work_dir: Path) -> Path:
    """Return the lock that is held by the command which is tracked live."""
    return work_dir / "tracking" / "live.lock"


def place_of(work_dir: Path) -> str:
    """Return the value of the tag `COMPUTED_IN` for a work folder."""
    return sha256(str(work_dir.resolve()))


class LiveRuns:
    """The runs that are being computed in a place, found by stage; writes what is new of them.

    One that several tables judge differently is judged on the benchmarks of all of them.
    """

    def __init__(
        self,
        store: Store,
        place: str,
        served: Mapping[str, Sequence[str]],
        tables: Iterable[TableRuns],
    ) -> None:
        self._store = store
        self._place = place
        self._served = served
        self._runs: dict[str, tuple[Run, Profile]] = {}
        self._trained: dict[str, dict[str, str]] = {}
        self._needed: dict[str, list[str]] = {}
        self._shown: set[str] = set()
        self._written: dict[str, tuple[str, int]] = {}  # MLflow's id and the start
        for table in asked_together(tables):
            for run in table.runs.values():
                self._add(run, table.profile)

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

    def message(self, event: Event) -> Message | None:
        """Return what an event changes in MLflow; None where that is nothing.

        That is a point of what trains one of the runs, and the end of a stage that trains, judges
        or fails.
        """
        match event:
            case StageProgress(stage) if stage.fingerprint in self._trained:
                return event
            case StageFinished(stage) if stage.fingerprint in self._shown:
                return stage.fingerprint
            case StageFailed(stage):
                return stage.fingerprint
        return None

    def write(self, server: Server, batch: Sequence[Message]) -> None:
        """Add points to all runs they belong to, then write the runs whose stages have ended."""
        points: dict[str, list[Point]] = {}
        for message in batch:
            if isinstance(message, StageProgress):
                for run_id, point in self._points(server, message):
                    points.setdefault(run_id, []).append(point)
        for run_id, added in points.items():
            server.add_points(run_id, added)
        settled = (message for message in batch if isinstance(message, str))
        for identity in dict.fromkeys(i for stage in settled for i in self._needed.get(stage, ())):
            self._write(server, identity)

    def end(self, server: Server) -> None:
        """End the runs that are not whole: nothing computes them any more."""
        server.end_left(self._place)

    def _points(self, server: Server, point: StageProgress) -> Iterator[tuple[str, Point]]:
        """Yield a point for each run that it belongs to, by MLflow's id."""
        if self._store.status(point.stage.fingerprint) == "done":
            return  # the runs' records have the whole curve
        # A store keeps no infinities, so live points have none either.
        values = {n: v if math.isfinite(v) else math.nan for n, v in point.metrics.items()}
        for identity, prefix in self._trained[point.stage.fingerprint].items():
            if identity in self._written or self._write(server, identity):
                run_id, start_ms = self._written[identity]
                named = {metric_name(prefix + name): value for name, value in values.items()}
                yield run_id, (named, point.step, point_ms(start_ms, point.step))

    def _write(self, server: Server, identity: str) -> bool:
        """Write the record of a run; return whether there is one yet."""
        run, profile = self._runs[identity]
        record = run_record(run, profile, self._store, self._served, is_computed=True)
        if record is None:
            return False
        if record.status == "RUNNING":
            record = replace(record, tags={**record.tags, COMPUTED_IN: self._place})
        found = server.find([record]).get(identity, [])
        _, run_id = server.apply(record, found, afresh=identity not in self._written)
        self._written[identity] = run_id, record.start_ms
        return True


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
        self.failed = threading.Event()

    def observe(self, event: Event) -> None:
        """Take an event of the engine; returns at once."""
        message = self._runs.message(event)
        if message is None or self.failed.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
            self._thread.start()
        self._queue.put(message)

    def close(self, timeout_s: float) -> None:
        """Write what is left and stop; what needs longer ends with the process."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                self._give_up(too_slow(self._connection.uri))

    def _run(self) -> None:
        """Write batches of messages until told to stop."""
        try:
            closing = False
            while not closing and not self.failed.is_set():
                batch, closing = self._gather()
                with self._connection.writing() as server:
                    self._runs.write(server, batch)
                    if closing:
                        self._runs.end(server)
        except Exception as error:  # noqa: BLE001  a run goes on without MLflow, whatever it is
            self._give_up(self._connection.sentence(error))

    def _gather(self) -> tuple[list[Message], bool]:
        """Wait for a message, then a while for more; the flag says that there will be none."""
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

    def _give_up(self, why: str) -> None:
        """Say once that MLflow is not available, and ignore everything from now on."""
        if not self.failed.is_set():
            self.failed.set()
            self._warn(why)
