"""Group sequential levels against printed ones, their overall error, and seeds that are needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from test_intervals import nested

from harness.errors import HarnessError
from harness.statistics import ScoreMatrix, mean_interval
from harness.statistics.scores import crossed_moments
from harness.statistics.sequential import levels_of_looks, seeds_needed, spent


def test_the_bounds_are_those_of_the_literature() -> None:
    """Five equal looks at 5%, two-sided, the Lan-DeMets form of O'Brien and Fleming.

    Jennison and Turnbull (2000) and the programs of the field give 4.877, 3.357, 2.680, 2.290 and
    2.031 (Reboussin et al. 2000, Controlled Clinical Trials 21).
    """
    levels = levels_of_looks([2, 4, 6, 8, 10], 10, 0.05)
    bounds = [stats.norm.isf(level / 2.0) for level in levels]
    assert bounds == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=2e-3)


def test_one_look_at_the_end_is_the_usual_test() -> None:
    assert levels_of_looks([10], 10, 0.05) == pytest.approx([0.05])
    assert spent(1.0, 0.05) == pytest.approx(0.05)
    # Phi^-1(1 - 0.0125) is 2.2414, twice of which is 4.4828.
    assert spent(0.25, 0.05) == pytest.approx(4.0 * stats.norm.sf(4.4828), rel=1e-3)


@pytest.mark.parametrize(
    ("looks", "most"), [([], 10), ([3, 3], 10), ([5, 3], 10), ([1, 3], 10), ([3, 11], 10)]
)
def test_looks_that_do_not_rise_are_refused(looks: list[int], most: int) -> None:
    with pytest.raises(HarnessError, match="name other numbers of seeds"):
        levels_of_looks(looks, most, 0.05)


REPEATED = 10_000
PROMPTS = 20


def p_values(
    looks: list[int], effect: float, seed_sd: float = 1.0, prompt_sd: float = 0.0
) -> np.ndarray:
    """Return two-sided p-values at each look of crossed differences, as an interval gives them.

    What is drawn is the mean of each seed, of prompts that seeds have in common, and of errors.
    """
    rng = np.random.default_rng(len(looks))
    found = []
    seeds = looks[-1]
    for _ in range(REPEATED // 20):
        shape = (20, seeds, PROMPTS)
        values = effect + seed_sd * rng.normal(size=(20, seeds, 1)) + rng.normal(size=shape)
        values = values + prompt_sd * rng.normal(size=(20, 1, PROMPTS))
        own = []
        for look in looks:
            moments = crossed_moments(values[:, :look])
            distance = np.abs(moments.mean) / np.sqrt(moments.variance)
            own.append(2.0 * stats.t.sf(distance, moments.df))
        found.append(np.stack(own, axis=1))
    return np.concatenate(found)


@pytest.mark.parametrize("looks", [[3, 5, 7, 10], [3, 4, 5, 6, 7, 8, 9, 10], [5, 10]])
@pytest.mark.parametrize("prompt_sd", [0.0, 3.0])
def test_looking_often_errs_no_oftener_than_looking_once(
    looks: list[int], prompt_sd: float
) -> None:
    """No difference: at some look one is called in 5% of cases. At 5% each, in twice as many."""
    p = p_values(looks, 0.0, prompt_sd=prompt_sd)
    levels = levels_of_looks(looks, looks[-1], 0.05)
    overall = (p < np.array(levels)).any(axis=1).mean()
    assert overall <= 0.06
    if prompt_sd == 0.0:
        assert overall >= 0.04
        assert (p < 0.05).any(axis=1).mean() > 0.07


def test_a_difference_that_is_there_is_found_with_fewer_seeds() -> None:
    """Of standard error 1/sqrt(10) with all seeds and size 1.5: found, and mostly early."""
    looks = [3, 5, 7, 10]
    p = p_values(looks, 1.5)
    crossed = p < np.array(levels_of_looks(looks, 10, 0.05))
    assert crossed.any(axis=1).mean() > 0.95
    assert crossed[:, :3].any(axis=1).mean() > 0.5


def matrix(seeds: int, seed_sd: float = 1.0, prompt_sd: float = 0.0) -> ScoreMatrix:
    rng = np.random.default_rng(5)
    values = seed_sd * rng.normal(size=(seeds, 1)) + 0.5 * rng.normal(size=(seeds, 40))
    return ScoreMatrix.of(values + prompt_sd * rng.normal(size=(1, 40)))


def test_with_the_seeds_there_are_what_is_needed_is_what_is_detectable() -> None:
    margin = matrix(4)
    found = mean_interval(margin).detectable(0.05, 0.8)
    assert seeds_needed(margin, found * 1.001, 0.05, 0.8) == 4
    assert seeds_needed(margin, found * 0.999, 0.05, 0.8) == 5


def test_seeds_needed_by_hand() -> None:
    """Seeds alone, of mean square P times 2: the variance of the mean of n is 2 / n.

    Sought is 2: with n = 6, (t[.975, 5] + t[.8, 5]) sqrt(2/6) = (2.571 + 0.920) 0.577 = 2.02; with
    n = 7, (2.447 + 0.906) 0.535 = 1.79.
    """
    values = np.array([[1.0], [-1.0]]) + np.zeros((2, 40)) + 1e-9 * np.arange(40)
    assert seeds_needed(ScoreMatrix.of(values), 2.0, 0.05, 0.8) == 7


def test_what_prompts_add_stays_as_it_was_with_more_seeds() -> None:
    """Two seeds 0.1 to either side, 100 prompts 1 to either side, no error.

    Their mean squares are 2 and 200/99; with n seeds the variance is 2 / (100 n) + 1/99. To find
    0.3 at 2.8 to 2.9 standard errors it has to be 0.0107 to 0.0115, which 12 to 34 seeds give. If
    the prompts' part were twice as large, no number would.
    """
    prompts = np.tile([1.0, -1.0], 50)
    margin = ScoreMatrix.of(np.stack([prompts + 0.1, prompts - 0.1]))
    found: Any = seeds_needed(margin, 0.3, 0.05, 0.8)
    assert 12 <= found <= 34
    assert seeds_needed(margin, 0.27, 0.05, 0.8) is None


def test_what_prompts_add_no_seed_takes_away() -> None:
    margin = matrix(4, prompt_sd=5.0)
    assert seeds_needed(margin, 1.0, 0.05, 0.8) is None
    assert seeds_needed(margin, 20.0, 0.05, 0.8) is not None


def test_prompts_of_each_seeds_own_are_fewer_with_fewer_seeds() -> None:
    rng = np.random.default_rng(2)
    margin = nested(rng.normal(size=(3, 30)).tolist())
    found = mean_interval(margin).detectable(0.05, 0.8)
    assert seeds_needed(margin, found * 1.001, 0.05, 0.8) == 3
    more: Any = seeds_needed(margin, found / 2.0, 0.05, 0.8)
    assert more > 3


def test_seeds_with_prompts_of_their_own_shrink_the_spread_by_the_root_of_their_number() -> None:
    """Seed means 1 and -1, prompts without spread: a standard error of sqrt(2 / n)."""
    margin = nested([[1.0, 1.0], [-1.0, -1.0]])

    def detectable(n: int) -> float:
        quantiles = float(np.sum(stats.t.ppf([0.975, 0.8], n - 1)))
        return quantiles * math.sqrt(2.0 / n)

    by_hand = next(n for n in range(2, 200) if detectable(n) <= 1.0)
    assert seeds_needed(margin, 1.0, 0.05, 0.8) == by_hand


def test_two_looks_err_together_as_often_as_is_allowed() -> None:
    """By integration: the first look errs by itself, the second where the first did not.

    Halfway, the second statistic is the first over sqrt 2 and an increment of variance 1/2.
    """
    bounds = stats.norm.isf(np.array(levels_of_looks([5, 10], 10, 0.05)) / 2.0)

    def second(first: float) -> float:
        ends = (np.array([-1.0, 1.0]) * bounds[1] - first * 0.5**0.5) / 0.5**0.5
        return float(stats.norm.pdf(first) * (stats.norm.cdf(ends[0]) + stats.norm.sf(ends[1])))

    later, _ = integrate.quad(second, -bounds[0], bounds[0], epsabs=1e-10)
    assert 2.0 * stats.norm.sf(bounds[0]) + later == pytest.approx(0.05, abs=1e-9)
