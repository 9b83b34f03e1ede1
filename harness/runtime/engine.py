"""The local engine: runs the pending stages of a plan on worker processes of this machine.

The parent decides and records, the workers compute and store. A stage goes to a worker when its
inputs are done; its result is in the store before the parent hears of it. A failure costs the
stage and what needs it, nothing else. A stage that another run computes is left to that run, and
looked after while others are computed: its output is used, and if it ends without one the stage is
computed here. How many workers there are changes when a stage runs, never
its numbers: a stage sees its settings, its inputs and its seed, and one thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError
from harness.quiet import worker_environment
from harness.runtime.events import (
    Event,
    Interrupted,
    Outcome,
    StageElsewhere,
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from harness.runtime.files import DiskFullError, StoreError, disk_full
from harness.runtime.leases import this_host
from harness.runtime.plan import Plan, Schedule
from harness.runtime.pool import Pool, WorkerProcess
from harness.runtime.provenance import (
    Provenance,
    available_cores,
    code_digest,
    collect_provenance,
)
from harness.runtime.stage import Json, Stage
from harness.runtime.store import Store

_LOOK_S = 0.2
"""Seconds between two looks at the stages that other runs compute."""


class LocalEngine:
    """Runs plans into a store.

    Args:
        store: Where outputs go.
        functions: `module:function` by stage kind; each takes a `StageContext`.
        log_dir: Folder of the workers' logs.
        jobs: Greatest number of workers; one per available core where not given.
        fail_fast: Stop everything at the first failure instead of going on with what can.
        on_event: Called in this process with every event. Idle workers have their next stage
            before it is called, so a slow callback delays them no more than it must.
        preload: Modules a worker imports as soon as it starts.
        fallback: Expected seconds by kind, used for the order while none of a kind is done.
        threads: Compute threads of a worker.
        hardware: How stages are to use this machine, handed to them as it is.

    Raises:
        UserError: `jobs` is less than 1.
    """

    def __init__(
        self,
        store: Store,
        functions: Mapping[str, str],
        log_dir: Path,
        *,
        jobs: int | None = None,
        fail_fast: bool = False,
        on_event: Callable[[Event], None] = lambda event: None,
        preload: Sequence[str] = (),
        fallback: Mapping[str, float] | None = None,
        threads: int = 1,
        hardware: Mapping[str, Json] | None = None,
    ) -> None:
        self.jobs = available_cores() if jobs is None else jobs
        if self.jobs < 1:
            raise UserError(f"--jobs is {self.jobs}: give the number of workers, 1 or more")
        self.store = store
        self.functions = dict(functions)
        self.fail_fast = fail_fast
        self._log_dir = log_dir
        self._on_event = on_event
        self._provenance: Provenance | None = None
        self._preload = list(preload)
        self._fallback = dict(fallback or {})
        self._threads = threads
        self._hardware = dict(hardware or {})

    def run(self, plan: Plan) -> Outcome:
        """Compute the stages of a plan that are not done, trying again those that failed.

        When the disk is full, what runs is awaited and nothing more is started.

        Raises:
            HarnessError: A stage is of a kind that has no function.
            StoreError: The folder of the logs, or the store's, cannot be written.
            Interrupted: Ctrl-C; the workers are ended and what they were writing is removed.
        """
        pending = plan.pending(self.store)
        strange = sorted({stage.kind for stage in pending} - self.functions.keys())
        if strange:
            raise HarnessError(f"no function computes stages of the kind {', '.join(strange)}")
        if not pending:
            return Outcome((), {}, {})
        self.store.sweep()
        run = _Run(self, Schedule(plan, pending, plan.durations(self.store, self._fallback)))
        try:
            with self.workers() as pool:
                run.drive(pool, self._on_event)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped with {len(run.finished)} of {len(pending)} stages computed: "
                "run the same command again to go on from there"
            ) from None
        finally:
            self.store.sweep()
        return Outcome(tuple(run.finished), run.failed, run.skipped)

    def workers(self) -> AbstractContextManager[Pool]:
        """Return the workers of one run, none of them started yet; they end with the context."""
        if self._provenance is None:
            self._provenance = collect_provenance(self._threads)
        return Pool(
            self.jobs,
            {
                "root": str(self.store.root),
                "functions": self.functions,
                "preload": self._preload,
                "provenance": self._provenance,
                "hardware": self._hardware,
                "host": this_host(),
                "code": code_digest(),
            },
            worker_environment(self._threads),
            self._log_dir,
        )


class _Run:
    """One run of an engine: what has become of each stage so far."""

    def __init__(self, engine: LocalEngine, schedule: Schedule) -> None:
        self._store = engine.store
        self._fail_fast = engine.fail_fast
        self._schedule = schedule
        self._elsewhere: dict[str, Stage] = {}
        self._lost: set[str] = set()
        self._looked = -math.inf
        self._disk_full = False
        self.finished: list[Stage] = []
        self.failed: dict[Stage, str] = {}
        self.skipped: dict[Stage, str] = {}

    def drive(self, pool: Pool, on_event: Callable[[Event], None]) -> None:
        """Hand out stages and take in answers until nothing is left."""
        events: list[Event] = []
        while True:
            events += self._hand_out(pool)
            for event in events:
                on_event(event)
            if not pool.busy and not self._elsewhere:
                return
            events = []
            for worker, message in pool.wait(_LOOK_S if self._elsewhere else None):
                events += self._take_in(worker, message)
            events += self._stop(pool)

    def _hand_out(self, pool: Pool) -> list[Event]:
        """Give ready stages to idle workers, starting no more workers than there is work for."""
        events = self._look_elsewhere()
        while self._schedule.ready and pool.has_room:
            stage = self._schedule.take()
            if self._store.status(stage.fingerprint) == "done":
                events.append(self._adopt(stage))
            elif self._store.claimed(stage.fingerprint):
                events += self._leave(stage)
            else:
                pool.idle_worker().give(stage)
        return events

    def _look_elsewhere(self) -> list[Event]:
        """Take the outputs of stages that other runs computed; what they let go is ready again."""
        events: list[Event] = []
        if time.monotonic() - self._looked < _LOOK_S:
            return events
        for stage in list(self._elsewhere.values()):
            # Asked in this order: a stage that is done is let go later.
            claimed = self._store.claimed(stage.fingerprint)
            if self._store.status(stage.fingerprint) == "done":
                events.append(self._adopt(stage))
            elif not claimed:
                self._schedule.put_back(stage)
            else:
                continue
            del self._elsewhere[stage.fingerprint]
        self._looked = time.monotonic()
        return events

    def _stop(self, pool: Pool) -> list[Event]:
        """Start nothing more where the disk is full or the first failure is to end the run."""
        if self._disk_full:
            left = self._schedule.drop_all(but=pool.at_work)
            self._elsewhere.clear()
            return self._skip(left, "not started, since the disk is full")
        if not (self._fail_fast and self.failed):
            return []
        pool.stop()
        self._elsewhere.clear()
        first = next(iter(self.failed)).title
        return self._skip(self._schedule.drop_all(), f"stopped when {first} failed")

    def _take_in(self, worker: WorkerProcess, message: dict[str, Any] | None) -> list[Event]:
        """Note what a worker says; return the events that follow from it."""
        stage = worker.stage
        if message is None:
            return self._bury(worker)
        if stage is None:
            raise RuntimeError(f"an idle worker said {message}")
        match message["event"]:
            case "started":
                return [StageStarted(stage)]
            case "progress":
                return [StageProgress(stage, message["step"], message["metrics"])]
            case "finished":
                worker.stage = None
                return [self._finish(stage, message["wall_s"])]
            case "lost":  # it ends now, and another machine has the stage
                self._lost.add(stage.fingerprint)
                return []
            case "elsewhere":
                worker.stage = None
                return self._leave(stage)
            case _:
                worker.stage = None
                self._disk_full = self._disk_full or message["disk_full"]
                return self._fail(stage, message["reason"], message["traceback"])

    def _bury(self, worker: WorkerProcess) -> list[Event]:
        """Settle the stage of a worker that died; it may have stored it with its last breath."""
        reason, text = worker.obituary()
        stage = worker.stage
        if stage is None:
            return []
        if self._store.status(stage.fingerprint) == "done":
            return [self._adopt(stage)]
        if stage.fingerprint in self._lost or self._store.claimed(stage.fingerprint):
            return self._leave(stage)
        for folder in (self._store.root, worker.log.parent):
            if full := disk_full(f"computing {stage.title}", folder):
                self._disk_full, reason = True, str(full)
        self._store.sweep()  # its half-written output, which may be what fills the disk
        return self._fail(stage, reason, text)

    def _leave(self, stage: Stage) -> list[Event]:
        """Leave a stage to the run that computes it."""
        self._elsewhere[stage.fingerprint] = stage
        return [StageElsewhere(stage)]

    def _adopt(self, stage: Stage) -> Event:
        """Settle a stage that is in the store, whoever computed it."""
        return self._finish(stage, self._store.manifest(stage.fingerprint)["wall_s"])

    def _finish(self, stage: Stage, wall_s: float) -> Event:
        self._schedule.finish(stage)
        self.finished.append(stage)
        return StageFinished(stage, wall_s)

    def _fail(self, stage: Stage, reason: str, text: str) -> list[Event]:
        """Record a failure and skip what needs the stage."""
        try:
            self._store.record_failure(stage, reason, text)
        except StoreError as error:
            if not (self._disk_full and isinstance(error, DiskFullError)):  # that is the reason
                reason = f"{reason} (not recorded: {error})"
        self.failed[stage] = reason
        dropped = self._schedule.fail(stage)
        return [StageFailed(stage, reason), *self._skip(dropped, f"needs {stage.title}")]

    def _skip(self, stages: list[Stage], because: str) -> list[Event]:
        self.skipped.update(dict.fromkeys(stages, because))
        return [StageSkipped(stage, because) for stage in stages]
