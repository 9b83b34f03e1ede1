"""An engine runs the pending stages of a plan: on this machine or a Ray cluster.

The parent schedules and records; a crew computes and stores. A failure affects only the stage and
its dependents; a stage whose node was lost is retried. A stage that another run is computing is
polled: its output is reused, or, if the other run ends without one, computed here. Where and when a
stage runs never changes its numbers: it sees only its settings, inputs, seed and a fixed thread
count. Events are best effort, since the parent may die at any moment.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from harness.errors import UserError
from harness.quiet import worker_environment
from harness.runtime.crew import Crew, LocalCrew, Need, Needs
from harness.runtime.files import DiskFullError, StoreError, disk_full
from harness.runtime.manifest import available_cores, collect_provenance
from harness.runtime.plan import (
    Event,
    Interrupted,
    Plan,
    RunOutcome,
    Schedule,
    StageElsewhere,
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from harness.runtime.stage import Json, Stage
from harness.runtime.store import Store
from harness.runtime.supervisor import POLL_INTERVAL_S
from harness.runtime.worker import Message, WorkerSetup
from harness.strict import Strict

_ATTEMPTS = 3
"""Maximum number of attempts at a stage that loses its node."""


class EngineOptions(Strict):
    """Where stages are computed: here or on a Ray cluster (`host:port`, `auto`, or its own)."""

    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.ray_address is not None and self.engine != "ray":
            raise UserError(
                f"--ray-address is for `--engine ray`, not `{self.engine}`: leave it out"
            )
        return self


LOCAL = EngineOptions()


@dataclass
class Engine:
    """Runs plans into a store; as a context manager, it keeps its warm crew across runs.

    Attributes:
        functions: `module:function` by stage kind; each takes a `StageContext`.
        jobs: Maximum concurrent stages; by default up to the engine.
        preload: Modules a worker imports as soon as it starts.
        expected: Seconds a stage should take; the longest chain of stages goes first.
        threads: Compute threads per worker.
    """

    store: Store
    functions: Mapping[str, str]
    log_dir: Path
    _: KW_ONLY
    jobs: int | None = None
    on_event: Callable[[Event], None] = lambda event: None
    preload: Sequence[str] = ()
    expected: Callable[[Stage], float] = lambda stage: 1.0
    threads: int = 1
    hardware: Mapping[str, Json] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: Needs | None = None
    where: EngineOptions = LOCAL
    _keeps: bool = field(default=False, init=False)
    _crew: Crew | None = field(default=None, init=False)

    def run(self, plan: Plan) -> RunOutcome:
        """Compute the plan's stages that are not done; a full disk lets the running ones end."""
        pending = plan.pending(self.store)
        if not pending:
            return RunOutcome((), {}, {})
        self.store.sweep()
        schedule = Schedule(plan, pending, self.expected)
        run: _Run | None = None
        try:
            self._crew = self._crew or self.crew()
            self._crew.check(pending)
            run = _Run(self, schedule, self._crew)
            run.drive()
        except KeyboardInterrupt:
            finished = len(run.finished) if run else 0
            raise Interrupted(
                f"stopped with {finished} of {len(pending)} stages computed: "
                "run the same command again to go on from there"
            ) from None
        finally:
            if not self._keeps:
                self._let_go()
            self.store.sweep()
        return RunOutcome(tuple(run.finished), run.failed, run.skipped)

    def crew(self) -> Crew:
        needs = self.needs or Needs(other=Need(self.threads))
        if self.where.engine == "local":
            environment = worker_environment(self.threads) | dict(self.environment)
            jobs = self.jobs or available_cores()
            return LocalCrew(jobs, self.setup, environment, self.log_dir, needs)
        from harness.runtime.ray_engine import RayCrew, order

        asked = order(self.setup, self.threads, self.log_dir / "ray", self.environment)
        return RayCrew(asked, needs, self.jobs, self.store, self.where.ray_address)

    @property
    def setup(self) -> WorkerSetup:
        """What a worker is told before its first stage."""
        return {
            "root": str(self.store.root),
            "functions": dict(self.functions),
            "preload": list(self.preload),
            "provenance": collect_provenance(self.threads),
            "hardware": dict(self.hardware),
        }

    def __enter__(self) -> Self:
        self._keeps = True
        return self

    def __exit__(self, *_: object) -> None:
        self._keeps = False
        self._let_go()

    def _let_go(self) -> None:
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.stop()


