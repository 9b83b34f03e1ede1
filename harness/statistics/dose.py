"""The worth of a gain in human prompts: a score read off the dose-response curve.

The curve is the score of a policy trained on 1, 2, 3, or 6 times as many human prompts, with linear
interpolation in the log dose. A row whose score is on the curve at k is worth k times as many human
prompts; unlike scores, this is comparable across scales.

The interval inverts a test: it contains every k at which the paired difference between row and
curve is not significant. The curve is not extrapolated: outside its doses there is only "less than"
or "more than".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Literal

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError
from harness.statistics.scores import (
    CrossedMoments,
    FloatArray,
    ScoreMatrix,
    crossed_moments,
    student_quantile,
)

STEPS = 400
"""Points on the curve, evenly spaced in log dose, at which a row is compared."""


Side = Literal["above", "below"]


@dataclass(frozen=True)
class Worth:
    """A score's worth in multiples of the human prompts.

    Attributes:
        times: The dose with the same score; None outside the curve.
        low: Lower end of the 95% interval; None below the smallest dose or for a printed score.
        high: Upper end; None above the largest dose or for a printed score.
        smallest: The smallest dose of the curve.
        largest: The largest.
        beyond: The side on which the score is outside the curve, or None.
    """

    times: float | None
    low: float | None
    high: float | None
    smallest: float
    largest: float
    beyond: Side | None = None

    @property
    def text(self) -> str:
        """The dose as text: `2.3x`, or `more than 6x`."""
        if self.beyond == "above":
            return f"more than {self.largest:g}x"
        if self.beyond == "below":
            return f"less than {self.smallest:g}x"
        return f"{self.times:.1f}x"

    @property
    def interval(self) -> str:
        """The interval as text: `1.4x to more than 6x`."""
        below, above = f"less than {self.smallest:g}x", f"more than {self.largest:g}x"
        if self.low == self.largest or self.high == self.smallest:
            return above if self.low == self.largest else below
        low = below if self.low is None else f"{self.low:.1f}x"
        high = above if self.high is None else f"{self.high:.1f}x"
        return f"{low} to {high}"


def on_curve(score: float, curve: Mapping[float, float]) -> float | None:
    """Return the dose at which a curve (scores by dose) has a score, or None outside the curve.

    Raises:
        HarnessError: The curve has fewer than two doses, or does not rise.
    """
    doses = _doses(curve)
    scores = [curve[dose] for dose in doses]
    if any(after <= before for before, after in pairwise(scores)):
        raise HarnessError(
            f"the scores {', '.join(f'{it:.3g}' for it in scores)} do not rise with the dose, so "
            "that nothing can be read off them"
        )
    if not scores[0] <= score <= scores[-1]:
        return None
    return exp(float(np.interp(score, scores, [log(dose) for dose in doses])))


def worth(row: ScoreMatrix, curve: Mapping[float, ScoreMatrix]) -> Worth:
    """Return a row's worth in multiples of the human prompts, with its 95% interval.

    `curve` holds, by dose, the values of policies trained on human prompts alone, with the row's
    seeds and prompts.

    Raises:
        HarnessError: The curve has fewer than two doses or does not rise, there is only one seed,
            or seeds or prompts differ.
    """
    if len(row.seeds) < 2:
        raise HarnessError("One seed says nothing about a recipe; run two seeds or more.")
    doses = _doses(curve)
    means = {dose: curve[dose].mean for dose in doses}
    times = on_curve(row.mean, means)
    side: Side = "above" if row.mean > means[doses[-1]] else "below"
    beyond = side if times is None else None
    grid = np.exp(np.linspace(log(doses[0]), log(doses[-1]), STEPS))
    held = grid[_level(row, curve, doses, grid)]
    if not len(held):
        # The whole interval is outside the curve, as is the score.
        at_end = None if beyond is None else beyond == "above"
        low = doses[-1] if at_end else None
        high = doses[0] if at_end is False else None
        return Worth(times, low, high, doses[0], doses[-1], beyond)
    return Worth(
        times,
        None if held[0] == grid[0] else float(held[0]),
        None if held[-1] == grid[-1] else float(held[-1]),
        doses[0],
        doses[-1],
        beyond,
    )


def _level(
    row: ScoreMatrix,
    curve: Mapping[float, ScoreMatrix],
    doses: Sequence[float],
    grid: FloatArray,
) -> npt.NDArray[np.bool_]:
    """Return at which doses of the grid row and curve do not differ significantly."""
    short = [row.minus(curve[dose]).values for dose in doses]
    found = np.zeros(len(grid), dtype=bool)
    for i, (below, above) in enumerate(pairwise(doses)):
        inside = grid <= above if i == 0 else grid >= below
        share = np.clip(np.log(grid[inside] / below) / log(above / below), 0.0, 1.0)
        moments = _between(short[i], short[i + 1], share)
        half = student_quantile(0.975, moments.df) * np.sqrt(moments.variance)
        found[inside] = np.abs(moments.mean) <= half
    return found


def _between(first: FloatArray, second: FloatArray, share: FloatArray) -> CrossedMoments:
    """Return the moments of values interpolated from the first to the second by each share.

    The mean is linear in the share and the mean squares are quadratic, so three shares suffice.
    """
    ends = crossed_moments(np.stack([first, (first + second) / 2.0, second]))
    lagrange = np.stack(
        [(1 - share) * (1 - 2 * share), 4 * share * (1 - share), share * (2 * share - 1)]
    )
    mean, seed, prompt, error = (
        at @ lagrange for at in (ends.mean, ends.ms_seed, ends.ms_prompt, ends.ms_error)
    )
    # Rounding can make a zero sum of squares slightly negative.
    squares = [np.maximum(square, 0.0) for square in (seed, prompt, error)]
    return CrossedMoments.of(mean, squares, first.shape)


def _doses(curve: Mapping[float, object]) -> list[float]:
    if len(curve) < 2:
        raise HarnessError("a dose-response curve needs two doses or more; run the others")
    return sorted(curve)
