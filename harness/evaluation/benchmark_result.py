"""An evaluation: a model's scores on a benchmark, whose judgments they are, and how sure they are.

A score belongs to its judge. The benchmark's own judge fills the benchmark's column; any other
judge fills a column of its own, named `column@judge`, so that the two are never compared by
mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import HarnessError
from harness.evaluation import (
    benchmark_alpaca_eval,
    benchmark_arena_hard,
    benchmark_mt_bench,
    published,
)
from harness.evaluation.alpaca_eval import score_preferences
from harness.evaluation.arena_hard import Battle, bootstrap_interval, score_battles
from harness.evaluation.benchmark_length_control import LengthControl
from harness.evaluation.mt_bench import score_ratings
from harness.evaluation.scores import BenchmarkScore
from harness.statistics.intervals import mean_interval

OWN_JUDGES = {
    benchmark_arena_hard.BENCHMARK: benchmark_arena_hard.OWN_JUDGE,
    benchmark_mt_bench.BENCHMARK: benchmark_mt_bench.OWN_JUDGE,
    benchmark_alpaca_eval.BENCHMARK: benchmark_alpaca_eval.OWN_ANNOTATOR,
}
"""The judge, or for AlpacaEval the annotator, whose scores are the benchmark's."""

BOOTSTRAP_SEED = 0
LENGTH_CONTROLLED = "length_controlled_win_rate"
NOT_AVAILABLE = "not_available"

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """One model's scores under one judge.

    Attributes:
        score: The scores and counts.
        judge: Whose judgments they are; None where the file does not say.
        intervals: Column to lower and upper end of its 95% interval; None where there is none.
        tasks: Column to the task behind it (name, metric, version, shots, documents), where a
            benchmark is made of tasks.
    """

    score: BenchmarkScore
    judge: str | None
    intervals: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, str]:
        """Score to the name of the column it belongs in."""
        own = self.judge in (None, OWN_JUDGES.get(self.score.benchmark, self.judge))
        return {name: name if own else f"{name}@{self.judge}" for name in self.score.scores}

    def details(self) -> dict[str, Any]:
        """Return all there is to say, as JSON data: the scores, their columns and notes."""
        return {**self.as_json(), "columns": self.columns, "notes": dict(self.score.notes)}

    def as_json(self) -> dict[str, Any]:
        """Return the scores as JSON data, as `harness evaluate --json` prints them."""
        score = self.score
        tasks = {column: dict(facts) for column, facts in self.tasks.items()}
        return {
            "benchmark": score.benchmark,
            "model": score.model,
            "judge": self.judge,
            "n": score.n,
            "n_missing": score.n_missing,
            "scores": dict(score.scores),
            "intervals": {c: list(i) if i else None for c, i in self.intervals.items()},
            "per_category": dict(score.per_category),
        } | ({"tasks": tasks} if tasks else {})


def evaluate_battles(
    battles: Sequence[Battle],
    baseline: str,
    judge: str | None,
    prompts: Sequence[str] | None = None,
    answer_tokens: Mapping[str, Mapping[str, int]] | None = None,
) -> list[Evaluation]:
    """Score Arena-Hard battles, one evaluation for each model; intervals resample questions."""
    scores = score_battles(battles, baseline, prompts, answer_tokens)
    return [
        Evaluation(score, judge, _arena_intervals(score, battles, baseline))
        for score in scores.values()
    ]


def evaluate_ratings(
    records: Sequence[Record],
    prompts: Sequence[str] | None = None,
    categories: Mapping[str, str] | None = None,
) -> list[Evaluation]:
    """Score MT-Bench judgments in the benchmark's form, one evaluation for each model and judge."""
    found = []
    for judge, rows in _by_judge(records).items():
        for model, ratings in published.ratings_from_judgments(rows).items():
            score = score_ratings(ratings, model, prompts, categories)
            found.append(Evaluation(score, judge, _intervals(score)))
    return found


def evaluate_judgments(
    records: Sequence[Record],
    baseline: str,
    prompts: Sequence[str] | None = None,
    answer_tokens: Mapping[str, Mapping[str, int]] | None = None,
) -> list[Evaluation]:
    """Score Arena-Hard judgments in the benchmark's form, one for each model and judge."""
    found = []
    for judge, rows in _by_judge(records).items():
        battles = published.battles_from_judgments(rows, baseline)
        found += evaluate_battles(battles, baseline, judge, prompts, answer_tokens)
    return found


def evaluate_annotations(
    records: Sequence[Record],
    length_control: LengthControl,
    instructions: Sequence[str] | None = None,
) -> list[Evaluation]:
    """Score AlpacaEval annotations in the benchmark's form, one for each model and judge.

    Args:
        records: The annotations.
        length_control: Gives the length-controlled win rate, or why there is none.
        instructions: The benchmark's instructions in their order; None where they are not known.

    Raises:
        UserError: A model lacks an annotation, or has one too many.
    """
    found = []
    for judge, rows in _by_judge(records, "annotator").items():
        for model, annotated in _by_model(rows).items():
            ordered = benchmark_alpaca_eval.in_order(annotated, model, instructions)
            preferences = published.preferences_from_annotations(ordered)
            score = score_preferences(preferences[model], model)
            controlled = length_control.values(ordered, instructions)
            if isinstance(controlled, str):
                notes = {**score.notes, LENGTH_CONTROLLED: f"{NOT_AVAILABLE}: {controlled}"}
                score = replace(
                    score, scores={**score.scores, LENGTH_CONTROLLED: None}, notes=notes
                )
            else:
                rate = float(controlled.mean())
                score = replace(
                    score,
                    scores={**score.scores, LENGTH_CONTROLLED: rate},
                    values={**score.values, LENGTH_CONTROLLED: controlled},
                )
            found.append(Evaluation(score, judge, _intervals(score)))
    return found


def _by_model(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(str(record.get("generator_2")), []).append(record)
    return found


def _by_judge(records: Sequence[Record], name: str = "judge") -> dict[str | None, list[Record]]:
    """Return records by judge; MT-Bench's names the prompt beside it."""
    found: dict[str | None, list[Record]] = {}
    for record in records:
        judge = record.get(name)
        judge = judge[0] if isinstance(judge, list) and judge else judge
        found.setdefault(judge if isinstance(judge, str) else None, []).append(record)
    return found


def _intervals(score: BenchmarkScore) -> dict[str, tuple[float, float] | None]:
    """Return the 95% interval of every score over its prompts."""
    found: dict[str, tuple[float, float] | None] = dict.fromkeys(score.scores)
    for column, values in score.values.items():
        if len(values) > 1:
            interval = mean_interval(values[None, :])
            found[column] = (interval.low, interval.high)
    return found


def _arena_intervals(
    score: BenchmarkScore, battles: Sequence[Battle], baseline: str
) -> dict[str, tuple[float, float] | None]:
    found = _intervals(score)
    try:
        found["win_rate"] = bootstrap_interval(battles, score.model, baseline, BOOTSTRAP_SEED)
    except HarnessError:
        # One question alone has no interval.
        found["win_rate"] = None
    return found
