"""Scores as a file in the form of a benchmark's own leaderboard, to stand beside its rows.

Arena-Hard and AlpacaEval publish theirs as CSV. What a leaderboard has and these judgments do not
say is left empty. Only the benchmark's own judge makes such a row: another one's scores are another
scale.

Sources: `leaderboard/arena_hard_leaderboard_*.csv` of lmarena/arena-hard-auto (v0.1), and
`alpaca_eval_gpt4_turbo_fn_leaderboard.csv` of tatsu-lab/alpaca_eval.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.errors import UserError
from harness.evaluation.scores import BenchmarkScore, Evaluation

Cell = str | float | int | None

ARENA_HARD = ("model", "score", "rating_q025", "rating_q975", "CI", "avg_tokens", "date")

ALPACA_EVAL = (
    "", "win_rate", "standard_error", "n_wins", "n_wins_base", "n_draws", "n_total",
    "discrete_win_rate", "mode", "avg_length", "length_controlled_winrate", "lc_standard_error",
)  # fmt: skip
"""The first column, the model's name, has no heading there."""


def leaderboard(found: Sequence[Evaluation], date: str) -> str:
    """Return evaluations of one benchmark as its leaderboard's CSV; `date` is the day, ISO.

    Raises:
        UserError: The benchmark has no leaderboard in this form, or another judge than its own
            was asked.
    """
    benchmark = found[0].score.benchmark
    if benchmark not in _ROWS:
        raise UserError(
            f"`--leaderboard` is for arena_hard and alpaca_eval; {benchmark} has none of that form"
        )
    for evaluation in found:
        if any("@" in column for column in evaluation.columns.values()):
            raise UserError(
                f"{evaluation.score.model} was judged by {evaluation.judge}; a leaderboard's rows "
                f"are those of {evaluation.own_judge}: leave out `--leaderboard`"
            )
    headings, row_of = _ROWS[benchmark]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    for evaluation in sorted(found, key=lambda e: -(e.score.scores["win_rate"] or 0.0)):
        row = row_of(evaluation, date)
        writer.writerow("" if row.get(name) is None else row[name] for name in headings)
    return out.getvalue()


def _arena_hard(evaluation: Evaluation, date: str) -> Mapping[str, Cell]:
    score = evaluation.score
    rate, interval = score.scores["win_rate"], evaluation.intervals.get("win_rate")
    row: dict[str, Cell] = {"model": score.model, "score": _rounded(rate, 1), "date": date}
    if rate is not None and interval is not None:
        low, high = interval
        row |= {
            "rating_q025": _rounded(low, 1),
            "rating_q975": _rounded(high, 1),
            "CI": f"({low - rate:+.1f}, {high - rate:+.1f})",
        }
    return row | {"avg_tokens": _rounded(score.scores.get("answer_tokens"), 0)}


def _alpaca_eval(evaluation: Evaluation, date: str) -> Mapping[str, Cell]:
    score = evaluation.score
    row: dict[str, Cell] = {
        "": score.model,
        "win_rate": score.scores["win_rate"],
        "standard_error": _standard_error(score, "win_rate"),
        "n_total": score.n,
        "mode": "community",
        "length_controlled_winrate": score.scores.get("length_controlled_win_rate"),
        "lc_standard_error": _standard_error(score, "length_controlled_win_rate"),
    }
    if score.n_missing:  # then a value by prompt is no preference
        return row
    wins = score.values["win_rate"]
    won, lost = int((wins > 50).sum()), int((wins < 50).sum())
    drawn = len(wins) - won - lost
    return row | {
        "n_wins": won,
        "n_wins_base": lost,
        "n_draws": drawn,
        "discrete_win_rate": 100.0 * (won + drawn / 2) / len(wins),
    }


_ROWS: Mapping[str, tuple[Sequence[str], Callable[[Evaluation, str], Mapping[str, Cell]]]] = {
    "arena-hard": (ARENA_HARD, _arena_hard),
    "alpaca-eval": (ALPACA_EVAL, _alpaca_eval),
}


def _standard_error(score: BenchmarkScore, column: str) -> float | None:
    values = score.values.get(column)
    if values is None or len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _rounded(value: float | None, digits: int) -> float | int | None:
    return None if value is None else round(value, digits or None)
