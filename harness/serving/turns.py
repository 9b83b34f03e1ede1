"""Orders stages to minimize role switches on one GPU (greedily).

A stage's role is the server that it uses, or other GPU work (`train`, `annotate`). Stages of the
loaded role run as long as any are ready. The next role is that of the ready stage with the longest
chain of dependent stages, so a run's final stages, its judgments, are left until nothing else can
run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Stage = TypeVar("Stage", bound=Hashable)


@dataclass(frozen=True)
class Turn(Generic[Stage]):
    """Consecutive stages with one role loaded, or None if they need none."""

    role: str | None
    stages: tuple[Stage, ...]


def turns(
    stages: Sequence[Stage],
    inputs: Callable[[Stage], Iterable[Stage]],
    role: Callable[[Stage], str | None],
) -> list[Turn[Stage]]:
    """Order stages, given in topological order; inputs not among them exist already."""
    place = {stage: number for number, stage in enumerate(stages)}
    wanted = {stage: {each for each in inputs(stage) if each in place} for stage in stages}
    users: dict[Stage, list[Stage]] = {stage: [] for stage in stages}
    behind = dict.fromkeys(stages, 0)
    for stage in reversed(stages):
        for each in wanted[stage]:
            users[each].append(stage)
            behind[each] = max(behind[each], behind[stage] + 1)
    ready: dict[str | None, list[tuple[int, Stage]]] = {}

    def make_ready(stage: Stage) -> None:
        heapq.heappush(ready.setdefault(role(stage), []), (place[stage], stage))

    for stage in stages:
        if not wanted[stage]:
            make_ready(stage)
    order: list[tuple[str | None, list[Stage]]] = []
    loaded: str | None = None
    while any(ready.values()):
        if not ready.get(None) and not ready.get(loaded):
            waited = {who: max(behind[s] for _, s in each) for who, each in ready.items() if each}
            loaded = max(waited, key=lambda who: waited[who])
        name = None if ready.get(None) else loaded
        _, chosen = heapq.heappop(ready[name])
        if not order or order[-1][0] != name:
            order.append((name, []))
        order[-1][1].append(chosen)
        for user in users[chosen]:
            wanted[user].discard(chosen)
            if not wanted[user]:
                make_ready(user)
    return [Turn(name, tuple(each)) for name, each in order]
