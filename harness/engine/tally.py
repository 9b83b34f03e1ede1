"""The tally: where a run stands, from its events. It is what a progress display shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from harness.engine.events import (
    Event,
    StageElsewhere,
    StageFailed,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from harness.engine.plan import Plan, remaining_s
from harness.store import Stage, Store


class Tally:
    """Counts of a plan's stages while it runs; feed it every event.

    Args:
        plan: The plan that runs.
        store: The store it runs into, looked at once, before the run.
        jobs: Number of workers.
        fallback: Expected seconds for kinds of which no stage is done yet.
        clock: Seconds from any fixed moment.

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
        self._open.pop(event.stage.fingerprint, None)

    def remaining_s(self) -> float:
        """Return the expected seconds until the run ends, from what it has measured so far."""
        durations = self._expected | {
            kind: sum(seconds) / len(seconds) for kind, seconds in self._measured.items()
        }
        chains = self._plan.chains(self._open.values(), durations)
        now = self._clock()
        left = {fingerprint: durations[s.kind] for fingerprint, s in self._open.items()}
        for stage, started in self.running.items():
            spent = min(now - started, durations[stage.kind])
            left[stage.fingerprint] -= spent
            chains[stage.fingerprint] -= spent
        return remaining_s(left.values(), chains.values(), self._jobs)