class _Run:
    def __init__(self, engine: Engine, schedule: Schedule, crew: Crew) -> None:
        self._engine = engine
        self._store = engine.store
        self._schedule = schedule
        self._crew = crew
        self._attempts: Counter[Stage] = Counter()
        self._elsewhere: list[Stage] = []
        self._next_look = 0.0
        self._disk_full = False
        self.finished: list[Stage] = []
        self.failed: dict[Stage, str] = {}
        self.skipped: dict[Stage, str] = {}

    def drive(self) -> None:
        """Hand out stages and process messages until nothing is left."""
        events: list[Event] = []
        while True:
            events += self._hand_out()
            for event in events:
                self._engine.on_event(event)
            idle = not self._crew.at_work
            if idle and not self._elsewhere:
                if not (left := self._schedule.left):
                    return
                self._crew.check(left)  # no room even when idle: a stage may need too much
            events = []
            for stage, message in self._crew.wait(
                POLL_INTERVAL_S if self._elsewhere or idle else None
            ):
                events += self._take_in(stage, message)
            events += self._stop()

    def _hand_out(self) -> list[Event]:
        events: list[Event] = []
        if self._elsewhere and time.monotonic() >= self._next_look:
            # Stages that other runs have released are ready again: done, or to be computed here.
            for left in [s for s in self._elsewhere if not self._store.claimed(s.fingerprint)]:
                self._elsewhere.remove(left)
                self._schedule.put_back(left)
            self._next_look = time.monotonic() + POLL_INTERVAL_S
        while (stage := self._schedule.take(self._room())) is not None:
            if self._store.status(stage.fingerprint) == "done":
                events.append(self._adopt(stage))
            elif self._store.claimed(stage.fingerprint):
                events += self._leave(stage)
            else:
                self._crew.give(stage)
        return events

    def _room(self) -> Callable[[Stage], bool]:
        """Return whether there is room for a stage; GPUs are kept for a more urgent one."""
        needs, crew = self._crew.needs, self._crew
        asked = any(needs.of(stage.kind).uses_endpoint for stage in crew.at_work)
        kept = False

        @cache
        def room(kind: str) -> bool:
            nonlocal kept
            need = needs.of(kind)
            if need.uses_endpoint and asked:
                return False
            fits = not (kept and need.gpus) and crew.room(need)
            kept = kept or (need.gpus > 0 and not fits)
            return fits

        return lambda stage: room(stage.kind)

    def _stop(self) -> list[Event]:
        """Drop what is left if the disk is full."""
        if not self._disk_full:
            return []
        left = self._schedule.drop_all(self._crew.at_work)
        self._elsewhere.clear()
        return self._skip(left, "not started, since the disk is full")

    def _take_in(self, stage: Stage, message: Message) -> list[Event]:
        match message["event"]:
            case "started":
                return [StageStarted(stage)]
            case "progress":
                said = (message["step"], message["metrics"], message.get("last"))
                return [StageProgress(stage, *said)]
            case "finished":
                return [self._finish(stage, message["wall_s"])]
            case "elsewhere":
                return self._leave(stage)
            case "died":
                return self._handle_worker_exit(stage, message)
            case _:
                self._disk_full = self._disk_full or message["disk_full"]
                return self._fail(stage, message["reason"], message["traceback"])

    def _handle_worker_exit(self, stage: Stage, message: Message) -> list[Event]:
        """Settle a stage whose worker died, possibly after storing its output."""
        reason = message["reason"]
        if self._store.status(stage.fingerprint) == "done":
            return [self._adopt(stage)]
        if self._store.claimed(stage.fingerprint):
            return self._leave(stage)
        for folder in (self._store.root, self._engine.log_dir):
            if full := disk_full(f"computing {stage.title}", folder):
                self._disk_full, reason = True, str(full)
        self._store.sweep()  # its partial output, which may be what fills the disk
        if message.get("lost") and not self._disk_full:
            self._attempts[stage] += 1
            if self._attempts[stage] < _ATTEMPTS:
                self._schedule.put_back(stage)
                return []
        return self._fail(stage, reason, message["traceback"])

    def _leave(self, stage: Stage) -> list[Event]:
        self._elsewhere.append(stage)
        return [StageElsewhere(stage)]

    def _adopt(self, stage: Stage) -> Event:
        """Settle a stage that is already in the store, whoever computed it."""
        return self._finish(stage, self._store.manifest(stage.fingerprint)["wall_s"])

    def _finish(self, stage: Stage, wall_s: float) -> Event:
        self._schedule.finish(stage)
        self.finished.append(stage)
        return StageFinished(stage, wall_s)

    def _fail(self, stage: Stage, reason: str, text: str) -> list[Event]:
        try:
            self._store.record_failure(stage, reason, text)
        except StoreError as error:
            if not (self._disk_full and isinstance(error, DiskFullError)):  # already the reason
                reason = f"{reason} (not recorded: {error})"
        self.failed[stage] = reason
        dropped = self._schedule.fail(stage)
        return [StageFailed(stage, reason), *self._skip(dropped, f"needs {stage.title}")]

    def _skip(self, stages: list[Stage], because: str) -> list[Event]:
        self.skipped.update(dict.fromkeys(stages, because))
        return [StageSkipped(stage, because) for stage in stages]
