"""Points of figures, and figures of scores: gains, means over iterations, means by category.

A point is one number with its interval and the paper's beside it, or why not. It is whole or it has
no number, as a table's cell is. A point of a score says which runs it is computed from, by the
declaration alone; the numbers are those of `harness.report.scores.numbers`, as in a table. A score
of one category of a benchmark's prompts is kept under the score's name with the category behind it
(`mt_avg/coding`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from harness.registry.figures import GainsFigure, IterationsFigure, RatingsFigure
from harness.registry.profile import benchmark_of
from harness.report.cells import Failures, state_of
from harness.report.model import State
from harness.report.scores import (
    AsRead,
    Measured,
    Numbers,
    gain_priors,
    numbers,
    read_rows,
    read_score_file,
    read_wanted,
    write_scores,
)
from harness.report.view import signed
from harness.runtime import Store
from harness.statistics import mean_over_seeds
from harness.strict import Strict

if TYPE_CHECKING:
    from harness.pipeline.runs import FigureRuns

Quantity = Literal["gain", "mean", "share", "level", "reward", "rank correlation", "count"]

Stages = dict[str, dict[str, str]]
"""Fingerprints of stages, by run and by what the stage does."""


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


class Found(NamedTuple):
    """Whether data are there: a cell's state, the seeds that are, and why others are not."""

    state: State
    done: int
    reason: str | None = None


def seeds_point(
    place: tuple[str, str, str],
    quantity: Quantity,
    unit: str,
    found: Found,
    values: Sequence[float | None],
) -> Point:
    """Return the mean over seeds as a point; `place` is its panel, series and place on the axis.

    There is a value of each seed that is there, None where it is not defined.
    """
    reason, low, mean, high = found.reason, None, None, None
    known = [value for value in values if value is not None]
    if found.state == "ok" and len(known) < len(values):
        reason = f"undefined in {len(values) - len(known)} of {len(values)} seeds"
    elif found.state == "ok":
        mean, low, high = mean_over_seeds(known)
    panel, series, at = place
    return Point(
        panel=panel, series=series, at=at, quantity=quantity, unit=unit,
        state=found.state, done=found.done, reason=reason, value=mean, low=low, high=high,
    )  # fmt: skip


ALL = "all categories"
"""Stands for the categories while no run has been judged and none is known."""


class ScoreData(Strict):
    file: Literal["scores.parquet"] = "scores.parquet"
    """The file that holds the scores."""
    seeds: tuple[int, ...]
    measured: Measured = Field(default_factory=dict, exclude=True)
    stages: Stages = Field(default_factory=dict, exclude=True)

    def write(self, path: Path) -> None:
        write_scores(self.measured, path)

    def read(self, path: Path) -> ScoreData:
        return self.model_copy(update={"measured": read_score_file(path)})


def stored_scores(runs: FigureRuns, store: Store) -> tuple[ScoreData, list[Point]]:
    """Return what a figure of scores shows, as a store has it, and its points without numbers."""
    categories = _categories(runs, store)
    placed = list(_places(runs, list(dict.fromkeys(categories.values()))))
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
    priors = {
        score: gain_priors(data.measured, pairs, data.seeds, score)
        for score, pairs in compared.items()
    }
    found = []
    for point in points:
        own, prior = Numbers(), priors.get(point.score)
        if point.run is not None:
            behind = (point.run, point.baseline)
            own = numbers(data.measured, *behind, data.seeds, point.score, prior)
        value, low, high = own.mean, own.ci_low, own.ci_high
        if point.quantity == "gain":
            value, low, high = own.gain, own.gain_ci_low, own.gain_ci_high
        # Whether a number is whole follows from the scores; why another is not does not.
        state = "ok" if value is not None else point.state if point.state != "ok" else "not_run"
        update = {"state": state, "value": value, "low": low, "high": high}
        found.append(point.model_copy(update=update))
    return found


def _places(runs: FigureRuns, categories: Sequence[str]) -> Iterator[tuple[str, Point]]:
    """Yield points without numbers, each with the reference of its row.

    They are gains in each column, means after each iteration, or means by category.
    """
    figure = runs.figure
    if isinstance(figure, GainsFigure):
        for group in figure.groups:
            for bar, name in itertools.product(group.bars, figure.columns):
                good = _accuracy(bar.row, runs) if figure.reward_model_accuracy else ""
                place = {"panel": _heading(name, runs), "series": group.title}
                yield bar.row, _gain(runs, bar.row, name, at=bar.label + good, **place)
    elif isinstance(figure, IterationsFigure):
        for panel in figure.panels:
            for line in panel.lines:
                for iteration, ref in sorted(line.rows.items()):
                    place = {"panel": panel.title, "series": line.label, "at": str(iteration)}
                    yield ref, _mean(runs, ref, figure.column, **place)
    elif isinstance(figure, RatingsFigure):
        for polygon in figure.polygons:
            run = runs.places[polygon.row][1].run
            for name in categories or [ALL]:
                score = f"{figure.score}/{name}" if categories else figure.score
                yield polygon.row, Point(
                    panel="", series=polygon.label, at=name, quantity="mean", unit="1-10",
                    run=run, score=score,
                )  # fmt: skip


def _mean(runs: FigureRuns, ref: str, name: str, **place: Any) -> Point:
    table, row = runs.places[ref]
    column, printed = table.column(name), row.values.get(name)
    shown = {"quantity": "mean", "unit": column.unit, "score": column.reads} | place
    if printed is not None:
        shown |= {"paper": printed.value, "paper_printed": printed.printed}
    return Point(run=row.run_id(column), **shown)


def _gain(runs: FigureRuns, ref: str, name: str, **place: Any) -> Point:
    table, row = runs.places[ref]
    column, base = table.column(name), table.row(row.baseline or row.id)
    paper = table.paper_gain(row, column)
    decimals = max((r.values[name].decimals for r in (row, base) if name in r.values), default=0)
    update = {
        "quantity": "gain",
        "baseline": base.run_id(column),
        "paper": paper,
        "paper_printed": None if paper is None else signed(paper, decimals),
    }
    return _mean(runs, ref, name, **place).model_copy(update=update)


def _accuracy(ref: str, runs: FigureRuns) -> str:
    from harness.worlds.lookup import world_of

    table, row = runs.places[ref]
    role = table.recipe_of(row, table.columns[0]).reward_model
    found = world_of(runs.profile).reward_model_accuracy(role)
    return "" if found is None else f" (accuracy {found:.3f})"


def _heading(name: str, runs: FigureRuns) -> str:
    columns = (column for table, _ in runs.places.values() for column in table.columns)
    column = next(column for column in columns if column.id == name)
    return f"{column.benchmark} · {column.metric.partition(' against ')[0]}"


def _categories(runs: FigureRuns, store: Store) -> dict[str, str]:
    """Return the category of each prompt, from the first judge that is done.

    The judgments are in the benchmark's order, so that the categories are as well; empty where no
    judge is done, the benchmark has no categories or the figure shows none.
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
                return dict(read_rows(path, "prompt_id", "category"))
            return {}
    return {}


def _by_category(measured: Measured, categories: Mapping[str, str]) -> Measured:
    parted = AsRead()
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
