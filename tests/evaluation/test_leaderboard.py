"""A leaderboard's file has its columns, and no row of another judge."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest

from harness.errors import UserError
from harness.evaluation.leaderboard import ALPACA_EVAL, ARENA_HARD, leaderboard
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
    low = evaluated("arena-hard", "a", [0.0, 50.0], intervals={"win_rate": (20.0, 31.26)})
    high = evaluated("arena-hard", "b, c", [100.0, 50.0], scores={"answer_tokens": 612.4})
    heading, first, second = csv.reader(leaderboard([low, high], "2026-01-02").splitlines())
    assert heading == list(ARENA_HARD)
    assert first == ["b, c", "75.0", "", "", "", "612", "2026-01-02"]
    assert second == ["a", "25.0", "20.0", "31.3", "(-5.0, +6.3)", "", "2026-01-02"]


@pytest.mark.parametrize(("missing", "counts"), [(0, ["2", "1", "1"]), (1, ["", "", ""])])
def test_alpaca_eval_s_row_counts_wins_where_all_was_judged(
    missing: int, counts: list[str]
) -> None:
    found = evaluated("alpaca-eval", "a", [100.0, 90.0, 50.0, 0.0], n_missing=missing)
    (row,) = csv.DictReader(leaderboard([found], "2026-01-02").splitlines())
    assert tuple(row) == ALPACA_EVAL
    assert [row["n_wins"], row["n_wins_base"], row["n_draws"]] == counts
    assert row["win_rate"] == "60.0"
    assert row["n_total"] == "4"
    assert float(row["standard_error"]) == pytest.approx(np.std([100, 90, 50, 0], ddof=1) / 2)


def test_another_judge_makes_no_row() -> None:
    found = evaluated("alpaca-eval", "a", [100.0])
    other = Evaluation(found.score, "mine", "theirs")
    with pytest.raises(UserError, match="judged by mine"):
        leaderboard([other], "2026-01-02")


def test_mt_bench_has_no_such_leaderboard() -> None:
    with pytest.raises(UserError, match="is for arena_hard and alpaca_eval"):
        leaderboard([evaluated("mt-bench", "a", [1.0])], "2026-01-02")
