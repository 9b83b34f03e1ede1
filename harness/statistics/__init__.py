"""Statistics over per-prompt values of several seeds.

Every score of the harness is a plain mean of per-prompt values, so that one set of tools serves
all benchmarks: the values themselves (`scores`), means and paired differences with their intervals
(`intervals`), what is said over rows of a table (`comparisons`), what a gain is worth in human
prompts (`dose`), and how far apart two sets of prompts are (`distance`).
"""

from harness.statistics.comparisons import (
    conjunction,
    holm,
    rank_agreement,
    rank_correlation,
    share_interval,
    sign_agreement,
    spearman,
)
from harness.statistics.intervals import (
    Interval,
    mean_interval,
    mean_over_seeds,
    paired_difference,
    seed_prior,
)
from harness.statistics.scores import NestedScores, Prior, ScoreMatrix, Scores, weighted_sum

__all__ = [
    "Interval",
    "NestedScores",
    "Prior",
    "ScoreMatrix",
    "Scores",
    "conjunction",
    "holm",
    "mean_interval",
    "mean_over_seeds",
    "paired_difference",
    "rank_agreement",
    "rank_correlation",
    "seed_prior",
    "share_interval",
    "sign_agreement",
    "spearman",
    "weighted_sum",
]
