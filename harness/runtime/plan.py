"""A plan: the distinct stages that a set of target stages needs, and the order to compute them in.

Two runs that share a stage share its object's fingerprint, so it is in the plan once. The order of
a plan is that of a depth-first walk from the targets, inputs first; it depends on nothing else.

A schedule says which stage is next, and what a failure takes with it. A stage is ready when all its
inputs are done. Of the ready stages the one that begins the longest remaining chain goes first, so
that no worker is left alone with a long chain at the end; ties go by plan order. No number of a
stage depends on it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from statistics import median

from harness.runtime.stage import Stage
from harness.runtime.store import State, Store


class Plan:
    """The distinct stages behind some targets, in an order in which they can be computed.

    Attributes:
        targets: The distinct targets, in the order given.
        stages: All distinct stages, each after its inputs.
        dependants: Stages that take a stage's output as an input, by the stage's fingerprint.
    """

    def __init__(self, targets: Iterable[Stage]) -> None:
        self.targets = tuple({stage.fingerprint: stage for stage in targets}.values())
        self.stages = tuple(_inputs_first(self.targets))
        self.dependants: dict[str, list[Stage]] = {stage.fingerprint: [] for stage in self.stages}
        for stage in self.stages:
            for needed in set(stage.inputs.values()):
                self.dependants[needed.fingerprint].append(stage)

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def states(self, store: Store) -> dict[str, State]:
        """Return the state of each stage by fingerprint, in plan order."""
        return {stage.fingerprint: store.status(stage.fingerprint) for stage in self.stages}

    def pending(self, store: Store) -> tuple[Stage, ...]:
        """Return the stages that are not done, in plan order."""
        states = self.states(store)
        return tuple(stage for stage in self.stages if states[stage.fingerprint] != "done")

    def reclaim(self, store: Store) -> None:
        """Forget what is done without the files that a stage to be computed needs.

        Raises:
            StoreError: The store cannot be read or written.
        """
        for stage in reversed(self.stages):
            if store.status(stage.fingerprint) == "done":
                continue
            for needed in stage.inputs.values():
                if store.released(needed.fingerprint):
                    store.discard(needed.fingerprint)

    def count(self, store: Store) -> dict[str, Counter[State]]:
        """Return how many stages of each kind are in each state, kinds in plan order."""
        counts: dict[str, Counter[State]] = {}
        states = self.states(store)
        for stage in self.stages:
            counts.setdefault(stage.kind, Counter())[states[stage.fingerprint]] += 1
        return counts

    def durations(self, store: Store, fallback: Mapping[str, float]) -> dict[str, float]:
        """Return the expected seconds of one stage of each kind.

        It is the median of the recorded seconds of the plan's done stages of that kind; where none
        is done, that of the fallback, or 1 s. Other stages of the store are not asked, they may be
        of another scale.
        """
        recorded: dict[str, list[float]] = {}
        for stage in self.stages:
            seconds = recorded.setdefault(stage.kind, [])
            if store.status(stage.fingerprint) == "done":
                seconds.append(store.manifest(stage.fingerprint)["wall_s"])
        return {
            kind: median(seconds) if seconds else fallback.get(kind, 1.0)
            for kind, seconds in recorded.items()
        }

    def chains(self, pending: Iterable[Stage], durations: Mapping[str, float]) -> dict[str, float]:
        """Return, for each pending stage, the seconds of the longest chain that begins with it.

        The stages are in plan order, the durations by kind.
        """
        chains: dict[str, float] = {}
        for stage in reversed(list(pending)):
            after = (chains.get(d.fingerprint, 0.0) for d in self.dependants[stage.fingerprint])
            chains[stage.fingerprint] = durations[stage.kind] + max(after, default=0.0)
        return chains

    def remaining_s(self, store: Store, jobs: int, fallback: Mapping[str, float]) -> float:
        """Return the expected seconds until all is done, without the start of the workers."""
        durations = self.durations(store, fallback)
        pending = self.pending(store)
        chains = self.chains(pending, durations)
        return remaining_s((durations[stage.kind] for stage in pending), chains.values(), jobs)


def remaining_s(seconds: Iterable[float], chains: Iterable[float], jobs: int) -> float:
    """Return the least time in which workers can do some work: stages, and chains of stages."""
    return max(sum(seconds) / jobs, max(chains, default=0.0))


def _inputs_first(targets: Iterable[Stage]) -> Iterator[Stage]:
    """Yield each distinct stage once, after its inputs; iterative, since chains can be long."""
    seen: set[str] = set()
    for target in targets:
        walk = [(target, False)]
        while walk:
            stage, inputs_seen = walk.pop()
            if inputs_seen:
                yield stage
            elif stage.fingerprint not in seen:
                seen.add(stage.fingerprint)
                walk.append((stage, True))
                walk.extend((needed, False) for needed in reversed(list(stage.inputs.values())))


class Schedule:
    """The order in which the pending stages of a plan are computed.

    The stages are given in plan order, the expected seconds by kind.
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
        """Settle all that is left, but those stages, started or not; return it in plan order."""
        dropped = [stage for stage in self._unsettled.values() if stage not in but]
        self._unsettled = {stage.fingerprint: stage for stage in but}
        self._ready.clear()
        return dropped

    def _make_ready(self, fingerprint: str) -> None:
        heapq.heappush(self._ready, (self._rank[fingerprint], fingerprint))
