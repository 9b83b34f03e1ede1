"""Calibration: agreement, position and length, derived by hand."""

import hashlib
import json
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.evaluation.calibration import (
    PUBLISHED,
    Annotation,
    Calibration,
    find,
    measure,
    published_file,
    read_comparisons,
    record_path,
)
from harness.worlds.real.evaluating import verdict_of

PAIRS = [
    Annotation(instruction="", output_1=first, output_2=second, preference=preference)
    for first, second, preference in (
        ("x", "xx", 1.9),  # the second, longer
        ("xxx", "xx", 1.6),  # the second, shorter
        ("x", "x", 1.8),  # the second, equally long
        ("xx", "x", 1.1),  # the first, longer
    )
]


def measured(*verdicts: tuple[float | None, float | None]) -> Calibration:
    return measure("judge", "judge@1", PAIRS, verdicts, ("people", Path(__file__)))


def test_a_judge_that_says_what_was_published_agrees_in_everything() -> None:
    """It leans as they do: of three unequal pairs the longer answer was preferred in two."""
    found = measured((1, 1), (1, 1), (1, 1), (0, 0))
    assert (found.agreement, found.consistent, found.first) == (100.0, 100.0, 50.0)
    assert found.longer == found.longer_published == pytest.approx(200 / 3)
    assert (found.one_side, found.comparisons, found.missing) == (75.0, 4, 0)
    assert (found.low, found.high) == (100.0, 100.0)


def test_a_judge_that_prefers_what_is_shown_first_is_told_by_its_position() -> None:
    """First in order AB is a verdict 0, first in order BA a verdict 1: right in one order each."""
    found = measured((0, 1), (0, 1), (0, 1), (0, 1))
    assert (found.agreement, found.consistent, found.first) == (50.0, 0.0, 100.0)
    assert found.longer == 50.0


def test_a_judge_that_prefers_the_longer_one_is_told_by_length() -> None:
    """Right on a and d, wrong on b, half on the tie c: 2.5 of 4."""
    found = measured((1, 1), (0, 0), (0.5, 0.5), (0, 0))
    assert (found.agreement, found.longer) == (62.5, 100.0)
    assert found.low < 62.5 < found.high


def test_what_has_no_verdict_is_missing_and_one_comparison_is_none() -> None:
    found = measured((1, 1), (None, 1), (1, 1), (0, 0))
    assert (found.comparisons, found.missing, found.agreement) == (3, 1, 100.0)
    with pytest.raises(UserError, match="a verdict on 1 of 4 comparisons"):
        measured((1, 1), (None, 1), (None, None), (0, None))


def test_a_record_is_found_by_its_judge(tmp_path: Path) -> None:
    done = measured((1, 1), (1, 1), (1, 1), (0, 0))
    record_path(tmp_path, "reward:me/judge").write_text(done.model_dump_json())
    assert find(tmp_path, "reward:me/judge") == done
    assert find(tmp_path, "reward:me/other") is None


@pytest.mark.parametrize(
    ("reply", "share"),
    [("[[A]] or rather [[B]]", 1.0), ("[[A]]", 0.0), ("[[C]]", 0.5), ("A", None)],
)
def test_the_last_label_of_a_reply_counts(reply: str, share: float | None) -> None:
    assert verdict_of(reply) == share


def test_ties_and_broken_preferences_are_left_out(tmp_path: Path) -> None:
    rows = [
        {"instruction": "i", "output_1": "a", "output_2": "b", "preference": p, "annotator": "who"}
        for p in (1.0, 1.5, 2.0, None, 3.0)
    ]
    (tmp_path / "file.json").write_text(json.dumps(rows))
    judge, found = read_comparisons(tmp_path / "file.json")
    assert judge == "who"
    assert [one.preference for one in found] == [1.0, 2.0]
    (tmp_path / "ties.json").write_text(json.dumps(rows[1:2]))
    with pytest.raises(UserError, match="has no preference for either output"):
        read_comparisons(tmp_path / "ties.json")
    with pytest.raises(UserError, match="type `harness evaluate fetch alpaca_eval`"):
        published_file(tmp_path / "absent.json")


def test_the_published_comparisons_hold_themselves_in_full(shared_dir: Path) -> None:
    """The judge that gave them agrees in all 805 but five ties, and likes the longer answer."""
    path = shared_dir / "benchmarks/alpaca_eval/FuseChat-Gemma-2-9B-Instruct/annotations.json"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == PUBLISHED.sha256
    judge, pairs = read_comparisons(path)
    verdicts = [(float((one.preference or 0) > 1.5),) * 2 for one in pairs]
    found = measure("itself", "itself", pairs, verdicts, (judge, path))
    assert (found.published_judge, found.agreement) == ("weighted_alpaca_eval_gpt4_turbo", 100.0)
    assert found.comparisons == len(pairs) == 800
    assert found.longer == found.longer_published > 50.0
