"""How many prompts a stage works on, read off the graph; of an online run, step by step.

Numbers are what a run makes when nothing is dropped: every rewrite usable, no tie left out. What is
drawn from a mixture of human and evolved prompts has the mixture's shares. The phases of an online
run are those of `harness.eva.stream`: the buffer is filled, mixed with human prompts, and then
lives of its own rewrites.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

from harness.eva.mixing import evolved_count
from harness.eva.selection import selected_count
from harness.eva.stream import StreamSettings
from harness.runtime.stage import Stage

FIRST_INPUT = {
    "generate": "prompts",
    "annotate": "completions",
    "evolve": "selected",
    "rewrite": "pairs",
    "train": "pairs",
    "rate": "prompts",
    "topics": "prompts",
}
"""The input whose prompts a kind of stage works on, one by one."""


@dataclass(frozen=True)
class Prompts:
    """So many prompts of people, and so many that a creator wrote."""

    human: int
    evolved: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.human + self.evolved

    def drawn(self, count: int) -> Prompts:
        """Return so many of them, in the same shares."""
        evolved = round(count * self.evolved / self.total) if self.total else 0
        return Prompts(count - evolved, evolved)


class Sizes:
    """The prompts of stages, each counted once."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[str, Prompts] = {}

    def of(self, stage: Stage) -> Prompts:
        """Return the prompts that a stage yields, or works on where it yields none.

        Raises:
            KeyError: it is of a kind that has no prompts.
        """
        found = self._known.get(stage.fingerprint)
        if found is None:
            found = self._known[stage.fingerprint] = self._count(stage)
        return found

    def _count(self, stage: Stage) -> Prompts:
        s, inputs = stage.settings, stage.inputs
        if stage.kind in FIRST_INPUT and stage.kind != "evolve":
            return self.of(inputs[FIRST_INPUT[stage.kind]])
        match stage.kind:
            case "prompts":
                return Prompts(cast(int, s["count"]))
            case "select":
                before = self.of(inputs["prompts"])
                return before.drawn(selected_count(before.total, cast(float, s["fraction"])))
            case "evolve":
                return Prompts(0, self.of(inputs["selected"]).total * cast(int, s["evolutions"]))
            case "pair":
                return self.of(inputs["only"] if "only" in inputs else inputs["completions"])
            case "mix":
                size = cast(int, s["size"])
                evolved = evolved_count(size, cast(float, s["evolved_share"]))
                base = self.of(inputs["base"]).drawn(size - evolved)
                return Prompts(base.human, base.evolved + evolved)
            case "join":
                parts = [self.of(before) for before in inputs.values()]
                return Prompts(sum(p.human for p in parts), sum(p.evolved for p in parts))
            case "repeat":
                return self.of(inputs["pairs"]).drawn(cast(int, s["size"]))
        raise KeyError(stage.kind)


def base_policy(stage: Stage) -> str:
    """Return the identity of the model that a stage's policy was trained from."""
    while "policy" not in stage.settings:
        stage = stage.inputs["policy"]
    return str(stage.settings["policy"])


@dataclass(frozen=True)
class Stretch:
    """What some steps of an online run do.

    Attributes:
        steps: optimiser steps.
        trained: prompts trained on.
        children: rewrites that were asked for.
        scored: prompts rolled out only to be scored: rewrites on entering, the buffer anew.
        judged: candidates of best-of-n trees that a scorer reads.
    """

    steps: int
    trained: int
    children: int = 0
    scored: int = 0
    judged: int = 0


def count_steps(s: StreamSettings, x: int, first: int, last: int, *, evolves: bool) -> Stretch:
    """Return what the steps `first` to `last` of a run do, counted from 1, with x human prompts."""
    steps = last - first + 1
    trained = steps * s.minibatch
    if not evolves:
        return Stretch(steps, trained)
    children, scored = _cumulated(s, x, last)
    if first > 1:
        before_children, before_scored = _cumulated(s, x, first - 1)
        children, scored = children - before_children, scored - before_scored
    asked = children * (s.tree_depth if s.shape == "tree" else 1)
    return Stretch(steps, trained, asked, scored, asked - children)


@cache
def _cumulated(s: StreamSettings, x: int, last: int) -> tuple[int, int]:
    """Return the rewrites that entered the buffer by a step, and the prompts scored for it."""
    buffer = used = children = scored = 0
    phase = "warm-up"
    for step in range(1, last + 1):
        if phase == "warm-up":
            full = buffer >= s.capacity
            over = full if s.warm_up_steps is None else step > s.warm_up_steps
            phase = "mix-up" if over else phase
        if used >= x:
            phase = "bootstrap"
        wanted = {"bootstrap": 0, "mix-up": s.minibatch - s.from_buffer}.get(phase, s.minibatch)
        human = min(wanted, x - used)
        used += human
        buffer -= min(s.minibatch - human, buffer)
        new = s.evolved * (s.n_new_bootstrap if phase == "bootstrap" else s.n_new)
        if phase == "bootstrap" and buffer + new < s.minibatch:
            new = s.minibatch * s.n_new_bootstrap  # the others of the mini-batch as well
        entering = new + (human if s.buffer_holds == "evolved_and_human" else 0)
        buffer = min(s.capacity, buffer + entering)
        children += new
        scored += new if s.child_score == "rollout" else 0
        if s.rescore_every is not None and step % s.rescore_every == 0:
            scored += buffer
    return children, scored
