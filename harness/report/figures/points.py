"""A point of a figure: one number with its interval and the paper's beside it, or why not.

A point is whole or it has no number, as a table's cell is: every seed has to be there, and the
number has to be defined in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from harness.report.model import State
from harness.statistics import mean_over_seeds
from harness.strict import Strict

Quantity = Literal["gain", "mean", "share", "level", "reward", "rank correlation", "count"]

Place = tuple[str, str, str]
"""Panel, series and place on the axis."""


class Spot(Strict):
    """Where a number stands, whether it is there, and the paper's."""

    panel: str
    """What shares axes: a benchmark, a topic."""
    series: str
    """What shares colour and shape: a line, a polygon, a metric."""
    at: str
    """The place on the axis: a bar, an iteration, a category, a bin."""
    quantity: Quantity
    """What it is."""
    unit: str
    """Its unit."""
    state: State = "not_run"
    """Whether there is a number, and why not."""
    done: int = 0
    """Seeds that are there."""
    paper: float | None = None
    """The paper's number."""
    paper_printed: str | None = None
    """The same at the printed precision."""
    reason: str | None = None
    """Why there is no number, where more is known than the state says."""

    @property
    def name(self) -> str:
        """Where it stands, in words."""
        return " / ".join(filter(None, (self.panel, self.series, self.at)))


class Point(Spot):
    """One number of a figure."""

    value: float | None = None
    """The number; None where a seed is missing or it is not defined."""
    low: float | None = None
    """Lower end of its 95% interval; None where there is none."""
    high: float | None = None
    """Upper end."""


class Found(NamedTuple):
    """Whether data are there: a cell's state, the seeds that are, and why others are not."""

    state: State
    done: int
    reason: str | None = None

    @classmethod
    def of(cls, done: int, asked: int) -> Found:
        """Return what is known of data that were published, of which some seeds are there."""
        return cls("ok" if done == asked else "not_run", done)


def seeds_point(
    place: Place, quantity: Quantity, unit: str, found: Found, values: Sequence[float | None]
) -> Point:
    """Return the mean over seeds as a point.

    Args:
        place: Where it stands.
        quantity: What the values are.
        unit: Their unit.
        found: Whether every seed is there.
        values: The value of each seed that is there; None where it is not defined.
    """
    reason, low, mean, high = found.reason, None, None, None
    known = [value for value in values if value is not None]
    if found.state == "ok" and len(known) < len(values):
        reason = f"undefined in {len(values) - len(known)} of {len(values)} seeds"
    elif found.state == "ok":
        mean, low, high = mean_over_seeds(known)
    panel, series, at = place
    return Point(
        panel=panel, series=series, at=at, quantity=quantity, unit=unit,
        state=found.state, done=found.done, reason=reason, value=mean, low=low, high=high,
    )  # fmt: skip
