"""What happens while stages run, told to a callback in the parent process, and where a run stands.

Each stage of a plan that was not done gets exactly one of finished, failed or skipped. An
interrupted run ends with an exception instead. A `Tally` counts the events: it is what a progress
display shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from harness.errors import HarnessError
from harness.runtime.plan import Plan, remaining_s
from harness.runtime.stage import Stage
from harness.runtime.store import Store


@dataclass(frozen=True)
class StageStarted:
    """A worker has begun to compute a stage."""

    stage: Stage


@dataclass(frozen=True)
class StageElsewhere:
    """Another run computes a stage; this one waits, for its output or to do it after all."""

    stage: Stage


@dataclass(frozen=True)
class StageProgress:
    """A running stage has reported one point of its curves.

    `last` is the last step it will report, None where that is not known.
    """

    stage: Stage
    step: int
    metrics: Mapping[str, float]
    last: int | None = None

    @property
    def words(self) -> str:
        """How far it is: `step 12 of 25, loss 0.531`, or `60 of 120` of what is only counted."""
        of = str(self.step) if self.last is None else f"{self.step} of {self.last}"
        if "loss" in self.metrics:
            return f"step {of}, loss {self.metrics['loss']:.3f}"
        return f"step {of}" if self.last is None else of


@dataclass(frozen=True)
class StageFinished:
    """A stage's output is in the store; `wall_s` is the seconds its function took, anywhere."""

    stage: Stage
    wall_s: float


@dataclass(frozen=True)
class StageFailed:
    """A stage raised, or its worker died; `reason` is one sentence and is in the store."""

    stage: Stage
    reason: str


@dataclass(frozen=True)
class StageSkipped:
    """A stage was not computed; `because` says which failure kept it from being."""

    stage: Stage
    because: str


_FEWEST_STEPS = 3
"""Reported steps of a stage after which they say how long it takes."""

Event: TypeAlias = (
    StageStarted | StageElsewhere | StageProgress | StageFinished | StageFailed | StageSkipped
)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: what was done in its time, what failed and why, what was skipped and why.

    What another run computed while this one waited for it is among what was done.
    """

    finished: tuple[Stage, ...]
    failed: Mapping[Stage, str]
    skipped: Mapping[Stage, str]

    @property
    def ok(self) -> bool:
        """Whether every stage of the plan is now done."""
        return not self.failed and not self.skipped


class Interrupted(HarnessError):
    """The user stopped the run (exit code 130, the shell's number for Ctrl-C)."""

    exit_code = 130


class Tally:
    """Counts of a plan's stages while it runs; feed it every event.

    The store it runs into is looked at once, before the run.

    Attributes:
        total: Number of stages of the plan.
        done: Number of stages in the store.
        failed: Number of stages that failed in this run.
        skipped: Number of stages left out in this run because of a failure.
        running: The running stages with the clock's time of their start.
        elsewhere: The stages that another run computes while this one waits.
        latest: The last point each running stage reported, by fingerprint.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        jobs: int,
        fallback: Mapping[str, float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._jobs = jobs
        self._clock = clock
        self._expected = plan.durations(store, fallback)
        self._measured: dict[str, list[float]] = {}
        self._open = {stage.fingerprint: stage for stage in plan.pending(store)}
        self.total = len(plan)
        self.done = self.total - len(self._open)
        self.failed = 0
        self.skipped = 0
        self.running: dict[Stage, float] = {}
        self.elsewhere: set[Stage] = set()
        self.latest: dict[str, StageProgress] = {}
        self._reached: dict[str, list[tuple[int, float]]] = {}

    def observe(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case StageStarted(stage):
                self.elsewhere.discard(stage)
                self.running[stage] = self._clock()
                return
            case StageElsewhere(stage):
                self.elsewhere.add(stage)
                return
            case StageProgress(stage):
                self.latest[stage.fingerprint] = event
                if stage in self.running:
                    at = (event.step, self._clock() - self.running[stage])
                    self._reached.setdefault(stage.fingerprint, []).append(at)
                return
            case StageFinished(stage, wall_s):
                self.done += 1
                self._measured.setdefault(stage.kind, []).append(wall_s)
            case StageFailed():
                self.failed += 1
            case StageSkipped():
                self.skipped += 1
        self.elsewhere.discard(event.stage)
        self.running.pop(event.stage, None)
        self.latest.pop(event.stage.fingerprint, None)
        self._reached.pop(event.stage.fingerprint, None)
        self._open.pop(event.stage.fingerprint, None)

    def remaining_s(self) -> float:
        """Return the expected seconds until the run ends, from what it has measured so far.

        Stages that have ended say how long one of their kind takes; where none has, those that run
        say it by their own steps.
        """
        by_steps = self._by_steps()
        measured: dict[str, list[float]] = {}
        for stage, seconds in by_steps.items():
            measured.setdefault(stage.kind, []).append(seconds)
        measured |= self._measured
        durations = self._expected | {kind: sum(s) / len(s) for kind, s in measured.items()}
        chains = self._plan.chains(self._open.values(), durations)
        now = self._clock()
        left = {fingerprint: durations[s.kind] for fingerprint, s in self._open.items()}
        for stage, started in self.running.items():
            usual = durations[stage.kind]
            rest = max(0.0, by_steps.get(stage, usual) - (now - started))
            left[stage.fingerprint] += rest - usual
            chains[stage.fingerprint] += rest - usual
        return remaining_s(left.values(), chains.values(), self._jobs)

    def _by_steps(self) -> dict[Stage, float]:
        """Return the seconds that running stages take in all, if they go on as they went.

        The time to the first step is no measure: in it models are loaded.
        """
        found = {}
        for stage in self.running:
            point = self.latest.get(stage.fingerprint)
            reached = self._reached.get(stage.fingerprint, [])
            if point is None or point.last is None or len(reached) < _FEWEST_STEPS:
                continue
            (first, began), (step, spent) = reached[0], reached[-1]
            if step > first:
                found[stage] = spent + (spent - began) / (step - first) * max(0, point.last - step)
        return found
