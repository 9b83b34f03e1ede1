"""Points of figures: what each kind of figure shows of scores, and of single prompts.

A point is one number with its interval and the paper's beside it, or why not. It is whole or it has
no number, as a table's cell is. Points of a score say which runs they are computed from, and their
numbers are those of a table (`harness.report.scores.numbers`); a score of one category of a
benchmark's prompts has the category behind its name (`mt_avg/coding`).

A number of prompts is taken in each seed and averaged over the seeds. Prompts whose rewards are all
equal tie; a correlation is therefore given over all prompts and over those with any spread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from harness.eva.informativeness import informativeness
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
from harness.report.cells import Failures, state_of
from harness.report.figures.data import (
    Floats,
    Found,
    PromptData,
    ScoreData,
    SeedPrompts,
    Stages,
)
from harness.report.parts import State
from harness.report.scores import (
    Measured,
    Numbers,
    RunScores,
    read_wanted,
)
from harness.report.view import signed
from harness.runtime import Store
from harness.statistics import spearman
from harness.strict import Strict
from harness.worlds.stage_io import read_rows

if TYPE_CHECKING:
    from harness.pipeline.runs import FigureRuns

Quantity = Literal["gain", "mean", "share", "level", "reward", "rank correlation", "count"]


class Point(Strict):
    """One number of a figure, or why there is none."""

    panel: str
    """What shares axes: a benchmark, a topic."""
    series: str
    """What shares colour and shape: a line, a polygon, a metric."""
    at: str
    """The place on the axis: a bar, an iteration, a category, a bin."""
    quantity: Quantity
    unit: str
    run: str | None = Field(default=None, exclude_if=lambda run: run is None)
    """Of a score: the run behind it; absent where its row has no single one."""
    baseline: str | None = Field(default=None, exclude_if=lambda run: run is None)
    """The run that a gain is over; absent for other quantities."""
    score: str = Field(default="", exclude_if=lambda score: not score)
    """The per-prompt score; absent where it is computed from none."""
    state: State = "not_run"
    """Whether there is a number, and why not."""
    done: int = 0
    paper: float | None = None
    paper_printed: str | None = None
    """The same at the printed precision."""
    reason: str | None = None
    """Why there is no number, where more is known than the state says."""
    value: float | None = None
    """The number; None where a seed is missing or it is not defined."""
    low: float | None = None
    """Lower end of its 95% interval; None where there is none."""
    high: float | None = None

    @property
    def name(self) -> str:
        return " / ".join(filter(None, (self.panel, self.series, self.at)))

    @property
    def papers(self) -> str:
        return "not printed" if self.paper is None else self.paper_printed or ""


# --- Scores: gains, means over iterations, means by category ---

ALL_CATEGORIES = "all categories"
"""Stands for the categories while no run has been judged and none is known."""


def stored_scores(
    runs: FigureRuns, store: Store, places: Callable[..., Places]
) -> tuple[ScoreData, list[Point]]:
    """Return what a figure of scores shows, as a store has it, and its points without numbers."""
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
    # The scores are as they were read; to check every one of them again would take time.
    update = {"measured": measured, "stages": _stages(runs, measured)}
    return ScoreData(seeds=runs.seeds).model_copy(update=update), points


def score_points(data: ScoreData, points: Iterable[Point]) -> list[Point]:
    points = list(points)
    compared: dict[str, list[tuple[str, str]]] = {}
    for point in points:
        if point.run is not None and point.baseline is not None:
            compared.setdefault(point.score, []).append((point.run, point.baseline))
    scores = RunScores(data.measured, data.seeds)
    priors = {score: scores.gain_priors(pairs, score) for score, pairs in compared.items()}
    found = []
    for point in points:
        own, prior = Numbers(), priors.get(point.score)
        if point.run is not None:
            own = scores.of_gain(point.run, point.baseline, point.score, prior)
        value, low, high = own.mean, own.ci_low, own.ci_high
        if point.quantity == "gain":
            value, low, high = own.gain, own.gain_ci_low, own.gain_ci_high
        # Whether a number is whole follows from the scores; why another is not does not.
        state = "ok" if value is not None else point.state if point.state != "ok" else "not_run"
        update = {"state": state, "value": value, "low": low, "high": high}
        found.append(point.model_copy(update=update))
    return found


Places = Iterator[tuple[str, Point]]
"""Points without numbers, each with the reference of its row."""


def gains(runs: FigureRuns, figure: GainsFigure, _: Sequence[str]) -> Places:
    for group in figure.groups:
        for bar, name in itertools.product(group.bars, figure.columns):
            good = _accuracy(bar.row, runs) if figure.reward_model_accuracy else ""
            table, row = runs.places[bar.row]
            column, base = table.column(name), table.row(row.baseline or row.id)
            paper = table.paper_gain(row, column)
            known = (r.values[name].decimals for r in (row, base) if name in r.values)
            heading = f"{column.benchmark} · {column.metric.partition(' against ')[0]}"
            yield bar.row, Point(
                panel=heading, series=group.title, at=bar.label + good, quantity="gain",
                unit=column.unit, run=row.run_id(column), baseline=base.run_id(column),
                score=column.reads, paper=paper,
                paper_printed=None if paper is None else signed(paper, max(known, default=0)),
            )  # fmt: skip


def iterations(runs: FigureRuns, figure: IterationsFigure, _: Sequence[str]) -> Places:
    for panel, line in ((it, line) for it in figure.panels for line in it.lines):
        for iteration, ref in sorted(line.rows.items()):
            table, row = runs.places[ref]
            column, printed = table.column(figure.column), row.values.get(figure.column)
            yield ref, Point(
                panel=panel.title, series=line.label, at=str(iteration), quantity="mean",
                unit=column.unit, run=row.run_id(column), score=column.reads,
                paper=None if printed is None else printed.value,
                paper_printed=None if printed is None else printed.printed,
            )  # fmt: skip


def ratings(runs: FigureRuns, figure: RatingsFigure, categories: Sequence[str]) -> Places:
    for polygon in figure.polygons:
        run = runs.places[polygon.row][1].run
        for name in categories or [ALL_CATEGORIES]:
            score = f"{figure.score}/{name}" if categories else figure.score
            yield polygon.row, Point(
                panel="", series=polygon.label, at=name, quantity="mean", unit="1-10",
                run=run, score=score,
            )  # fmt: skip


def _accuracy(ref: str, runs: FigureRuns) -> str:
    from harness.worlds.lookup import world_of

    table, row = runs.places[ref]
    role = table.recipe_of(row, table.columns[0]).reward_model
    found = world_of(runs.profile).reward_model_accuracy(role)
    return "" if found is None else f" (accuracy {found:.3f})"


def _categories(runs: FigureRuns, store: Store) -> dict[str, str]:
    """Return the category of each prompt, in the benchmark's order, from the first judge done.

    Empty where no judge is done, the benchmark has no categories or the figure shows none.
    """
    import pyarrow.parquet as pq

    figure = runs.figure
    if not isinstance(figure, RatingsFigure):
        return {}
    benchmark = benchmark_of(runs.profile, figure.score)
    judges = [] if benchmark is None else [r.judged[benchmark] for r in runs.runs.values()]
    for judge in judges:
        if store.status(judge.fingerprint) == "done":
            path = store.file(judge.fingerprint, "judgments.parquet")
            if path.exists() and "category" in pq.read_schema(path).names:
                rows = read_rows(path, "prompt_id", "category")
                return {row["prompt_id"]: row["category"] for row in rows}
            return {}
    return {}


def _by_category(measured: Measured, categories: Mapping[str, str]) -> Measured:
    parted: Measured = {}
    for (run, seed, score), values in measured.items():
        for prompt, value in values.items():
            key = (run, seed, f"{score}/{categories[prompt]}")
            parted.setdefault(key, {})[prompt] = value
    return parted


def _found(
    ref: str, point: Point, runs: FigureRuns, measured: Measured, failures: Failures
) -> Found:
    score = point.score.partition("/")[0]
    benchmark = benchmark_of(runs.profile, score)
    if ref in runs.lacking:
        return Found("not_available", 0, f"{ref}: {runs.lacking[ref]}")
    if benchmark is None:
        return Found("not_available", 0, f"`{runs.profile.name}` has no score `{score}`")
    states: list[Found] = []
    for run_id in filter(None, (point.run, point.baseline)):
        behind = [runs.runs[run_id, seed] for seed in runs.seeds]
        state, why = state_of(behind, benchmark, point.score, measured, failures)
        done = sum((run_id, seed, point.score) in measured for seed in runs.seeds)
        states.append(Found(state, done, why))
    # A gain is as whole as the less whole of its two rows.
    return min(states, key=lambda found: (found.state != "failed", found.done))


def _stages(runs: FigureRuns, measured: Measured) -> Stages:
    found: Stages = {}
    for run_id, seed, score in sorted(measured):
        run = runs.runs[run_id, seed]
        name = benchmark_of(runs.profile, score.partition("/")[0])
        if name is not None:
            place = found.setdefault(f"{run_id}/{run.profile}/seed{seed}", {})
            place[f"judge {name}"] = run.judged[name].fingerprint
    return found


# --- Prompts: what iterations start from, and train on ---

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
"""What an informativeness metric is called in a figure."""

ALL_TOPICS = "all topics"
"""Stands for the topics while none are known."""

TRAINED_SHARE = "share of training prompts"

SUMMARY, HISTOGRAM = "summary", "histogram"
"""Panels of densities: what is told of a metric, and the share of prompts in each bin."""

LOW = 0.1
"""Values below this, from 0 to 1, count as low."""

TOLD: tuple[tuple[str, Quantity, Callable[[Floats], float]], ...] = (
    ("at the least value", "share", lambda v: float((v == 0.0).mean())),
    (f"below {LOW:g}", "share", lambda v: float((v < LOW).mean())),
    ("lower quartile", "level", lambda v: float(np.quantile(v, 0.25))),
    ("median", "level", lambda v: float(np.median(v))),
    ("upper quartile", "level", lambda v: float(np.quantile(v, 0.75))),
)
"""What is told of a metric: name, quantity, and how it is computed from the scaled values."""

ALL, SPREAD = "all prompts", "prompts with any spread"
"""The prompts that a correlation is over."""

RHO, PROMPTS = "Spearman's ρ", "prompts of a seed"

SHARE, MEAN = "share of prompts", "mean reward"
"""Panels of topics, beside that of the reward gap."""


def scaled(values: Floats) -> Floats:
    """Return values from 0 to 1, min-max normalised as weights are; all 0 where they are equal."""
    return np.asarray((values - values.min()) / (float(np.ptp(values)) or 1.0))


SeedValues = Iterator[tuple[str, str, str, Quantity, str, Sequence[float | None]]]
"""Panel, series, place on the axis, quantity and unit, and the value of each seed that is there,
None where it is not defined."""


def shares(_: SharesFigure, data: PromptData) -> SeedValues:
    for topic in data.topics or (ALL_TOPICS,):
        for iteration in range(1, len(data.found) + 1):
            parts = [part.topics for part in data.of(iteration)]
            values = [topics.count(topic) / len(topics) for topics in parts]
            yield topic, TRAINED_SHARE, str(iteration), "share", "", values


def densities(figure: DensitiesFigure, data: PromptData) -> SeedValues:
    edges = np.linspace(0.0, 1.0, figure.bins + 1)
    for metric in figure.metrics:
        name = NAMES[metric]
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
    return f"reward gap: {NAMES[figure.gap]}"


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
