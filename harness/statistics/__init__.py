"""Statistics over per-prompt values of several seeds.

Every score of the harness is a plain mean of per-prompt values, so that one set of tools serves
all benchmarks: a `ScoreMatrix` (seeds x prompts), intervals and paired differences over it that
treat prompts as crossed with seeds, the same for `NestedScores` of prompts that no two seeds share,
and the few comparisons made over rows of a table.
"""

from harness.statistics.comparisons import SignAgreement, holm, sign_agreement, spearman
from harness.statistics.intervals import (
    Difference,
    Interval,
    Scores,
    difference_of_differences,
    mean_interval,
    paired_difference,
)
from harness.statistics.matrix import ScoreMatrix
from harness.statistics.nested import NestedScores
from harness.statistics.seeds import SeedMean, mean_over_seeds
from harness.statistics.spread import Spread
from harness.statistics.variance import CrossedMoments, crossed_moments

__all__ = [
    "CrossedMoments",
    "Difference",
    "Interval",
    "NestedScores",
    "ScoreMatrix",
    "SeedMean",
    "Scores",
    "SignAgreement",
    "Spread",
    "crossed_moments",
    "difference_of_differences",
    "holm",
    "mean_interval",
    "mean_over_seeds",
    "paired_difference",
    "sign_agreement",
    "spearman",
]
