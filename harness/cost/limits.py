"""Limits on what a plan may cost, and whether it keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.cost.pricing import Price
from harness.errors import UserError


@dataclass(frozen=True)
class Limits:
    """What may be spent; None for no limit.

    Attributes:
        gpu_hours: GPU hours.
        usd: dollars to sellers of models.

    Raises:
        UserError: a limit is below 0.
    """

    gpu_hours: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("--max-gpu-hours", self.gpu_hours), ("--budget-usd", self.usd)):
            if value is not None and not 0.0 <= value < float("inf"):
                raise UserError(f"`{option} {value:g}` is no limit; give a number, 0 or more")


def over_limits(price: Price, limits: Limits) -> str | None:
    """Return in a sentence which limits a price passes, or cannot be held against; None if none.

    The estimate itself is compared, not its upper end; a price that equals a limit keeps it.
    """
    reasons = [*_over_hours(price, limits.gpu_hours), *_over_budget(price, limits.usd)]
    return "; ".join(reasons) if reasons else None


def _over_hours(price: Price, limit: float | None) -> Iterator[str]:
    if limit is None:
        return
    if price.unknown:
        yield (
            f"--max-gpu-hours cannot be held, because {'; '.join(price.unknown)}; add its shape to "
            "harness/cost/model_shapes.yaml or leave the limit out"
        )
    elif price.gpu_hours > limit:
        yield (
            f"the plan takes about {price.gpu_hours:,.1f} GPU hours and --max-gpu-hours is "
            f"{limit:,g}; raise it, or ask for fewer rows or seeds"
        )


def _over_budget(price: Price, limit: float | None) -> Iterator[str]:
    if limit is None:
        return
    for call in price.unpriced:
        yield (
            f"--budget-usd needs the price of {call.model}, which is not known; give it in "
            f"HARNESS_{call.role}_PRICE, as dollars for a million tokens in and out (`1.25,5`; "
            "`0,0` for a model of your own)"
        )
    if not price.unpriced and price.usd > limit:
        yield (
            f"the plan costs about ${price.usd:,.2f} and --budget-usd is {limit:,g}; raise it, or "
            "ask for fewer rows or seeds"
        )
