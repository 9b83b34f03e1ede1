"""What the winner of a sweep scores on the benchmarks, beside the base recipe.

Both are run with seeds that no trial has seen. The numbers are computed from per-prompt scores,
those of the store or those that were published, by the same function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.report.scores import Measured, numbers


@dataclass(frozen=True)
class WinnerScore:
    """What the winner scores: mean and 95% interval, the base recipe's mean, and the gain.

    The gain is None where the winner is the base recipe.
    """

    score: str
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    base: float | None
    gain: float | None
    gain_ci_low: float | None
    gain_ci_high: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the score as JSON data."""
        return asdict(self)


def winner_run(sweep: str) -> str:
    """Return the id of the winner's runs."""
    return f"{sweep}-winner"


def base_run(sweep: str) -> str:
    """Return the id of the base recipe's runs beside a winner that is another recipe."""
    return f"{sweep}-base"


def winner_scores(
    measured: Measured, sweep: str, seeds: Sequence[int], scores: Sequence[str]
) -> list[WinnerScore]:
    """Return what a winner scores on each benchmark.

    Args:
        measured: Per-prompt scores of the winner and, where it is another recipe, of the base.
        sweep: Name of the sweep.
        seeds: The fresh seeds.
        scores: Names of the scores, in the order wanted; those not measured are left out.
    """
    known = {score for _, _, score in measured}
    other = any(run == base_run(sweep) for run, _, _ in measured)
    found = []
    for score in (name for name in scores if name in known):
        base = base_run(sweep) if other else None
        best = numbers(measured, winner_run(sweep), base, seeds, score)
        beside = best if base is None else numbers(measured, base, None, seeds, score)
        found.append(
            WinnerScore(
                score=score,
                mean=best.mean,
                ci_low=best.ci_low,
                ci_high=best.ci_high,
                base=beside.mean,
                gain=best.gain,
                gain_ci_low=best.gain_ci_low,
                gain_ci_high=best.gain_ci_high,
            )
        )
    return found


def again(report: Mapping[str, Any], measured: Measured) -> list[WinnerScore]:
    """Return the benchmark scores of a published sweep, computed again from its scores."""
    order = [row["score"] for row in report["benchmarks"]]
    return winner_scores(measured, report["name"], report["result_seeds"], order)
