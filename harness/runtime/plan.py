"""A plan: the distinct stages that a set of target stages needs, and how they fare.

A plan is in depth-first order from the targets, inputs first. The ready stage with the longest
remaining chain goes first, so that no worker is left alone with a long chain at the end. While
stages run, a callback gets events: each stage that was not done gets exactly one of finished,
failed or skipped; an interrupted run ends with an exception instead.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from harness.errors import HarnessError
from harness.runtime.stage import Stage
from harness.runtime.store import State, Store


class Plan:
    """The distinct stages behind some targets, each after its inputs."""

    def __init__(self, targets: Iterable[Stage]) -> None:
        self.stages = tuple(inputs_first(targets))
        self.dependants: dict[Stage, list[Stage]] = {stage: [] for stage in self.stages}
        for stage in self.stages:
            for needed in {*stage.inputs.values()}:
                self.dependants[needed].append(stage)

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def states(self, store: Store) -> dict[Stage, State]:
        return {stage: store.status(stage.fingerprint) for stage in self.stages}

    def pending(self, store: Store) -> tuple[Stage, ...]:
        return tuple(stage for stage, state in self.states(store).items() if state != "done")

    def chains(
        self, pending: Iterable[Stage], seconds: Callable[[Stage], float]
    ) -> dict[Stage, float]:
        """Return the seconds of the longest chain that each pending stage (in order) starts."""
        chains: dict[Stage, float] = {}
        for stage in reversed(list(pending)):
            after = (chains.get(dependant, 0.0) for dependant in self.dependants[stage])
            chains[stage] = seconds(stage) + max(after, default=0.0)
        return chains


def inputs_first(targets: Iterable[Stage]) -> Iterator[Stage]:
    """Yield each distinct stage once, after its inputs (iteratively, since chains can be long)."""
    seen: set[Stage] = set()
    for target in targets:
        walk = [(target, False)]
        while walk:
            stage, inputs_seen = walk.pop()
            if inputs_seen:
                yield stage
            elif stage not in seen:
                seen.add(stage)
                walk.append((stage, True))
                for needed in reversed(list(stage.inputs.values())):
                    walk.append((needed, False))


class Schedule:
    """The order in which a plan's pending stages are computed."""

    def __init__(
        self, plan: Plan, pending: Iterable[Stage], expected: Callable[[Stage], float]
    ) -> None:
        self._plan = plan
        self._unsettled = dict.fromkeys(pending)
        chains = plan.chains(self._unsettled, expected)
        rank = {stage: (-chains[stage], place) for place, stage in enumerate(self._unsettled)}
        self._urgency = rank.__getitem__
        self._waits_for = {
            stage: {*stage.inputs.values()} & self._unsettled.keys() for stage in self._unsettled
        }
        ready = [stage for stage, needed in self._waits_for.items() if not needed]
        self._ready = sorted(ready, key=self._urgency)

    @property
    def left(self) -> list[Stage]:
        return list(self._unsettled)

    def take(self, fits: Callable[[Stage], bool] = lambda stage: True) -> Stage | None:
        """Take and return the most urgent ready stage that fits, or None."""
        for position, stage in enumerate(self._ready):
            if fits(stage):
                return self._ready.pop(position)
        return None

    def finish(self, stage: Stage) -> None:
        """Settle a finished stage; its dependants may become ready."""
        del self._unsettled[stage]
        for dependant in self._plan.dependants[stage]:
            if dependant in self._unsettled:
                self._waits_for[dependant].discard(stage)
                if not self._waits_for[dependant]:
                    self.put_back(dependant)

    def fail(self, stage: Stage) -> list[Stage]:
        """Settle a failed stage and everything that depends on it; return the latter."""
        lost = {stage: None}
        for candidate in self._unsettled:
            if not lost.keys().isdisjoint(candidate.inputs.values()):
                lost[candidate] = None
        for each in lost:
            del self._unsettled[each]
        return list(lost)[1:]

    def put_back(self, stage: Stage) -> None:
        insort(self._ready, stage, key=self._urgency)

    def drop_all(self, but: Collection[Stage]) -> list[Stage]:
        """Settle all remaining stages, started or not, except `but`; return them in plan order."""
        dropped = [stage for stage in self._unsettled if stage not in but]
        self._unsettled = dict.fromkeys(but)
        self._ready.clear()
        return dropped


