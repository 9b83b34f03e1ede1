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
    DISK_FULL,
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
        jobs: Maximum concurrent stages; by default, the engine decides.
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
        pending, outcome = plan.pending(self.store), RunOutcome()
        if not pending:
            return outcome
        self.store.sweep()
        schedule = Schedule(plan, pending, self.expected)
        try:
            self._crew = self._crew or self.crew()
            self._crew.check(pending)
            _Run(self, schedule, self._crew, outcome).drive()
        except KeyboardInterrupt:
            raise Interrupted.after(outcome, len(pending)) from None
        finally:
            if not self._keeps:
                self._let_go()
            self.store.sweep()
        return outcome

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
    """One run: records what happens to its stages in `outcome`, and tells `on_event`."""

    def __init__(self, engine: Engine, schedule: Schedule, crew: Crew, outcome: RunOutcome) -> None:
        self._engine = engine
        self._store = engine.store
        self._schedule = schedule
        self._crew = crew
        self._outcome = outcome
        self._events: list[Event] = []
        self._attempts: Counter[Stage] = Counter()
        self._elsewhere: list[Stage] = []
        self._next_look = 0.0

    def drive(self) -> None:
        """Hand out stages and process messages until nothing is left."""
        while True:
            self._hand_out()
            for event in self._events:
                self._outcome.observe(event)
                self._engine.on_event(event)
            self._events.clear()
            idle = not self._crew.at_work
            if idle and not self._elsewhere:
                if not (left := self._schedule.left):
                    return
                self._crew.check(left)  # no room even when idle: a stage may need too much
            for stage, message in self._crew.wait(
                POLL_INTERVAL_S if self._elsewhere or idle else None
            ):
                self._take_in(stage, message)
            if self._outcome.disk_full:
                left = self._schedule.drop_all(self._crew.at_work)
                self._elsewhere.clear()
                self._skip(left, DISK_FULL)

    def _hand_out(self) -> None:
        if self._elsewhere and time.monotonic() >= self._next_look:
            # Stages that other runs have released are ready again: done, or to be computed here.
            for left in [s for s in self._elsewhere if not self._store.claimed(s.fingerprint)]:
                self._elsewhere.remove(left)
                self._schedule.put_back(left)
            self._next_look = time.monotonic() + POLL_INTERVAL_S
        while (stage := self._schedule.take(self._room())) is not None:
            if not self._is_elsewhere(stage):
                self._crew.give(stage)

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

    def _take_in(self, stage: Stage, message: Message) -> None:
        match message["event"]:
            case "started":
                self._events.append(StageStarted(stage))
            case "progress":
                said = (message["step"], message["metrics"], message.get("last"))
                self._events.append(StageProgress(stage, *said))
            case "finished":
                self._finish(stage, message["wall_s"])
            case "elsewhere":
                self._leave(stage)
            case "died":
                self._handle_worker_exit(stage, message)
            case _:
                self._outcome.disk_full = self._outcome.disk_full or message["disk_full"]
                self._fail(stage, message["reason"], message["traceback"])

    def _handle_worker_exit(self, stage: Stage, message: Message) -> None:
        """Settle a stage whose worker died, possibly after storing its output."""
        if self._is_elsewhere(stage):
            return
        reason = message["reason"]
        for folder in (self._store.root, self._engine.log_dir):
            if full := disk_full(f"computing {stage.title}", folder):
                self._outcome.disk_full, reason = True, str(full)
        self._store.sweep()  # its partial output, which may be what fills the disk
        if message.get("lost") and not self._outcome.disk_full:
            self._attempts[stage] += 1
            if self._attempts[stage] < _ATTEMPTS:
                self._schedule.put_back(stage)
                return
        self._fail(stage, reason, message["traceback"])

    def _is_elsewhere(self, stage: Stage) -> bool:
        """Settle a stage that is in the store, whoever computed it, and leave one that is claimed.

        Return whether it was either.
        """
        if self._store.status(stage.fingerprint) == "done":
            self._finish(stage, self._store.manifest(stage.fingerprint)["wall_s"])
        elif self._store.claimed(stage.fingerprint):
            self._leave(stage)
        else:
            return False
        return True

    def _leave(self, stage: Stage) -> None:
        self._elsewhere.append(stage)
        self._events.append(StageElsewhere(stage))

    def _finish(self, stage: Stage, wall_s: float) -> None:
        self._schedule.finish(stage)
        self._events.append(StageFinished(stage, wall_s))

    def _fail(self, stage: Stage, reason: str, text: str) -> None:
        try:
            self._store.record_failure(stage, reason, text)
        except StoreError as error:
            # A full disk is already the reason.
            if not (self._outcome.disk_full and isinstance(error, DiskFullError)):
                reason = f"{reason} (not recorded: {error})"
        self._events.append(StageFailed(stage, reason))
        self._skip(self._schedule.fail(stage), f"needs {stage.title}")

    def _skip(self, stages: list[Stage], because: str) -> None:
        self._events += [StageSkipped(stage, because) for stage in stages]
