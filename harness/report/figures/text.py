"""The words and figures of a figure: facts, small tables, what was found, what is missing.

Every place holds text. What is missing says what it is (`not run`, `1/3 seeds`, `not available`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from harness.report.figures.point import Point
from harness.report.view import APPLIES_NOT, Block, plain, signed, state_words

DECIMALS: Mapping[str, int] = {
    "level": 2, "reward": 2, "rank correlation": 3, "count": 0
}  # fmt: skip
"""Decimals of quantities that have the same in every unit."""

_HEAD_WIDTH = 14
"""Widest word of a heading before it goes on in a new line."""


def gain_words(unit: str) -> str:
    """Return what a gain is called on an axis, by the unit of what gains."""
    return {"%": "gain (percentage points)", "1-10": "gain (points of 1 to 10)"}.get(unit, "gain")


def counted(seeds: Sequence[int]) -> str:
    """Return how many seeds there are, in words."""
    return "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"


def number(value: float, point: Point) -> str:
    """Return a number of a point's quantity and unit."""
    if point.quantity == "share":
        return f"{100 * value:.1f}%"
    decimals = DECIMALS.get(point.quantity, 1 if point.unit == "%" else 2)
    return signed(value, decimals) if point.quantity == "gain" else f"{value:.{decimals}f}"


def ours(point: Point, seeds: int) -> str:
    """Return our number with half the width of its interval, or why there is none."""
    if point.value is None:
        if point.state == "ok":
            return "undefined"
        return state_words(point.state, point.done, seeds)
    if point.high is None:
        return number(point.value, point)
    half = number(point.high - point.value, point).lstrip("+")
    return f"{number(point.value, point)} ±{half}"


def blocks(points: Sequence[Point], layout: tuple[str | None, str, str], seeds: int) -> list[Block]:
    """Return points as small tables; the paper's numbers stand below ours.

    Args:
        points: The points.
        layout: Which attribute of a point has a table, a row and a column of its own.
        seeds: Number of seeds asked for.
    """
    by_block, by_row, by_column = layout
    titles = dict.fromkeys(getattr(p, by_block) if by_block else "" for p in points)
    found = []
    for title in titles:
        own = [p for p in points if by_block is None or getattr(p, by_block) == title]
        columns = list(dict.fromkeys(getattr(p, by_column) for p in own))
        rows: list[tuple[str, ...]] = []
        for name in dict.fromkeys(getattr(p, by_row) for p in own):
            cells = {getattr(p, by_column): p for p in own if getattr(p, by_row) == name}
            rows.append((plain(name), *(_ours(cells.get(c), seeds) for c in columns)))
            if any(p.paper is not None for p in cells.values()):
                papers = (_papers(cells.get(column)) for column in columns)
                rows.append(("  the paper's", *papers))
        head = tuple(_wrapped(column) for column in columns)
        found.append(Block(plain(title), (), ("", *head), tuple(rows)))
    return found


def _ours(point: Point | None, seeds: int) -> str:
    return APPLIES_NOT if point is None else ours(point, seeds)


def _papers(point: Point | None) -> str:
    if point is None:
        return APPLIES_NOT
    return "not printed" if point.paper is None else point.paper_printed or ""


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(plain(text), _HEAD_WIDTH)) or " "


def missing(points: Sequence[Point], seeds: int) -> list[str]:
    """Return why points have no number, each reason once with the state it explains."""
    reasons: dict[str, str] = {}
    for point in points:
        if point.reason is not None:
            reasons.setdefault(point.reason, state_words(point.state, point.done, seeds)
                               if point.state != "ok" else "undefined")  # fmt: skip
    return [plain(f"{words}: {reason}") for reason, words in reasons.items()]
