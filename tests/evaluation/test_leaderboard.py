"""A leaderboard's file has its columns, and no row of another judge."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest
from published import judgments

from harness.errors import UserError
from harness.evaluation.benchmark import leaderboard
from harness.evaluation.benchmarks.alpaca_eval import ANNOTATORS, AlpacaEval, evaluate_annotations
from harness.evaluation.benchmarks.alpaca_package import LengthControl
from harness.evaluation.benchmarks.arena_hard import ArenaHard
from harness.evaluation.scores import BenchmarkScore, Evaluation


def evaluated(benchmark: str, model: str, wins: list[float], **fields: Any) -> Evaluation:
    values = np.array(wins)
    score = BenchmarkScore(
        benchmark=benchmark,
        model=model,
        scores={"win_rate": float(values.mean())} | fields.pop("scores", {}),
        n=len(wins),
        n_missing=fields.pop("n_missing", 0),
        prompts=tuple(map(str, range(len(wins)))),
        values={"win_rate": values},
    )
    return Evaluation(score, "judge", "judge", **fields)


def test_arena_hard_s_rows_are_in_order_with_their_intervals() -> None:
    low = evaluated("arena_hard", "a", [0.0, 50.0], intervals={"win_rate": (20.0, 31.256)})
    high = evaluated("arena_hard", "b, c", [100.0, 50.0], scores={"answer_tokens": 612.4})
    heading, first, second = csv.reader(leaderboard([low, high]).splitlines())
    assert heading == list(ArenaHard.leaderboard)
    assert first == ["b, c", "75.0", "", "", "", "612.0"]
    assert second == ["a", "25.0", "20.0", "31.26", "(-5.00, +6.26)", ""]


@pytest.mark.parametrize(("missing", "counts"), [(0, ["2", "1", "1"]), (1, ["", "", ""])])
def test_alpaca_eval_s_row_counts_wins_where_all_was_judged(
    missing: int, counts: list[str]
) -> None:
    found = evaluated("alpaca_eval", "a", [100.0, 90.0, 50.0, 0.0], n_missing=missing)
    (row,) = csv.DictReader(leaderboard([found]).splitlines())
    assert tuple(row) == AlpacaEval.leaderboard
    assert [row["n_wins"], row["n_wins_base"], row["n_draws"]] == counts
    assert row["win_rate"] == "60.0"
    assert row["n_total"] == "4"
    assert float(row["standard_error"]) == pytest.approx(np.std([100, 90, 50, 0], ddof=1) / 2)


def test_alpaca_eval_s_rows_are_in_the_order_of_length_controlled_rates() -> None:
    rates = {"a": (90.0, 40.0), "b": (10.0, 60.0)}
    found = [
        evaluated("alpaca_eval", name, [rate], scores={"length_controlled_win_rate": controlled})
        for name, (rate, controlled) in rates.items()
    ]
    assert [row[""] for row in csv.DictReader(leaderboard(found).splitlines())] == ["b", "a"]


PUBLISHED = {
    "gemma-7b-it": "6.937294379677018,0.7869665731853178,50,754,1,805,6.273291925465839,1115",
    "alpaca-7b": "2.591450540223603,0.4870855382635108,17,785,3,805,2.298136645962733,396",
}
"""Rows of the leaderboard of `weighted_alpaca_eval_gpt4_turbo`, up to `avg_length`, less `mode`."""


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_row_of_alpaca_eval_s_leaderboard_is_made_again(model: str) -> None:
    (found,) = evaluate_annotations(judgments.alpaca_eval(model), LengthControl())
    (row,) = csv.DictReader(leaderboard([found]).splitlines())
    names = [name for name in AlpacaEval.leaderboard[1:10] if name != "mode"]
    made = [float(row[name]) for name in names]
    assert made == pytest.approx([float(text) for text in PUBLISHED[model].split(",")], rel=1e-12)


def test_the_columns_are_those_of_the_published_files() -> None:
    """As in lmarena/arena-hard-auto, 31 July 2024, and alpaca_eval 0.6.6."""
    assert ",".join(ArenaHard.leaderboard) == "model,score,rating_q025,rating_q975,CI,avg_tokens"
    assert ",".join(AlpacaEval.leaderboard) == (
        ",win_rate,standard_error,n_wins,n_wins_base,n_draws,n_total,discrete_win_rate,mode,"
        "avg_length,length_controlled_winrate,lc_standard_error"
    )


def test_another_judge_makes_no_row() -> None:
    found = evaluated("alpaca_eval", "a", [100.0])
    other = Evaluation(found.score, "mine", "theirs")
    with pytest.raises(UserError, match="judged by mine"):
        leaderboard([other])


def test_annotators_are_not_mixed() -> None:
    found = evaluated("alpaca_eval", "a", [100.0])
    of = [Evaluation(found.score, judge, ANNOTATORS[0]) for judge in ANNOTATORS]
    assert all(leaderboard([evaluation]) for evaluation in of)
    with pytest.raises(UserError, match="each has a leaderboard of its own"):
        leaderboard(of)


def test_mt_bench_has_no_such_leaderboard() -> None:
    with pytest.raises(UserError, match="is for arena_hard and alpaca_eval"):
        leaderboard([evaluated("mt_bench", "a", [1.0])])