@dataclass(frozen=True)
class StageStarted:
    """A worker has started a stage."""

    stage: Stage


@dataclass(frozen=True)
class StageElsewhere:
    """Another run is computing a stage; this one waits for its output, or computes it later."""

    stage: Stage


@dataclass(frozen=True)
class StageProgress:
    """A point of a running stage's curves; `last` is the last step it will report."""

    stage: Stage
    step: int
    metrics: Mapping[str, float]
    last: int | None = None

    @property
    def words(self) -> str:
        """The progress: `step 12 of 25, loss 0.531`, or `60 of 120` without a loss."""
        of = str(self.step) if self.last is None else f"{self.step} of {self.last}"
        if "loss" in self.metrics:
            return f"step {of}, loss {self.metrics['loss']:.3f}"
        return f"step {of}" if self.last is None else of


@dataclass(frozen=True)
class StageFinished:
    """A stage's output is in the store; `wall_s` is how long its function took, in any run."""

    stage: Stage
    wall_s: float


@dataclass(frozen=True)
class StageFailed:
    """A stage raised or its worker died; `reason` is one sentence, also kept in the store."""

    stage: Stage
    reason: str


@dataclass(frozen=True)
class StageSkipped:
    """A stage was not computed; `because` says why."""

    stage: Stage
    because: str


@dataclass(frozen=True)
class Awaited:
    """Stages have been waiting for something, such as a server starting up, for `seconds`."""

    what: str
    seconds: float


Event: TypeAlias = (
    StageStarted
    | StageElsewhere
    | StageProgress
    | StageFinished
    | StageFailed
    | StageSkipped
    | Awaited
)


@dataclass
class RunOutcome:
    """What finished (here or in another run), what failed and was skipped, and why."""

    finished: list[Stage] = field(default_factory=list)
    failed: dict[Stage, str] = field(default_factory=dict)
    skipped: dict[Stage, str] = field(default_factory=dict)
    disk_full: bool = False

    @property
    def ok(self) -> bool:
        return not self.failed and not self.skipped

    def observe(self, event: Event) -> None:
        match event:
            case StageFinished(stage):
                self.finished.append(stage)
            case StageFailed(stage, reason):
                self.failed[stage] = reason
            case StageSkipped(stage, because):
                self.skipped[stage] = because


DISK_FULL = "not started, since the disk is full"


class Interrupted(HarnessError):
    """The user stopped the run (exit code 130, as in a shell after Ctrl-C)."""

    exit_code = 130

    @classmethod
    def after(cls, outcome: RunOutcome, stages: int) -> Self:
        return cls(
            f"stopped with {len(outcome.finished)} of {stages} stages computed: "
            "run the same command again to go on from there"
        )


_FEWEST_STEPS = 3
"""Steps a stage must have reported before its duration is extrapolated from them."""

_FEW_S = 5.0
"""Smoothing: ended stages that took less in total hardly affect the estimates for others."""

_LEAST_S = 1e-3
"""Least seconds that are expected of a stage."""

_LONGER = 0.2
"""Minimum remaining time of a running stage, as a share of its time so far."""


@dataclass
class _Pace:
    """Seconds that some stages took, and were expected to take."""

    took: float = 0.0
    expected: float = 0.0

    def add(self, took: float, expected: float) -> None:
        self.took += took
        self.expected += expected

    @property
    def ratio(self) -> float:
        return self.took / self.expected


