"""Calibration: the interval of the paired difference must lie within the tolerance."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.errors import UserError
from harness.evaluation.benchmarks.mt_bench import evaluate_ratings
from harness.evaluation.calibration import choose, compare
from harness.evaluation.scores import Evaluation


def rated(scores: Sequence[float], judge: str = "gpt-4", model: str = "m") -> Evaluation:
    """Return an evaluation in which both turns of question i have rating i."""
    records = [
        {"question_id": i, "model": model, "judge": [judge], "turn": turn, "score": score}
        for i, score in enumerate(scores)
        for turn in (1, 2)
    ]
    (found,) = evaluate_ratings(records)
    return found


def test_the_difference_is_paired_over_questions() -> None:
    """Derivation: differences 0, 0, 1, 1 have mean 0.5 and a standard error of sqrt(1/12).

    That is 0.288675; t with 3 degrees of freedom is 3.182446 at 97.5%, so ± 0.918693.
    """
    found = compare("p", "mt_bench", rated([5, 6, 8, 9]), rated([5, 6, 7, 8]), {}, 1.5)
    assert (found.ours, found.published, found.prompts) == (7.0, 6.5, 4)
    assert found.difference == pytest.approx(0.5)
    assert found.low == pytest.approx(0.5 - 0.918693, abs=1e-5)
    assert found.high == pytest.approx(0.5 + 0.918693, abs=1e-5)
    assert found.passed


@pytest.mark.parametrize(
    ("ours", "tolerance", "passed"),
    [
        ([5, 6, 8, 9], 1.4, False),  # the interval ends at 1.42
        ([5, 6, 7, 8], 0.0, True),  # the same judgments differ by nothing
        ([6, 7, 8, 9], 0.9, False),  # one point more everywhere, without any noise
        ([6, 7, 8, 9], 1.0, True),
        ([4, 5, 6, 7], 0.9, False),  # and one point less
        ([9, 2, 9, 6], 0.3, False),  # no difference on average, and no certainty
    ],
)
def test_a_judge_passes_where_the_whole_interval_lies_within_the_tolerance(
    ours: list[float], tolerance: float, passed: bool
) -> None:
    found = compare("p", "mt_bench", rated(ours), rated([5, 6, 7, 8]), {}, tolerance)
    assert found.passed is passed


def test_the_record_says_who_was_held_against_whom() -> None:
    ours, published = rated([5, 6], "gpt-4o"), rated([5, 6], "gpt-4", "checkpoint")
    found = compare("paper", "mt_bench", ours, published, {"answers": "a"})
    assert (found.judge, found.published_judge, found.model) == ("gpt-4o", "gpt-4", "checkpoint")
    assert (found.column, found.tolerance, found.digests) == ("average", 0.3, {"answers": "a"})


def test_other_questions_or_one_alone_calibrate_nothing() -> None:
    with pytest.raises(UserError, match="3 questions and the published judgments have 2, of whi"):
        compare("p", "mt_bench", rated([5, 6, 7]), rated([5, 6]), {})
    with pytest.raises(UserError, match="One question"):
        compare("p", "mt_bench", rated([5]), rated([5]), {})


def test_a_file_of_several_models_needs_the_name_of_one() -> None:
    both = [rated([5, 6], model="m"), rated([7, 8], model="n")]
    assert choose(both, "n") is both[1]
    assert choose(both[:1], "whatever the answers call it") is both[0]
    with pytest.raises(UserError, match="of m, n, and 0 of them are other's"):
        choose(both, "other")
