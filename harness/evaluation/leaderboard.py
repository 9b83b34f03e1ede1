"""Scores as a file in the form of a benchmark's own leaderboard, to stand beside its rows.

Arena-Hard and AlpacaEval publish theirs as CSV. What a leaderboard has and these judgments do not
say is left empty. Only the benchmark's own judge makes such a row: another one's scores are another
scale. AlpacaEval has a leaderboard for each of its annotators.

Sources: `leaderboard/arena_hard_leaderboard_20240731.csv` of lmarena/arena-hard-auto (v0.1), and
`weighted_alpaca_eval_gpt4_turbo_leaderboard.csv` of tatsu-lab/alpaca_eval, with its
`metrics/helpers.py` and `metrics/glm_winrate.py` (both standard errors, order of the rows).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.errors import UserError
from harness.evaluation.benchmarks.alpaca_eval import ANNOTATORS, BENCHMARK, LENGTH_CONTROLLED
from harness.evaluation.scores import BenchmarkScore, Evaluation

Cell = str | float | int | None

ARENA_HARD = ("model", "score", "rating_q025", "rating_q975", "CI", "avg_tokens")

ALPACA_EVAL = (
    "", "win_rate", "standard_error", "n_wins", "n_wins_base", "n_draws", "n_total",
    "discrete_win_rate", "mode", "avg_length", "length_controlled_winrate", "lc_standard_error",
)  # fmt: skip
"""The first column, the model's name, has no heading there."""


def leaderboard(found: Sequence[Evaluation]) -> str:
    """Return evaluations of one benchmark as its leaderboard's CSV, the best first.

    Raises:
        UserError: The benchmark has no leaderboard in this form, or none of this judge.
    """
    benchmark = found[0].score.benchmark
    if benchmark not in _ROWS:
        raise UserError(
            f"`--leaderboard` is for arena_hard and alpaca_eval; {benchmark} has none of that form"
        )
    for evaluation in found:
        if not _has_leaderboard(evaluation):
            raise UserError(
                f"{evaluation.score.model} was judged by {evaluation.judge}; a leaderboard's rows "
                f"are those of {evaluation.own_judge}: leave out `--leaderboard`"
            )
    judges = dict.fromkeys(str(evaluation.judge) for evaluation in found)
    if len(judges) > 1:
        raise UserError(
            f"these scores are of the judges {' and '.join(judges)}, and each has a leaderboard of "
            "its own: score a file with the judgments of one"
        )
    headings, row_of = _ROWS[benchmark]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    for evaluation in sorted(found, key=_rank, reverse=True):
        row = row_of(evaluation)
        writer.writerow("" if row.get(name) is None else row[name] for name in headings)
    return out.getvalue()


def _has_leaderboard(evaluation: Evaluation) -> bool:
    """Return whether a judge is the benchmark's own, or an annotator with a leaderboard."""
    own = not any("@" in column for column in evaluation.columns.values())
    return own or (evaluation.score.benchmark == BENCHMARK and evaluation.judge in ANNOTATORS)


def _rank(evaluation: Evaluation) -> tuple[float, float]:
    """Return what rows are ordered by: AlpacaEval's by its length-controlled win rate."""
    scores = evaluation.score.scores
    return scores.get(LENGTH_CONTROLLED) or 0.0, scores["win_rate"] or 0.0


def _arena_hard(evaluation: Evaluation) -> Mapping[str, Cell]:
    score = evaluation.score
    rate, interval = score.scores["win_rate"], evaluation.intervals.get("win_rate")
    tokens = score.scores.get("answer_tokens")
    row: dict[str, Cell] = {
        "model": score.model,
        "score": _rounded(rate, 2),
        "avg_tokens": None if tokens is None else float(round(tokens)),
    }
    if rate is None or interval is None:
        return row
    low, high = interval
    return row | {
        "rating_q025": _rounded(low, 2),
        "rating_q975": _rounded(high, 2),
        "CI": f"(-{rate - low:.2f}, +{high - rate:.2f})",
    }


def _alpaca_eval(evaluation: Evaluation) -> Mapping[str, Cell]:
    score = evaluation.score
    row: dict[str, Cell] = {
        "": score.model,
        "win_rate": score.scores["win_rate"],
        "standard_error": _standard_error(score, "win_rate"),
        "n_total": score.n,
        "mode": "community",
        "avg_length": None if evaluation.characters is None else int(evaluation.characters),
        "length_controlled_winrate": score.scores.get(LENGTH_CONTROLLED),
        "lc_standard_error": _standard_error(score, LENGTH_CONTROLLED),
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


_ROWS: Mapping[str, tuple[Sequence[str], Callable[[Evaluation], Mapping[str, Cell]]]] = {
    "arena_hard": (ARENA_HARD, _arena_hard),
    "alpaca_eval": (ALPACA_EVAL, _alpaca_eval),
}


def _standard_error(score: BenchmarkScore, column: str) -> float | None:
    values = score.values.get(column)
    if values is None or len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
