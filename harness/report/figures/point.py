"""A point of a figure: one number with its interval and the paper's beside it, or why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from harness.report.model import State

Quantity = Literal["gain", "mean", "share", "level", "reward", "rank correlation", "count"]


@dataclass(frozen=True)
class Point:
    """One number of a figure. Where it is drawn is said by `panel`, `series` and `at`.

    Attributes:
        panel: What shares axes: a benchmark, a topic.
        series: What shares colour and shape: a line, a polygon, a metric.
        at: The place on the axis: a bar, an iteration, a category, a bin.
        quantity: What it is.
        unit: Its unit.
        state: Whether there is a number, and why not.
        done: Seeds that are there.
        value: The number; None where a seed is missing or it is not defined.
        low: Lower end of its 95% interval; None where there is none.
        high: Upper end.
        paper: The paper's number.
        paper_printed: The same at the printed precision.
        reason: Why there is no number, where more is known than the state says.
    """

    panel: str
    series: str
    at: str
    quantity: Quantity
    unit: str
    state: State
    done: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    paper_printed: str | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the point as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Point:
        """Return the point that `as_json` wrote."""
        return cls(**data)


@dataclass(frozen=True)
class Found:
    """Whether data are there.

    Attributes:
        state: As a cell's.
        done: Seeds that are there.
        reason: Why they are not there, where more is known than the state says.
    """

    state: State
    done: int
    reason: str | None = None


def seeds_point(
    place: tuple[str, str, str],
    quantity: Quantity,
    unit: str,
    found: Found,
    values: Sequence[float | None],
) -> Point:
    """Return the mean over seeds as a point.

    Args:
        place: Panel, series and place on the axis.
        quantity: What the values are.
        unit: Their unit.
        found: Whether every seed is there.
        values: The value of each seed that is there; None where it is not defined.
    """
    point = Point(*place, quantity, unit, found.state, found.done, reason=found.reason)
    if found.state != "ok":
        return point
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return replace(
            point, reason=f"undefined in {len(values) - len(known)} of {len(values)} seeds"
        )
    from harness.statistics import mean_over_seeds

    mean = mean_over_seeds(known)
    return replace(point, value=mean.mean, low=mean.low, high=mean.high)
