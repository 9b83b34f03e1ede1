"""A plan: the distinct stages that a set of target stages needs, inputs before dependants.

Two runs that share a stage share its object's fingerprint, so it is in the plan once. The order is
that of a depth-first walk from the targets in the order given; it depends on nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from harness.store import Stage, State, Store


class Plan:
    """The distinct stages behind some targets, in an order in which they can be computed.

    Args:
        targets: The stages whose outputs are wanted.

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

    def count(self, store: Store) -> dict[str, Counter[State]]:
        """Return how many stages of each kind are in each state, kinds in plan order."""
        counts: dict[str, Counter[State]] = {}
        states = self.states(store)
        for stage in self.stages:
            counts.setdefault(stage.kind, Counter())[states[stage.fingerprint]] += 1
        return counts

    def durations(self, store: Store, fallback: Mapping[str, float]) -> dict[str, float]:
        """Return the expected seconds of one stage of each kind.

        It is the median of the recorded seconds of the plan's done stages of that kind. Other
        stages of the store are not asked, they may be of another scale.

        Args:
            store: Where done stages are recorded.
            fallback: Seconds for kinds of which none is done; a kind absent here counts 1 s.
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

        Args:
            pending: Stages still to be computed, in plan order.
            durations: Expected seconds by kind.
        """
        chains: dict[str, float] = {}
        for stage in reversed(list(pending)):
            after = (chains.get(d.fingerprint, 0.0) for d in self.dependants[stage.fingerprint])
            chains[stage.fingerprint] = durations[stage.kind] + max(after, default=0.0)
        return chains

    def remaining_s(self, store: Store, jobs: int, fallback: Mapping[str, float]) -> float:
        """Return the expected seconds until all is done, without the start of the workers.

        Args:
            store: Where done stages are recorded.
            jobs: Number of workers.
            fallback: Seconds for kinds of which none is done.
        """
        durations = self.durations(store, fallback)
        pending = self.pending(store)
        chains = self.chains(pending, durations)
        return remaining_s((durations[stage.kind] for stage in pending), chains.values(), jobs)


def remaining_s(seconds: Iterable[float], chains: Iterable[float], jobs: int) -> float:
    """Return the least time in which workers can do some work.

    Args:
        seconds: Expected seconds of each stage.
        chains: Seconds of each chain of stages that must follow one another.
        jobs: Number of workers.
    """
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
