"""Points that are scores of rows: gains over baselines, means over iterations, means by category.

An item (`score_items`) says where a number stands and which runs it is computed from; the numbers
are those of `harness.report.scores.numbers`, as in a table. A score of one category of a
benchmark's prompts is kept under the score's name with the category behind it (`mt_avg/coding`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from harness.registry.figures import Figure, GainsFigure, IterationsFigure, RatingsFigure
from harness.registry.profile import benchmark_of
from harness.report.cells import Failures, state_of
from harness.report.figures.point import Found, Point
from harness.report.figures.score_items import Item, gain_items, iteration_items, rating_items
from harness.report.scores import (
    Measured,
    Numbers,
    grouped,
    numbers,
    read_rows,
    read_wanted,
    write_scores,
)
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.trainer.figure_runs import FigureRuns


@dataclass(frozen=True)
class ScoreData:
    """The per-prompt scores behind a figure.

    Attributes:
        seeds: Root seeds asked for.
        items: What is shown, in order.
        measured: The scores that are there.
        stages: Fingerprints of the stages they come from, by run and by what the stage does.
    """

    FILE: ClassVar[str] = "scores.parquet"

    seeds: tuple[int, ...]
    items: tuple[Item, ...]
    measured: Measured
    stages: Mapping[str, Mapping[str, str]]

    def head(self) -> dict[str, Any]:
        """Return what is needed beside the file to compute the points again, as JSON data."""
        return {"seeds": list(self.seeds), "items": [asdict(item) for item in self.items]}

    def write(self, path: Path) -> None:
        """Write the scores as Parquet: run_id, seed, column, prompt_id, value."""
        write_scores(self.measured, path)

    @classmethod
    def load(cls, head: Mapping[str, Any], path: Path) -> ScoreData:
        """Return the data that `head` and `write` kept."""
        rows = read_rows(path, "run_id", "seed", "column", "prompt_id", "value")
        measured = grouped([((run, seed, score), p, value) for run, seed, score, p, value in rows])
        items = tuple(Item(**item) for item in head["items"])
        return cls(tuple(head["seeds"]), items, measured, {})


def score_points(figure: Figure, data: ScoreData) -> list[Point]:
    """Return a point for each item."""
    return [_point(item, data) for item in data.items]


def _point(item: Item, data: ScoreData) -> Point:
    shown = {name: getattr(item, name) for name in Point.__dataclass_fields__
             if name not in ("value", "low", "high")}  # fmt: skip
    found = Numbers()
    if item.run is not None:
        found = numbers(data.measured, item.run, item.baseline, data.seeds, item.score)
    gain = item.quantity == "gain"
    value, low, high = (
        (found.gain, found.gain_ci_low, found.gain_ci_high)
        if gain
        else (found.mean, found.ci_low, found.ci_high)
    )
    whole = value is not None
    # Whether a number is whole follows from the scores; why another is not does not.
    shown["state"] = "ok" if whole else item.state if item.state != "ok" else "not_run"
    return Point(**shown, value=value, low=low, high=high)


def read_score_data(runs: FigureRuns, store: Store) -> ScoreData:
    """Read what a figure of scores shows from the store.

    Raises:
        StoreError: A stored file is not what was written.
    """
    figure, categories = runs.figure, {}
    if isinstance(figure, GainsFigure):
        placed = list(gain_items(figure, runs))
    elif isinstance(figure, IterationsFigure):
        placed = list(iteration_items(figure, runs))
    else:
        assert isinstance(figure, RatingsFigure)
        categories = _categories(figure, runs, store)
        placed = list(rating_items(figure, runs, categories))
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
    items = []
    for ref, item in placed:
        found = _found(ref, item, runs, measured, failures)
        items.append(replace(item, state=found.state, done=found.done, reason=found.reason))
    return ScoreData(runs.seeds, tuple(items), measured, _stages(runs, measured))


def _categories(figure: RatingsFigure, runs: FigureRuns, store: Store) -> dict[str, str]:
    """Return the category of each prompt, from the first judge that is done.

    The judgments are in the benchmark's order, so that the categories are as well; empty where no
    judge is done or the benchmark has no categories.
    """
    import pyarrow.parquet as pq

    benchmark = benchmark_of(runs.profile, figure.score)
    if benchmark is None:
        return {}
    for run in runs.runs.values():
        judge = run.judged[benchmark].fingerprint
        if store.status(judge) == "done":
            path = store.open(judge) / "judgments.parquet"
            if not path.exists() or "category" not in pq.read_schema(path).names:
                return {}
            return dict(read_rows(path, "prompt_id", "category"))
    return {}


def _by_category(measured: Measured, categories: Mapping[str, str]) -> Measured:
    """Return scores kept under their prompts' categories."""
    parted: Measured = {}
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
