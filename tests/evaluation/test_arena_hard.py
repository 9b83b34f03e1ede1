"""Arena-Hard: verdict labels, weights, the win rate and its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, UserError
from harness.evaluation.benchmarks.arena_hard import (
    Battle,
    Verdict,
    battle,
    bootstrap_interval,
    parse_verdict,
    score_battles,
)

LABELS = ["A>>B", "A>B", "A=B", "B>A", "B>>A"]


@pytest.mark.parametrize("label", LABELS)
def test_each_label_is_read_from_the_text_around_it(label: str) -> None:
    assert parse_verdict(f"So my final verdict is: [[{label}]].") == Verdict(label, retry=False)


def test_the_same_verdict_twice_is_one_and_different_ones_are_none() -> None:
    assert parse_verdict("[[A>B]] ... final: [[A>B]]").label == "A>B"
    assert parse_verdict("not [[A>>B]] but [[A>B]]") == Verdict(None, retry=False)


def test_only_a_text_without_a_verdict_is_worth_asking_again() -> None:
    assert parse_verdict("Assistant A is better: [A>B]") == Verdict(None, retry=True)
    assert parse_verdict("[[A]]") == Verdict(None, retry=False)


def test_the_order_shown_says_who_won() -> None:
    assert battle("q", "base", "model", "B>>A") == Battle("q", "base", "model", "model_b", 3.0)
    assert battle("q", "model", "base", "B>A") == Battle("q", "model", "base", "model_b", 1.0)
    assert battle("q", "model", "base", "A=B") == Battle("q", "model", "base", "tie", 1.0)
    assert battle("q", "model", "base", None).winner is None


def two_prompts() -> list[Battle]:
    return [
        battle("p", "base", "model", "B>>A"),
        battle("p", "model", "base", "A=B"),
        battle("q", "base", "model", "A>B"),
        battle("q", "model", "base", None),
    ]


def test_strong_verdicts_count_three_times_and_ties_half() -> None:
    """Derivation: won 3 + 0.5 + 0 of 3 + 1 + 1 is 3.5 / 5 = 70%.

    Per-prompt values: mean weight 2.5; p: 70 + 100 (3.5 - 0.7 x 4) / 2.5 = 98; q: 70 + 100
    (0 - 0.7) / 2.5 = 42. Their mean is 70.
    """
    score = score_battles(two_prompts(), "base")["model"]
    assert score.scores["win_rate"] == pytest.approx(70.0)
    assert score.by_prompt("win_rate") == pytest.approx({"p": 98.0, "q": 42.0})
    assert (score.n, score.n_missing) == (2, 1)


def test_a_prompt_never_judged_counts_as_two_missing_games_and_moves_nothing() -> None:
    score = score_battles(two_prompts(), "base", prompts=["o", "p", "q"])["model"]
    assert score.scores["win_rate"] == pytest.approx(70.0)
    assert score.by_prompt("win_rate")["o"] == pytest.approx(70.0)
    assert (score.n, score.n_missing) == (2, 3)


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1))
def test_per_prompt_values_average_to_the_win_rate(labels: list[tuple[str, str]]) -> None:
    battles = []
    for i, (first, second) in enumerate(labels):
        battles += [battle(str(i), "base", "model", first), battle(str(i), "model", "base", second)]
    score = score_battles(battles, "base")["model"]
    assert score.values["win_rate"].mean() == pytest.approx(score.scores["win_rate"], abs=1e-9)


def test_answer_lengths_become_a_column() -> None:
    tokens = {"model": {"p": 10, "q": 30}}
    score = score_battles(two_prompts(), "base", answer_tokens=tokens)["model"]
    assert score.scores["answer_tokens"] == 20.0


def test_no_readable_verdict_is_an_error_and_not_a_zero() -> None:
    with pytest.raises(HarnessError, match="None of the 1 verdicts on model"):
        score_battles([battle("p", "base", "model", None)], "base")


def test_a_battle_without_the_baseline_is_an_error() -> None:
    with pytest.raises(UserError, match="not against the baseline gpt"):
        score_battles(two_prompts(), "gpt")


def test_a_prompt_of_another_benchmark_is_an_error() -> None:
    with pytest.raises(UserError, match="1 judged prompts are not in the benchmark"):
        score_battles(two_prompts(), "base", prompts=["p"])


def test_the_interval_resamples_questions_and_not_battles() -> None:
    """Derivation: 100 questions, half won and half lost in all their 6 weighted battles.

    Over questions the standard error is 100 x 0.5 / sqrt(100) = 5, so 95% is about 50 +- 9.8.
    Over 600 battles it would be 50 +- 4.
    """
    battles = [battle(str(i), "base", "model", "B>>A" if i % 2 else "A>>B") for i in range(100)] * 2
    interval = bootstrap_interval(battles, "model", "base", seed=0, rounds=4000)
    assert interval is not None
    low, high = interval
    assert low == pytest.approx(40.2, abs=1.0)
    assert high == pytest.approx(59.8, abs=1.0)


def test_the_bootstrap_agrees_with_the_spread_of_the_per_prompt_values() -> None:
    rng = np.random.default_rng(0)
    battles = [
        battle(str(i), "base", "model", LABELS[rng.integers(5)]) for i in range(400) for _ in (0, 1)
    ]
    values = score_battles(battles, "base")["model"].values["win_rate"]
    error = values.std(ddof=1) / np.sqrt(len(values))
    interval = bootstrap_interval(battles, "model", "base", seed=0, rounds=4000)
    assert interval is not None
    low, high = interval
    assert (high - low) / (2 * 1.96) == pytest.approx(error, rel=0.05)


def test_a_bootstrap_needs_two_questions() -> None:
    assert bootstrap_interval(two_prompts()[:2], "model", "base", seed=0) is None
