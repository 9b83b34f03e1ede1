"""Statistics over per-prompt values of several seeds.

Every score in the harness is a plain mean of per-prompt values, so one set of tools serves all
benchmarks: the values (`scores`), intervals of means and paired differences (`intervals`),
comparisons across rows (`comparisons`), and the distance between two sets of prompts (`distance`).
"""

from harness.statistics.comparisons import (
    conjunction,
    holm,
    rank_agreement,
    rank_correlation,
    sign_agreement,
    spearman,
)
from harness.statistics.intervals import Interval, mean_interval, mean_over_seeds, paired_difference
from harness.statistics.scores import NestedScores, ScoreMatrix, Scores, weighted_sum

__all__ = [
    "Interval",
    "NestedScores",
    "ScoreMatrix",
    "Scores",
    "conjunction",
    "holm",
    "mean_interval",
    "mean_over_seeds",
    "paired_difference",
    "rank_agreement",
    "rank_correlation",
    "sign_agreement",
    "spearman",
    "weighted_sum",
]
