"""Variance of a mean over crossed seeds and prompts.

Model, one value per seed s and prompt p, all effects random and independent:

    y[s, p] = mean + seed[s] + prompt[p] + error[s, p]

With S seeds and P prompts the mean squares of the two-way analysis of variance expect

    E MS_seed   = var_error + P var_seed
    E MS_prompt = var_error + S var_prompt
    E MS_error  = var_error

so that the variance of the grand mean, var_seed/S + var_prompt/P + var_error/(S P), is estimated
by (MS_seed + MS_prompt - MS_error) / (S P). This is also the two-way clustered variance.

Two choices are ours, made so that 95% intervals miss a true zero 3 to 7% of the time from three
seeds up, whatever the ratio of the effects (`tests/statistics/test_error_rates.py`):

* The prompts' own part, MS_prompt - MS_error, is cut at zero. The seeds keep their whole mean
  square: with few seeds, MS_seed - MS_error is often negative by chance, and an interval made
  from what is left would be far too short.
* Degrees of freedom: 1/df = w/(S - 1) + (1 - w)/(P - 1), where w is the seeds' share of the
  estimated variance. Satterthwaite's formula has w squared. Plugging an estimated w into it is
  liberal with few seeds, because a seed mean square that is small by chance both shortens the
  interval and raises the degrees of freedom: it misses up to 8% of the time with three seeds.
  The weight to the first power misses 3.4 to 6%.

Sources: Satterthwaite (1946), Biometrics Bulletin 2(6); Clark (1973), The language-as-fixed-effect
fallacy (crossed random subjects and items); Searle, Casella and McCulloch (1992), Variance
Components; Cameron, Gelbach and Miller (2011), Robust inference with multiway clustering.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.statistics.matrix import FloatArray


@dataclass(frozen=True, eq=False)
class CrossedMoments:
    """The mean of a crossed matrix and what is known of its variance.

    Every field has the leading (batch) shape of the values it came from.

    Attributes:
        mean: Grand mean.
        variance: Estimated variance of the grand mean.
        df: Degrees of freedom of that estimate, between the factors' S - 1 and P - 1.
        ms_seed: Mean square of the seeds, drawn towards the prior where there is one.
        ms_prompt: Mean square of the prompts.
        ms_error: Mean square of the interaction and error.
    """

    mean: FloatArray
    variance: FloatArray
    df: FloatArray
    ms_seed: FloatArray
    ms_prompt: FloatArray
    ms_error: FloatArray


@dataclass(frozen=True)
class Prior:
    """What is known of the mean square of the seeds from elsewhere.

    Attributes:
        mean_square: The mean square, in squared units of the values.
        df: How many degrees of freedom it is worth; 0 is nothing.
    """

    mean_square: float = 0.0
    df: float = 0.0


def crossed_moments(values: FloatArray, prior: Prior | None = None) -> CrossedMoments:
    """Estimate the mean over crossed seeds and prompts, and its variance.

    Args:
        values: Shape (..., seeds, prompts), at least two of each; leading axes are a batch.
        prior: What to draw the mean square of the seeds towards, None for nothing
            (`harness.statistics.moderated`).

    Returns:
        The moments, each of shape (...). The degrees of freedom of a variance of zero are those
        of the seeds.
    """
    seeds, prompts = values.shape[-2:]
    mean = values.mean(axis=(-2, -1))
    centred = values - mean[..., None, None]
    seed_effect = centred.mean(axis=-1)
    prompt_effect = centred.mean(axis=-2)
    residual = centred - seed_effect[..., :, None] - prompt_effect[..., None, :]
    ms_seed = prompts * np.square(seed_effect).sum(axis=-1) / (seeds - 1)
    ms_prompt = seeds * np.square(prompt_effect).sum(axis=-1) / (prompts - 1)
    ms_error = np.square(residual).sum(axis=(-2, -1)) / ((seeds - 1) * (prompts - 1))

    squares = CrossedMoments(mean, mean, mean, ms_seed, ms_prompt, ms_error)
    return weighed(squares, seeds, prompts, prior)


def weighed(
    squares: CrossedMoments, seeds: int, prompts: int, prior: Prior | None = None
) -> CrossedMoments:
    """Return moments with the variance and the degrees of freedom that their mean squares make.

    Args:
        squares: The mean and the mean squares; its variance and degrees of freedom are not read.
        seeds: Number of seeds.
        prompts: Number of prompts.
        prior: As in `crossed_moments`.
    """
    mean, ms_seed = squares.mean, squares.ms_seed
    ms_prompt, ms_error = squares.ms_prompt, squares.ms_error
    seed_df = float(seeds - 1)
    if prior is not None:
        seed_df += prior.df
        ms_seed = (prior.df * prior.mean_square + (seeds - 1) * ms_seed) / seed_df
    total = ms_seed + np.maximum(ms_prompt - ms_error, 0.0)
    seed_share = np.divide(ms_seed, total, out=np.ones_like(total), where=total > 0)
    df = 1.0 / (seed_share / seed_df + (1.0 - seed_share) / (prompts - 1))
    variance = total / (seeds * prompts)
    return CrossedMoments(mean, variance, df, ms_seed, ms_prompt, ms_error)
