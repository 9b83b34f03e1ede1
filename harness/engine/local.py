"""The local engine: runs the pending stages of a plan on worker processes of this machine.

The parent decides and records, the workers compute and store. A stage goes to a worker when its
inputs are done; its result is in the store before the parent hears of it. A failure costs the
stage and what needs it, nothing else. How many workers there are changes when a stage runs, never
its numbers: a stage sees its settings, its inputs and its seed, and one thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from harness.engine.events import (
    Event,
    Interrupted,
    Outcome,
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from harness.engine.plan import Plan
from harness.engine.pool import Pool, WorkerProcess
from harness.engine.schedule import Schedule
from harness.errors import HarnessError, UserError
from harness.quiet import worker_environment
from harness.store import (
    Json,
    Provenance,
    Stage,
    Store,
    StoreError,
    available_cores,
    collect_provenance,
)


def _ignore(event: Event) -> None:
    """Take an event to nowhere."""


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
        provenance: Recorded with each output; collected at the first run where not given.
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
        on_event: Callable[[Event], None] = _ignore,
        provenance: Provenance | None = None,
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
        self._provenance = provenance
        self._preload = list(preload)
        self._fallback = dict(fallback or {})
        self._threads = threads
        self._hardware = dict(hardware or {})

    def run(self, plan: Plan) -> Outcome:
        """Compute the stages of a plan that are not done, trying again those that failed.

        Raises:
            HarnessError: A stage is of a kind that has no function.
            Interrupted: Ctrl-C; the workers are ended and what they were writing is removed.
        """
        pending = plan.pending(self.store)
        strange = sorted({stage.kind for stage in pending} - self.functions.keys())
        if strange:
            raise HarnessError(f"no function computes stages of the kind {', '.join(strange)}")
        if not pending:
            return Outcome((), {}, {})
        self.store.sweep()
        for stage in pending:
            self.store.clear_failure(stage.fingerprint)
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
                "path": [entry or os.getcwd() for entry in sys.path],
                "root": str(self.store.root),
                "functions": self.functions,
                "preload": self._preload,
                "provenance": self._provenance,
                "hardware": self._hardware,
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
        self.finished: list[Stage] = []
        self.failed: dict[Stage, str] = {}
        self.skipped: dict[Stage, str] = {}

    def drive(self, pool: Pool, on_event: Callable[[Event], None]) -> None:
        """Hand out stages and take in answers until nothing is left."""
        events: list[Event] = []
        while True:
            self._hand_out(pool)
            for event in events:
                on_event(event)
            if not pool.busy:
                return
            events = []
            for worker, message in pool.wait():
                events += self._take_in(worker, message)
            if self._fail_fast and self.failed:
                pool.stop()
                first = next(iter(self.failed)).title
                events += self._skip(self._schedule.drop_all(), f"stopped when {first} failed")

    def _hand_out(self, pool: Pool) -> None:
        """Give ready stages to idle workers, starting no more workers than there is work for."""
        while self._schedule.ready and (worker := pool.idle_worker()):
            worker.give(self._schedule.take())

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
            case _:
                worker.stage = None
                return self._fail(stage, message["reason"], message["traceback"])

    def _bury(self, worker: WorkerProcess) -> list[Event]:
        """Settle the stage of a worker that died; it may have stored it with its last breath."""
        reason, text = worker.obituary()
        if worker.stage is None:
            return []
        if self._store.status(worker.stage.fingerprint) == "done":
            wall_s = self._store.manifest(worker.stage.fingerprint)["wall_s"]
            return [self._finish(worker.stage, wall_s)]
        return self._fail(worker.stage, reason, text)

    def _finish(self, stage: Stage, wall_s: float) -> Event:
        self._schedule.finish(stage)
        self.finished.append(stage)
        return StageFinished(stage, wall_s)

    def _fail(self, stage: Stage, reason: str, text: str) -> list[Event]:
        """Record a failure and skip what needs the stage."""
        try:
            self._store.record_failure(stage, reason, text)
        except StoreError as error:
            reason = f"{reason} (not recorded: {error})"
        self.failed[stage] = reason
        dropped = self._schedule.fail(stage)
        return [StageFailed(stage, reason), *self._skip(dropped, f"needs {stage.title}")]

    def _skip(self, stages: list[Stage], because: str) -> list[Event]:
        self.skipped.update(dict.fromkeys(stages, because))
        return [StageSkipped(stage, because) for stage in stages]
