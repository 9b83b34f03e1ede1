"""How far a stage is that works on many prompts at once: told at every twentieth of them."""

from __future__ import annotations

from collections.abc import Callable

from harness.store import StageContext


def marks(ctx: StageContext, name: str, total: int, before: int = 0) -> Callable[[int], None]:
    """Return what tells, at every twentieth of the prompts, that these are done.

    Several prompts can be done at once, so marks are told instead of counts: the curve is then the
    same in every run.

    Args:
        ctx: the stage.
        name: what its curve is called; it goes from 0 to 1.
        total: prompts to do.
        before: prompts that the stage has done before these.
    """
    waiting = sorted({-(-total * mark // 20) for mark in range(1, 21)})

    def done(count: int) -> None:
        while waiting and waiting[0] <= count:
            mark = waiting.pop(0)
            ctx.report(before + mark, {name: mark / total})

    return done
