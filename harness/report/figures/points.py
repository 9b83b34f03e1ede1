"""Points of figures, one function a kind: numbers of scores and of prompts, with their intervals.

A score over one category of prompts has it after its name (`mt_avg/coding`). Statistics of prompts
are computed per seed and averaged over seeds. Prompts whose rewards are all equal tie, so that
correlations are given over all prompts and over those with any spread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field

from harness.eva.informativeness import informativeness
from harness.pipeline.runs import FigureRuns
from harness.registry.figures import (
    CorrelationFigure,
    DensitiesFigure,
    GainsFigure,
    IterationsFigure,
    RatingsFigure,
    SharesFigure,
    TopicsFigure,
)
from harness.registry.profile import benchmark_of
from harness.report.cells import Availability, Failures, state_of
from harness.report.figures.data import Floats, PromptData, ScoreData, SeedPrompts
from harness.report.model import State
from harness.report.publication import ByStep
from harness.report.scores import Measured, RunScores, read_wanted
from harness.report.view import NO_PAPER, signed
from harness.runtime import Store
from harness.statistics import spearman
from harness.strict import Strict
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_rows

Quantity = Literal["gain", "mean", "share", "level", "reward", "rank correlation", "count"]


class Point(Strict):
    """One number of a figure, or why there is none."""

    panel: str
    """Points that share axes: a benchmark, a topic."""
    series: str
    """Points that share color and shape: a line, a metric."""
    at: str
    """Position on the axis: an iteration, a category, a bin."""
    quantity: Quantity
    unit: str
    run: str | None = Field(default=None, exclude_if=lambda run: run is None)
    baseline: str | None = Field(default=None, exclude_if=lambda run: run is None)
    score: str = Field(default="", exclude_if=lambda score: not score)
    state: State = "not_run"
    done: int = 0
    paper: float | None = None
    paper_printed: str | None = None
    reason: str | None = None
    """Why there is no number, if more is known than the state says."""
    value: float | None = None
    """None if a seed is missing or it is undefined."""
    low: float | None = None
    high: float | None = None

    @property
    def name(self) -> str:
        return " / ".join(filter(None, (self.panel, self.series, self.at)))

    @property
    def papers(self) -> str:
        return NO_PAPER if self.paper is None else self.paper_printed or ""


# --- Scores: gains, means over iterations, means by category ---

ALL_CATEGORIES = "all categories"
"""Placeholder for the categories while they are unknown, as no run has been judged."""


def stored_scores(
    runs: FigureRuns, store: Store, places: Callable[..., Places]
) -> tuple[ScoreData, list[Point]]:
    """Read a score figure's data from a store; return it with the points, still without numbers."""
    categories = _categories(runs, store)
    placed = list(places(runs, runs.figure, list(dict.fromkeys(categories.values()))))
    wanted = [
        (run_id, seed, point.score.partition("/")[0])
        for ref, point in placed
        for run_id in (point.run, point.baseline)
        for seed in runs.seeds
        if run_id is not None and ref not in runs.lacking
    ]
    measured = read_wanted(runs.runs, wanted, runs.profile, store)
    if categories:
        measured = _by_category(measured, categories)
    failures = Failures(store)
    points = [
        point.model_copy(update=_found(ref, point, runs, measured, failures)._asdict())
        for ref, point in placed
    ]
    # `model_copy` does not validate, which would be slow for this many scores.
    update = {"measured": measured, "stages": _stages(runs, measured)}
    return ScoreData(seeds=runs.seeds).model_copy(update=update), points


def score_points(data: ScoreData, points: Iterable[Point]) -> list[Point]:
    scores, found = RunScores(data.measured, data.seeds), []
    for point in points:
        own = scores.of_gain(point.run, point.baseline, point.score)
        value, low, high = own.mean, own.ci_low, own.ci_high
        if point.quantity == "gain":
            value, low, high = own.gain, own.gain_ci_low, own.gain_ci_high
        # The scores tell whether a number is complete, but not why one is missing.
        state = "ok" if value is not None else point.state if point.state != "ok" else "not_run"
        update = {"state": state, "value": value, "low": low, "high": high}
        found.append(point.model_copy(update=update))
    return found


Places = Iterator[tuple[str, Point]]
"""Points without numbers, each with its row reference."""


