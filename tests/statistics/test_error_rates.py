"""The error rates the statistics promise, measured on simulated data without any difference.

Two recipes with the same true mean are simulated. Prompt difficulty and seed luck that both share
cancel by pairing; what is left of prompts, seeds and noise differs between them. A 95% interval of
the paired difference should miss the true zero 5% of the time; 3 to 7% is accepted, for every
number of seeds and whatever the mixture of effects.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.statistics import crossed_moments, paired_difference
from harness.statistics.matrix import FloatArray

REPLICATES = 3000
PROMPTS = 40
# What seeds, prompts and noise contribute to the variance of the mean difference.
MIXTURES = {
    "balanced": (1.0, 1.0, 1.0),
    "seed-dominated": (20.0, 1.0, 1.0),
    "seed-leaning": (5.0, 1.0, 1.0),
    "prompt-dominated": (1.0, 20.0, 1.0),
    "prompt-leaning": (1.0, 5.0, 1.0),
    "error-dominated": (0.1, 0.1, 1.0),
    "seeds and prompts alone": (1.0, 1.0, 0.05),
}


def miss_rate(differences: FloatArray) -> float:
    """Return how often the 95% interval leaves out zero; shape (replicates, seeds, prompts)."""
    moments = crossed_moments(differences)
    half = stats.t.ppf(0.975, moments.df) * np.sqrt(moments.variance)
    return float((np.abs(moments.mean) > half).mean())


def normal_pair(
    rng: np.random.Generator, seeds: int, mixture: tuple[float, float, float]
) -> tuple[FloatArray, FloatArray]:
    seed, prompt, error = mixture
    shape = (REPLICATES, seeds, PROMPTS)
    shared = rng.normal(size=(REPLICATES, 1, PROMPTS)) + rng.normal(size=(REPLICATES, seeds, 1))
    sides = []
    for _ in range(2):
        own_seed = np.sqrt(seed * seeds) * rng.normal(size=(REPLICATES, seeds, 1))
        own_prompt = np.sqrt(prompt * PROMPTS) * rng.normal(size=(REPLICATES, 1, PROMPTS))
        noise = np.sqrt(error * seeds * PROMPTS) * rng.normal(size=shape)
        sides.append(shared + own_seed + own_prompt + noise)
    return sides[0], sides[1]


@pytest.mark.parametrize("mixture", MIXTURES.values(), ids=MIXTURES.keys())
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_miss_a_true_zero_three_to_seven_percent_of_the_time(
    seeds: int, mixture: tuple[float, float, float]
) -> None:
    a, b = normal_pair(np.random.default_rng(20 + seeds), seeds, mixture)
    assert 0.03 <= miss_rate(a - b) <= 0.07


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_so_they_do_on_wins_and_losses(seeds: int) -> None:
    """Each entry is a win or a loss, with prompts, seeds and their luck on the logit scale."""
    rng = np.random.default_rng(seeds)
    difficulty = 1.5 * rng.normal(size=(REPLICATES, 1, PROMPTS))
    sides = []
    for _ in range(2):
        own = 0.3 * rng.normal(size=(REPLICATES, seeds, 1))
        skill = 0.5 * rng.normal(size=(REPLICATES, 1, PROMPTS))
        chance = 1.0 / (1.0 + np.exp(-(difficulty + own + skill)))
        sides.append((rng.random((REPLICATES, seeds, PROMPTS)) < chance).astype(np.float64))
    assert 0.03 <= miss_rate(sides[0] - sides[1]) <= 0.07


def test_the_simulation_measures_what_a_paired_difference_reports() -> None:
    a, b = normal_pair(np.random.default_rng(1), 3, MIXTURES["balanced"])
    by_hand = np.mean(
        [not d.low <= 0.0 <= d.high for d in map(paired_difference, a[:300], b[:300])]
    )
    assert by_hand == miss_rate(a[:300] - b[:300])


def test_ignoring_the_crossing_would_fail() -> None:
    """A control: seed means alone, or all entries as independent, do not pass the same bar."""
    a, b = normal_pair(np.random.default_rng(2), 5, MIXTURES["prompt-dominated"])
    difference = a - b
    mean = difference.mean(axis=(1, 2))
    over_seeds = difference.mean(axis=2).std(axis=1, ddof=1) / np.sqrt(5)
    independent = difference.reshape(REPLICATES, -1).std(axis=1, ddof=1) / np.sqrt(5 * PROMPTS)
    assert (np.abs(mean) > stats.t.ppf(0.975, 4) * over_seeds).mean() > 0.2
    assert (np.abs(mean) > 1.96 * independent).mean() > 0.2
