"""What a segment of an online run does, counted step by step without a model.

The phases are those of `harness.eva.stream`: the buffer is filled, mixed with human prompts, and
then lives of its own rewrites. Every rewrite is taken to be usable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from harness.eva.minibatch import StreamSettings


@dataclass(frozen=True)
class Stretch:
    """What some steps do.

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
    """Return what the steps `first` to `last` of a run do, counted from 1.

    Args:
        s: how mini-batches are made.
        x: human prompts.
        first: the first step.
        last: the last step.
        evolves: whether there is a creator.
    """
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