def gains(runs: FigureRuns, figure: GainsFigure, _: Sequence[str]) -> Places:
    bars = ((group, *bar) for group, own in figure.groups.items() for bar in own.items())
    for (group, label, ref), name in itertools.product(bars, figure.columns):
        good = _accuracy(ref, runs) if figure.reward_model_accuracy else ""
        table, row = runs.places[ref]
        column, base = table.column(name), table.row(row.baseline or row.id)
        paper = table.paper_gain(row, column)
        known = [r.values[name].decimals for r in (row, base) if name in r.values]
        heading = f"{column.benchmark} · {column.metric.partition(' against ')[0]}"
        yield ref, Point(
            panel=heading, series=group, at=label + good, quantity="gain",
            unit=column.unit, run=row.run_id(column), baseline=base.run_id(column),
            score=column.reads, paper=paper,
            paper_printed=None if paper is None else signed(paper, max(known, default=0)),
        )  # fmt: skip


def iterations(runs: FigureRuns, figure: IterationsFigure, _: Sequence[str]) -> Places:
    lines = ((panel, *line) for panel, own in figure.panels.items() for line in own.items())
    for panel, label, chain in lines:
        for iteration, ref in sorted(chain.items()):
            table, row = runs.places[ref]
            column, printed = table.column(figure.column), row.values.get(figure.column)
            yield ref, Point(
                panel=panel, series=label, at=str(iteration), quantity="mean",
                unit=column.unit, run=row.run_id(column), score=column.reads,
                paper=None if printed is None else printed.value,
                paper_printed=None if printed is None else printed.printed,
            )  # fmt: skip


def ratings(runs: FigureRuns, figure: RatingsFigure, categories: Sequence[str]) -> Places:
    for label, ref in figure.lines.items():
        for name in categories or [ALL_CATEGORIES]:
            yield ref, Point(
                panel="", series=label, at=name, quantity="mean", unit="1-10",
                run=runs.places[ref][1].run,
                score=f"{figure.score}/{name}" if categories else figure.score,
            )  # fmt: skip


def _accuracy(ref: str, runs: FigureRuns) -> str:
    table, row = runs.places[ref]
    role = table.recipe_of(row, table.columns[0]).reward_model
    found = world_of(runs.profile).reward_model_accuracy(role)
    return "" if found is None else f" (accuracy {found:.3f})"


def _categories(runs: FigureRuns, store: Store) -> dict[str, str]:
    """Return each prompt's category, from the first finished judge stage; empty while unknown."""
    figure = runs.figure
    if not isinstance(figure, RatingsFigure):
        return {}
    benchmark = benchmark_of(runs.profile, figure.score)
    judges = [] if benchmark is None else [r.judged[benchmark] for r in runs.runs.values()]
    done = (judge for judge in judges if store.status(judge.fingerprint) == "done")
    if (judge := next(done, None)) is None:
        return {}
    path = store.file(judge.fingerprint, "judgments.parquet")
    if not path.exists() or "category" not in pq.read_schema(path).names:
        return {}
    return {row["prompt_id"]: row["category"] for row in read_rows(path, "prompt_id", "category")}


def _by_category(measured: Measured, categories: Mapping[str, str]) -> Measured:
    parted: Measured = {}
    for (run, seed, score), values in measured.items():
        for prompt, value in values.items():
            key = (run, seed, f"{score}/{categories[prompt]}")
            parted.setdefault(key, {})[prompt] = value
    return parted


def _found(
    ref: str, point: Point, runs: FigureRuns, measured: Measured, failures: Failures
) -> Availability:
    score = point.score.partition("/")[0]
    benchmark = benchmark_of(runs.profile, score)
    if ref in runs.lacking:
        return Availability("not_available", 0, f"{ref}: {runs.lacking[ref]}")
    if benchmark is None:
        return Availability("not_available", 0, f"`{runs.profile.name}` has no score `{score}`")
    every = (
        [runs.runs[run_id, seed] for seed in runs.seeds]
        for run_id in (point.run, point.baseline)
        if run_id is not None
    )
    states = (state_of(own, benchmark, point.score, measured, failures) for own in every)
    # A gain is only as complete as the less complete of its two runs.
    return min(states, key=lambda found: (found.state != "failed", found.done))


def _stages(runs: FigureRuns, measured: Measured) -> ByStep:
    found: ByStep = {}
    for run_id, seed, score in sorted(measured):
        run = runs.runs[run_id, seed]
        name = benchmark_of(runs.profile, score.partition("/")[0])
        if name is not None:
            place = found.setdefault(run.name, {})
            place[f"judge {name}"] = run.judged[name].fingerprint
    return found


# --- Prompts that iterations start from and train on ---

NAMES: Mapping[str, str] = {
    "a_min": "best less worst (A*_min)",
    "a_avg": "best less mean (A*_avg)",
    "a_dis": "best less second best (A*_dis)",
    "var": "variance (var)",
    "mean": "mean (avg)",
    "mean_inv": "mean (1/avg inverts it)",
    "a_min_inv": "best less worst (1/A*_min inverts it)",
    "uniform": "uniform",
}
"""Labels of built-in informativeness metrics in figures."""