class Tally:
    """Counts a running plan's stages and estimates the time left; give it every event.

    A stage is expected to take its seconds times the ratio of actual to expected time: that of
    ended stages of its kind, else of running ones (by their steps), else of all ended stages if
    above 1. The seconds of a stage that is not `is_timed` are a guess, no measure of other kinds.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        jobs: int,
        expected: Callable[[Stage], float],
        is_timed: Callable[[Stage], bool] = lambda stage: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._jobs = jobs
        self._clock = clock
        self._began = clock()
        self._expected = {it: max(_LEAST_S, expected(it)) for it in plan.pending(store)}
        self._open = dict.fromkeys(self._expected)
        self._untimed = {it for it in self._expected if not is_timed(it)}
        self._guessed = {it.kind for it in self._untimed}
        self._took: dict[str, _Pace] = {}
        self.total = len(plan)
        self.done = self.total - len(self._open)
        self.failed = 0
        self.skipped = 0
        self.running: dict[Stage, float] = {}
        self.elsewhere: set[Stage] = set()
        self.latest: dict[Stage, StageProgress] = {}
        self.awaited: Awaited | None = None
        self._reached: dict[Stage, list[tuple[int, float]]] = {}

    def observe(self, event: Event) -> None:
        self.awaited = event if isinstance(event, Awaited) else None
        match event:
            case StageStarted(stage):
                self.elsewhere.discard(stage)
                self.running[stage] = self._clock()
            case StageElsewhere(stage):
                self.elsewhere.add(stage)
            case StageProgress(stage):
                self.latest[stage] = event
                self._reached.setdefault(stage, []).append((event.step, self._clock()))
            case StageFinished() | StageFailed() | StageSkipped():
                self._settle(event)

    def _settle(self, event: StageFinished | StageFailed | StageSkipped) -> None:
        stage, now = event.stage, self._clock()
        if isinstance(event, StageFinished):
            took = max(now - self.running.get(stage, now), event.wall_s)
            self._took.setdefault(stage.kind, _Pace()).add(took, self._expected[stage])
            self.done += 1
        self.failed += isinstance(event, StageFailed)
        self.skipped += isinstance(event, StageSkipped)
        self.elsewhere.discard(stage)
        self.running.pop(stage, None)
        self._reached.pop(stage, None)
        self.latest.pop(stage, None)
        self._open.pop(stage, None)

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._began

    @property
    def share(self) -> float:
        """Share of this run's work that is done, from 0 to 1, by time rather than stage count."""
        now = self._clock()
        spent = sum(it.took for it in self._took.values())
        spent += sum(now - at for at in self.running.values())
        left = sum(self._left().values())
        return spent / (spent + left) if spent + left > 0 else float(not self._open)

    def remaining_s(self) -> float | None:
        """Return the expected seconds left with `jobs` workers; None while some are guesses."""
        return None if self._unknown() else self.least_s()

    def least_s(self) -> float:
        """Return the expected seconds left, without the stages that are guesses."""
        left = self._left() | dict.fromkeys(self._unknown(), 0.0)
        chains = self._plan.chains(self._open, left.__getitem__)
        return max(sum(left.values()) / self._jobs, max(chains.values(), default=0.0))

    def _unknown(self) -> set[Stage]:
        known = {stage.kind for stage in self._by_steps()} | self._took.keys()
        return {it for it in self._untimed if it in self._open and it.kind not in known}

    def _left(self) -> dict[Stage, float]:
        """Return the seconds left for each open stage; a slow one does not end soon (`_LONGER`)."""
        now, by_steps = self._clock(), self._by_steps()
        overall, paces = _Pace(_FEW_S, _FEW_S), dict[str, _Pace]()
        for kind, own in self._took.items():
            if kind not in self._guessed:
                overall.add(own.took, own.expected)
        for stage, seconds in by_steps.items():
            paces.setdefault(stage.kind, _Pace()).add(seconds, self._expected[stage])
        paces |= self._took
        left = {
            stage: self._expected[stage]
            * (paces[stage.kind].ratio if stage.kind in paces else max(1.0, overall.ratio))
            for stage in self._open
        }
        for stage, started in self.running.items():
            usual, spent = by_steps.get(stage, left[stage]), now - started
            left[stage] = max(usual - spent, _LONGER * spent)
        return left

    def _by_steps(self) -> dict[Stage, float]:
        """Return the seconds of running stages by their steps, but for the first (loading)."""
        found = {}
        for stage, started in self.running.items():
            reached = self._reached.get(stage, [])
            last = self.latest[stage].last if reached else None
            if last is None or len(reached) < _FEWEST_STEPS:
                continue
            (first, began), (step, now) = reached[0], reached[-1]
            if step > first:
                found[stage] = now - started + (now - began) / (step - first) * max(0, last - step)
        return found
