"""The schedule: which stage is next, and what a failure takes with it.

A stage is ready when all its inputs are done. Of the ready stages the one that begins the longest
remaining chain goes first, so that no worker is left alone with a long chain at the end; ties go
by plan order. Nothing here touches a process or a disk, and no number of a stage depends on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping

from harness.engine.plan import Plan
from harness.store import Stage


class Schedule:
    """The order in which the pending stages of a plan are computed.

    Args:
        plan: The plan.
        pending: Its stages that are not done, in plan order.
        durations: Expected seconds by kind.
    """

    def __init__(
        self, plan: Plan, pending: Iterable[Stage], durations: Mapping[str, float]
    ) -> None:
        self._plan = plan
        self._unsettled = {stage.fingerprint: stage for stage in pending}
        chains = plan.chains(self._unsettled.values(), durations)
        self._rank = {
            fingerprint: (-chains[fingerprint], position)
            for position, fingerprint in enumerate(self._unsettled)
        }
        self._waits_for = {
            fingerprint: {needed.fingerprint for needed in stage.inputs.values()}
            & self._unsettled.keys()
            for fingerprint, stage in self._unsettled.items()
        }
        self._ready: list[tuple[tuple[float, int], str]] = []
        for fingerprint, waits_for in self._waits_for.items():
            if not waits_for:
                self._make_ready(fingerprint)

    @property
    def ready(self) -> int:
        """How many stages could be started now."""
        return len(self._ready)

    def take(self) -> Stage:
        """Return the next ready stage; there must be one."""
        return self._unsettled[heapq.heappop(self._ready)[1]]

    def finish(self, stage: Stage) -> None:
        """Settle a stage that is done; its dependants may become ready."""
        del self._unsettled[stage.fingerprint]
        for dependant in self._plan.dependants[stage.fingerprint]:
            waits_for = self._waits_for.get(dependant.fingerprint)
            if waits_for is not None and dependant.fingerprint in self._unsettled:
                waits_for.discard(stage.fingerprint)
                if not waits_for:
                    self._make_ready(dependant.fingerprint)

    def fail(self, stage: Stage) -> list[Stage]:
        """Settle a stage that failed and all that need it; return the latter in plan order."""
        del self._unsettled[stage.fingerprint]
        lost = {stage.fingerprint}
        dropped = []
        for candidate in list(self._unsettled.values()):
            if any(needed.fingerprint in lost for needed in candidate.inputs.values()):
                lost.add(candidate.fingerprint)
                dropped.append(self._unsettled.pop(candidate.fingerprint))
        return dropped

    def put_back(self, stage: Stage) -> None:
        """Let a stage that was taken be ready again."""
        self._make_ready(stage.fingerprint)

    def drop_all(self, *, but: Collection[Stage] = ()) -> list[Stage]:
        """Settle whatever is left, started or not, and return it in plan order.

        Args:
            but: Started stages that are to be settled one by one.
        """
        dropped = [stage for stage in self._unsettled.values() if stage not in but]
        self._unsettled = {stage.fingerprint: stage for stage in but}
        self._ready.clear()
        return dropped

    def _make_ready(self, fingerprint: str) -> None:
        heapq.heappush(self._ready, (self._rank[fingerprint], fingerprint))