def label_of(metric: str) -> str:
    """Return a metric's label; a plug-in's is its name."""
    return NAMES.get(metric, metric)


ALL_TOPICS = "all topics"
"""Placeholder for the topics while none are known."""

TRAINED_SHARE = "share of training prompts"
SUMMARY, HISTOGRAM = "summary", "histogram"

LOW = 0.1
"""Scaled values below this count as low."""

TOLD: tuple[tuple[str, Quantity, Callable[[Floats], float]], ...] = (
    ("at the least value", "share", lambda v: float((v == 0.0).mean())),
    (f"below {LOW:g}", "share", lambda v: float((v < LOW).mean())),
    ("lower quartile", "level", lambda v: float(np.quantile(v, 0.25))),
    ("median", "level", lambda v: float(np.median(v))),
    ("upper quartile", "level", lambda v: float(np.quantile(v, 0.75))),
)
"""Summary statistics of a metric: name, quantity, and function of the scaled values."""

ALL, SPREAD = "all prompts", "prompts with any spread"
RHO, PROMPTS = "Spearman's ρ", "prompts of a seed"
SHARE, MEAN = "share of prompts", "mean reward"


def scaled(values: Floats) -> Floats:
    """Min-max normalize values to [0, 1], as the weights are; all 0 if the values are equal."""
    return np.asarray((values - values.min()) / (float(np.ptp(values)) or 1.0))


SeedValues = Iterator[tuple[str, str, str, Quantity, str, Sequence[float | None]]]
"""Panel, series, axis position, quantity, unit, and the value of each available seed (None if
undefined)."""


def shares(_: SharesFigure, data: PromptData) -> SeedValues:
    for topic in data.topics or (ALL_TOPICS,):
        for iteration in range(1, len(data.found) + 1):
            parts = [part.topics for part in data.of(iteration)]
            values = [topics.count(topic) / len(topics) for topics in parts]
            yield topic, TRAINED_SHARE, str(iteration), "share", "", values


def densities(figure: DensitiesFigure, data: PromptData) -> SeedValues:
    edges = np.linspace(0.0, 1.0, figure.bins + 1)
    for metric in figure.metrics:
        name = label_of(metric)
        seeds = [scaled(informativeness(part.rewards, metric)) for part in data.of()]
        for at, quantity, number in TOLD:
            yield SUMMARY, name, at, quantity, "0-1", [number(values) for values in seeds]
        counts = [np.histogram(values, edges)[0] / len(values) for values in seeds]
        for i, edge in enumerate(edges[:-1]):
            in_bin = [float(seed[i]) for seed in counts]
            yield HISTOGRAM, name, f"{edge:.4g}", "share", "0-1", in_bin


def correlation(figure: CorrelationFigure, data: PromptData) -> SeedValues:
    for series in (ALL, SPREAD):
        pairs = [xy(figure, part, only_spread=series == SPREAD) for part in data.of()]
        rho = [spearman(x.tolist(), y.tolist()) for x, y in pairs]
        yield "", series, RHO, "rank correlation", "", rho
        yield "", series, PROMPTS, "count", "", [float(len(x)) for x, _ in pairs]


def xy(
    figure: CorrelationFigure, part: SeedPrompts, *, only_spread: bool = False
) -> tuple[Floats, Floats]:
    rewards = part.rewards
    if only_spread:
        rewards = rewards[np.ptp(rewards, axis=1) > 0.0]
    if not len(rewards):
        return np.empty(0), np.empty(0)
    return informativeness(rewards, figure.x), informativeness(rewards, figure.y)


def gap_name(figure: TopicsFigure) -> str:
    return f"reward gap: {label_of(figure.gap)}"


def topics(figure: TopicsFigure, data: PromptData) -> SeedValues:
    gaps = [informativeness(part.rewards, figure.gap) for part in data.of()]
    means = [part.rewards.mean(axis=1) for part in data.of()]
    for topic in data.topics or (ALL_TOPICS,):
        chosen = [np.array([t == topic for t in part.topics]) for part in data.of()]
        yield SHARE, SHARE, topic, "share", "", [float(inside.mean()) for inside in chosen]
        for panel, values in ((MEAN, means), (gap_name(figure), gaps)):
            of_topic = [
                float(of_seed[inside].mean()) if inside.any() else None
                for of_seed, inside in zip(values, chosen, strict=True)
            ]
            yield panel, panel, topic, "reward", "reward", of_topic
