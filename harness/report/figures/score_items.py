"""Where a figure's scores stand: an item for each number, made from the declaration alone.

An item names the runs its number is computed from, and carries the paper's. Each comes with the
reference of its row, by which it is known whether the row can run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.registry.figures import GainsFigure, IterationsFigure, RatingsFigure
from harness.registry.schema import Row, Table
from harness.report.figures.point import Quantity
from harness.report.model import State
from harness.report.view import signed

if TYPE_CHECKING:
    from harness.trainer.figure_runs import FigureRuns

ALL = "all categories"
"""Stands for the categories while no run has been judged and none is known."""

UNIT_OF_RATINGS = "1-10"


@dataclass(frozen=True)
class Item:
    """Where a number stands, and what it is computed from.

    Attributes:
        panel: As the point's.
        series: As the point's.
        at: As the point's.
        quantity: `gain`, over the baseline, or `mean`.
        unit: As the point's.
        run: The run behind it; None where no table declares its row.
        baseline: The run that a gain is over.
        score: The per-prompt score.
        paper: The paper's number.
        paper_printed: The same at the printed precision.
        state: Whether the scores are there.
        done: Seeds whose scores are there.
        reason: Why they are not, where more is known.
    """

    panel: str
    series: str
    at: str
    quantity: Quantity
    unit: str
    run: str | None
    baseline: str | None
    score: str
    paper: float | None = None
    paper_printed: str | None = None
    state: State = "not_run"
    done: int = 0
    reason: str | None = None


Placed = Iterator[tuple[str, Item]]
"""Items with the reference of their row."""


def gain_items(figure: GainsFigure, runs: FigureRuns) -> Placed:
    """Yield the items of bars: a gain in each column."""
    for group in figure.groups:
        for bar in group.bars:
            for name in figure.columns:
                panel, label = _heading(name, runs), bar.label
                if figure.reward_model_accuracy:
                    label += _accuracy(bar.row, runs)
                item = Item(panel, group.title, label, "gain", "", None, None, name)
                if bar.row in runs.places:
                    item = _gain_item(item, *runs.places[bar.row], name)
                yield bar.row, item


def _accuracy(ref: str, runs: FigureRuns) -> str:
    """Return how good a row's reward model is, in words to put behind its name."""
    from harness.worlds.lookup import world_of

    if ref not in runs.places:
        return ""
    table, row = runs.places[ref]
    role = table.recipe_of(row, table.columns[0]).reward_model
    found = world_of(runs.profile).reward_model_accuracy(role)
    return "" if found is None else f" (accuracy {found:.3f})"


def _heading(name: str, runs: FigureRuns) -> str:
    """Return the heading of a column, its name where no declared row has it."""
    for table, _ in runs.places.values():
        for column in table.columns:
            if column.id == name:
                return f"{column.benchmark} · {column.metric.partition(' against ')[0]}"
    return name


def _gain_item(item: Item, table: Table, row: Row, name: str) -> Item:
    column = table.column(name)
    base = table.row(row.baseline or row.id)
    gain = table.paper_gain(row, column)
    values = [r.values[name] for r in (row, base) if name in r.values]
    decimals = max((value.decimals for value in values), default=0)
    return replace(
        item,
        unit=column.unit,
        run=row.run_id(column),
        baseline=base.run_id(column),
        score=column.reads,
        paper=gain,
        paper_printed=None if gain is None else signed(gain, decimals),
    )


def iteration_items(figure: IterationsFigure, runs: FigureRuns) -> Placed:
    """Yield the items of lines: a mean after each iteration."""
    name = figure.column
    for panel in figure.panels:
        for line in panel.lines:
            for iteration, ref in sorted(line.rows.items()):
                at = str(iteration)
                item = Item(panel.title, line.label, at, "mean", "", None, None, name)
                if ref in runs.places:
                    item = _mean_item(item, *runs.places[ref], name)
                yield ref, item


def _mean_item(item: Item, table: Table, row: Row, name: str) -> Item:
    column = table.column(name)
    printed = row.values.get(name)
    return replace(
        item,
        unit=column.unit,
        run=row.run_id(column),
        score=column.reads,
        paper=None if printed is None else printed.value,
        paper_printed=None if printed is None else printed.printed,
    )


def rating_items(figure: RatingsFigure, runs: FigureRuns, categories: Mapping[str, str]) -> Placed:
    """Yield the items of polygons: a mean in each category.

    Args:
        figure: The figure.
        runs: The runs behind it.
        categories: Category of each prompt, in the benchmark's order.
    """
    names = list(dict.fromkeys(categories.values()))
    for polygon in figure.polygons:
        run = runs.places[polygon.row][1].run if polygon.row in runs.places else None
        item = Item("", polygon.label, ALL, "mean", UNIT_OF_RATINGS, run, None, figure.score)
        for name in names:
            yield polygon.row, replace(item, at=name, score=f"{figure.score}/{name}")
        if not names:
            yield polygon.row, item
