"""Points of figures, and figures of scores: gains, means over iterations, means by category.

A point is one number with its interval and the paper's beside it, or why not. It is whole or it has
no number, as a table's cell is. An item says where a number stands and which runs it is computed
from, by the declaration alone; the numbers are those of `harness.report.scores.numbers`, as in a
table. A score of one category of a benchmark's prompts is kept under the score's name with the
category behind it (`mt_avg/coding`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from harness.registry.figures import Figure, GainsFigure, IterationsFigure, RatingsFigure
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

Place = tuple[str, str, str]
"""Panel, series and place on the axis."""


class Spot(Strict):
    """Where a number stands, whether it is there, and the paper's."""

    panel: str
    """What shares axes: a benchmark, a topic."""
    series: str
    """What shares colour and shape: a line, a polygon, a metric."""
    at: str
    """The place on the axis: a bar, an iteration, a category, a bin."""
    quantity: Quantity
    """What it is."""
    unit: str
    """Its unit."""
    state: State = "not_run"
    """Whether there is a number, and why not."""
    done: int = 0
    """Seeds that are there."""
    paper: float | None = None
    """The paper's number."""
    paper_printed: str | None = None
    """The same at the printed precision."""
    reason: str | None = None
    """Why there is no number, where more is known than the state says."""

    @property
    def name(self) -> str:
        """Where it stands, in words."""
        return " / ".join(filter(None, (self.panel, self.series, self.at)))

    @property
    def papers(self) -> str:
        """The paper's number in words."""
        return "not printed" if self.paper is None else self.paper_printed or ""


class Point(Spot):
    """One number of a figure."""

    value: float | None = None
    """The number; None where a seed is missing or it is not defined."""
    low: float | None = None
    """Lower end of its 95% interval; None where there is none."""
    high: float | None = None
    """Upper end."""


class Found(NamedTuple):
    """Whether data are there: a cell's state, the seeds that are, and why others are not."""

    state: State
    done: int
    reason: str | None = None

    @classmethod
    def of(cls, done: int, asked: int) -> Found:
        """Return what is known of published data."""
        return cls("ok" if done == asked else "not_run", done)


def seeds_point(
    place: Place, quantity: Quantity, unit: str, found: Found, values: Sequence[float | None]
) -> Point:
    """Return the mean over seeds as a point.

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

UNIT_OF_RATINGS = "1-10"


class Item(Spot):
    """Where a number stands, and what it is computed from."""

    run: str | None
    """The run behind it; None where its row has no single one."""
    baseline: str | None = None
    """The run that a gain is over."""
    score: str
    """The per-prompt score."""

    def point(self, found: Numbers) -> Point:
        """Return the point that has the item's numbers."""
        value, low, high = found.mean, found.ci_low, found.ci_high
        if self.quantity == "gain":
            value, low, high = found.gain, found.gain_ci_low, found.gain_ci_high
        shown = self.model_dump(include=set(Spot.model_fields))
        # Whether a number is whole follows from the scores; why another is not does not.
        whole = value is not None
        shown["state"] = "ok" if whole else self.state if self.state != "ok" else "not_run"
        return Point(**shown, value=value, low=low, high=high)


Placed = Iterator[tuple[str, Item]]
"""Items with the reference of their row, by which it is known whether the row can run."""


class ScoreData(Strict):
    """The per-prompt scores behind a figure."""

    file: Literal["scores.parquet"] = "scores.parquet"
    """The file that holds the scores."""
    seeds: tuple[int, ...]
    """Root seeds asked for."""
    items: tuple[Item, ...]
    """What is shown, in order."""
    measured: Measured = Field(default_factory=dict, exclude=True)
    """The scores that are there."""
    stages: dict[str, dict[str, str]] = Field(default_factory=dict, exclude=True)
    """Fingerprints of the stages they come from, by run and by what the stage does."""

    def write(self, path: Path) -> None:
        """Write the scores as Parquet: run_id, seed, column, prompt_id, value."""
        write_scores(self.measured, path)

    def read(self, path: Path) -> ScoreData:
        """Return the data with the scores that `write` kept."""
        return self.model_copy(update={"measured": read_score_file(path)})

    @classmethod
    def stored(cls, runs: FigureRuns, store: Store) -> ScoreData:
        """Return what a figure of scores shows, as a store has it."""
        categories = _categories(runs, store)
        placed = list(_items(runs, list(dict.fromkeys(categories.values()))))
        wanted = [
            (run_id, seed, item.score.partition("/")[0])
            for ref, item in placed
            for run_id in (item.run, item.baseline)
            for seed in runs.seeds
            if run_id is not None and ref not in runs.lacking
        ]
        measured = read_wanted(runs.runs, wanted, runs.profile, store)
        if categories:
            measured = _by_category(measured, categories)
        failures = Failures(store)
        items = (
            item.model_copy(update=_found(ref, item, runs, measured, failures)._asdict())
            for ref, item in placed
        )
        # The scores are as they were read; to check every one of them again would take time.
        return cls(seeds=runs.seeds, items=tuple(items)).model_copy(
            update={"measured": measured, "stages": _stages(runs, measured)}
        )


def score_points(_: Figure, data: ScoreData) -> list[Point]:
    """Return a point for each item."""
    compared: dict[str, list[tuple[str, str]]] = {}
    for item in data.items:
        if item.run is not None and item.baseline is not None:
            compared.setdefault(item.score, []).append((item.run, item.baseline))
    priors = {
        score: gain_priors(data.measured, pairs, data.seeds, score)
        for score, pairs in compared.items()
    }
    points = []
    for item in data.items:
        found, prior = Numbers(), priors.get(item.score)
        if item.run is not None:
            runs = (item.run, item.baseline)
            found = numbers(data.measured, *runs, data.seeds, item.score, prior)
        points.append(item.point(found))
    return points


def _items(runs: FigureRuns, categories: Sequence[str]) -> Placed:
    """Yield the items: gains in each column, means after each iteration, or means by category."""
    figure = runs.figure
    if isinstance(figure, GainsFigure):
        for group in figure.groups:
            for bar, name in itertools.product(group.bars, figure.columns):
                good = _accuracy(bar.row, runs) if figure.reward_model_accuracy else ""
                place = _heading(name, runs), group.title, bar.label + good
                yield bar.row, _item(runs, bar.row, name, place, "gain")
    elif isinstance(figure, IterationsFigure):
        for panel in figure.panels:
            for line in panel.lines:
                for iteration, ref in sorted(line.rows.items()):
                    place = panel.title, line.label, str(iteration)
                    yield ref, _item(runs, ref, figure.column, place, "mean")
    elif isinstance(figure, RatingsFigure):
        for polygon in figure.polygons:
            run = runs.places[polygon.row][1].run
            for name in categories or [ALL]:
                yield polygon.row, Item(
                    panel="", series=polygon.label, at=name, quantity="mean", unit=UNIT_OF_RATINGS,
                    run=run, score=f"{figure.score}/{name}" if categories else figure.score,
                )  # fmt: skip


def _item(runs: FigureRuns, ref: str, name: str, place: Place, quantity: Quantity) -> Item:
    """Return the item of a row in a column."""
    (panel, series, at), (table, row) = place, runs.places[ref]
    column, baseline = table.column(name), None
    value = row.values.get(name)
    paper, printed = (None, None) if value is None else (value.value, value.printed)
    if quantity == "gain":
        base = table.row(row.baseline or row.id)
        baseline, paper = base.run_id(column), table.paper_gain(row, column)
        decimals = max(
            (r.values[name].decimals for r in (row, base) if name in r.values), default=0
        )
        printed = None if paper is None else signed(paper, decimals)
    return Item(
        panel=panel, series=series, at=at, quantity=quantity, unit=column.unit,
        run=row.run_id(column), baseline=baseline, score=column.reads, paper=paper,
        paper_printed=printed,
    )  # fmt: skip


def _accuracy(ref: str, runs: FigureRuns) -> str:
    """Return how good a row's reward model is, in words to put behind its name."""
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
    """Return scores kept under their prompts' categories."""
    parted = AsRead()
    for (run, seed, score), values in measured.items():
        for prompt, value in values.items():
            key = (run, seed, f"{score}/{categories[prompt]}")
            parted.setdefault(key, {})[prompt] = value
    return parted


def _found(ref: str, item: Item, runs: FigureRuns, measured: Measured, failures: Failures) -> Found:
    """Return whether an item's scores are in the store."""
    score = item.score.partition("/")[0]
    benchmark = benchmark_of(runs.profile, score)
    if ref in runs.lacking:
        return Found("not_available", 0, f"{ref}: {runs.lacking[ref]}")
    if benchmark is None:
        return Found("not_available", 0, f"`{runs.profile.name}` has no score `{score}`")
    states: list[Found] = []
    for run_id in filter(None, (item.run, item.baseline)):
        behind = [runs.runs[run_id, seed] for seed in runs.seeds]
        state, why = state_of(behind, benchmark, item.score, measured, failures)
        done = sum((run_id, seed, item.score) in measured for seed in runs.seeds)
        states.append(Found(state, done, why))
    # A gain is as whole as the less whole of its two rows.
    return min(states, key=lambda found: (found.state != "failed", found.done))


def _stages(runs: FigureRuns, measured: Measured) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for run_id, seed, score in sorted(measured):
        run = runs.runs[run_id, seed]
        name = benchmark_of(runs.profile, score.partition("/")[0])
        if name is not None:
            place = found.setdefault(f"{run_id}/{run.profile}/seed{seed}", {})
            place[f"judge {name}"] = run.judged[name].fingerprint
    return found
