"""What MLflow is to hold of tables, trials and evaluations, read from the store and the reports.

    runs/<profile>            one MLflow run for each recipe and seed (`harness.tracking.runs`)
    <table>/<profile>         one for each row (`harness.tracking.tables`)
    tables/<profile>          one for each table
    sweeps/<name>/<profile>   one for each trial of a sweep
    evaluations/<benchmark>   one for each evaluation of a model from outside

A trial's parameters are the settings it was given and its metrics the objectives, so that MLflow
shows a study in parallel coordinates. The data that an evaluation scored are part of its identity:
other answers of the same model are another run, and the old one stays as history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.evaluation.scores import REPLIES, Kept, load
from harness.runtime import Store
from harness.runtime.manifest import utc_now
from harness.tracking.record import (
    LONGEST_TAG,
    NOTE_TAG,
    Record,
    join,
    metric_name,
    milliseconds,
    recipe_file,
    sha256,
)
from harness.tracking.runs import run_record
from harness.tracking.tables import Details, TableContent
from harness.tracking.view import KIND_TAG, Parallel, View

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns
    from harness.report.model import Cell
    from harness.report.sweep import SweepTrial

_TRIALS_NOTE = (
    "Trials of the sweep {} on the profile {}, measured on validation prompts; no result."
)
_EVALUATIONS_NOTE = (
    "One run for each model, judge and data that harness evaluate scored on {}. A score under "
    "another judge than the benchmark's own has the judge in its name."
)


def table_records(
    table_runs: TableRuns,
    cells: Sequence[Cell],
    store: Store,
    served: Mapping[str, Sequence[str]],
    details: Callable[[], Details] | None = None,
) -> list[Record]:
    """Return the records of a table: its runs, then its rows, if there are cells of it."""
    runs = {
        key: record
        for key, run in table_runs.runs.items()
        if (record := run_record(run, table_runs.profile, store, served))
    }
    table, profile = table_runs.table, table_runs.profile
    behind = {}
    for row in table_runs.rows:
        names = {row.run_id(column) for column in table.columns}
        behind[row.id] = [record for (name, _), record in runs.items() if name in names]
    content = TableContent(
        table=table,
        profile=profile,
        seeds=table_runs.seeds,
        rows=table_runs.rows,
        cells=cells,
        behind=behind,
        source=f"harness run {table.id} --profile {profile.name}",
        details=details,
    )
    return [*runs.values(), *content.records()]


@dataclass(frozen=True)
class StudyName:
    """What trials belong to: a sweep, a profile, and a study, which differs where settings do."""

    sweep: str
    profile: str
    study: str
    objectives: tuple[str, ...]
    best_is_greatest: bool = True
    """Of the first objective, by which trials are ordered."""

    def view(self, settings: Collection[str]) -> View:
        """Return what the page of the trials opens on: objectives and settings, the best first."""
        found = [metric_name(name) for name in self.objectives]
        return View(
            [*(f"metrics.{name}" for name in found), *(f"params.{name}" for name in settings)],
            f"metrics.{found[0]}",
            [Parallel("Settings and objectives", list(settings), found)],
            f"Trials of {self.sweep}",
            ascending=not self.best_is_greatest,
        )


def trial_record(
    name: StudyName,
    trial: SweepTrial,
    source: str,
    recipe: Mapping[str, Any] | None = None,
    suffix: str = "",
) -> Record:
    """Return what MLflow should hold of a trial that has ended.

    `source` is the command or folder that it comes from; `suffix` ends its experiment's name.
    """
    now = utc_now()
    metrics = dict(trial.values or {})
    metrics |= {f"{name.objectives[0]}/seeds{step}": value for step, value in trial.so_far.items()}
    settings = ", ".join(f"{path.rpartition('.')[2]} {v}" for path, v in trial.params.items())
    tags = {
        "sweep": name.sweep,
        "study": name.study,
        "trial": str(trial.number),
        "trial.state": trial.state,
        "stages": f"{trial.reused} reused, {trial.computed} computed",
        NOTE_TAG: f"Trial {trial.number} of the sweep {name.sweep} on the profile {name.profile}: "
        f"{settings}. Measured on validation prompts; no result.",
        "mlflow.source.name": source,
        "mlflow.source.type": "LOCAL",
    }
    if trial.failure:
        tags["failure"] = trial.failure[:LONGEST_TAG]
    return Record(
        experiment=f"sweeps/{name.sweep}/{name.profile}{suffix}",
        note=_TRIALS_NOTE.format(name.sweep, name.profile),
        view=name.view(sorted(trial.params)).tags,
        identity=sha256(["trial", name.study, trial.number, suffix]),
        name=f"trial {trial.number}",
        status="FAILED" if trial.state == "fail" else "FINISHED",
        start_ms=milliseconds(trial.started or now),
        end_ms=milliseconds(trial.ended or now),
        params={path: join([value]) for path, value in trial.params.items()},
        tags=tags,
        scores_digest=sha256({key: repr(value) for key, value in metrics.items()}),
        read_scores=lambda: {metric_name(key): value for key, value in metrics.items()},
        files=None if recipe is None else recipe_file({f"trial {trial.number}": dict(recipe)}),
    )


def evaluation_record(path: Path) -> Record:
    """Return what MLflow should hold of an evaluation, by its file (`harness.evaluation.scores`).

    Raises:
        HarnessError: The file cannot be read.
    """
    found = load(path)
    source, finished = found.source, milliseconds(found.finished)
    metrics = _evaluation_metrics(found)
    benchmark, judge = found.benchmark, found.judge or "not said"
    replies = path.parent / REPLIES
    identity = ["evaluation", benchmark, found.model, judge, *sorted(source.items())]
    return Record(
        experiment=f"evaluations/{benchmark}",
        note=_EVALUATIONS_NOTE.format(benchmark),
        view=KIND_TAG,
        identity=sha256([list(part) if isinstance(part, tuple) else part for part in identity]),
        name=f"{found.model} · {judge}",
        status="FINISHED",
        start_ms=finished,
        end_ms=finished,
        params={
            "benchmark": benchmark,
            "model": found.model,
            "judge": judge,
            **{f"source.{name}": join([value]) for name, value in source.items()},
            **{
                f"task.{column}.{name}": join([value])
                for column, facts in found.tasks.items()
                for name, value in facts.items()
            },
        },
        tags={
            "folder": str(path.parent),
            "replies": str(replies) if replies.is_file() else "none",
            "n": str(found.n),
            "n_missing": str(found.n_missing),
            **{f"note.{name}": text[:LONGEST_TAG] for name, text in found.notes.items()},
        },
        scores_digest=sha256({name: repr(value) for name, value in metrics.items()}),
        read_scores=lambda: metrics,
    )


def _evaluation_metrics(found: Kept) -> dict[str, float]:
    numbers: dict[str, float | None] = {}
    for score, column in found.columns.items():
        numbers[column] = found.scores[score]
        low, high = found.intervals.get(score) or (None, None)
        numbers[f"{column}.ci_low"], numbers[f"{column}.ci_high"] = low, high
    numbers |= {f"category/{name}": value for name, value in found.per_category.items()}
    numbers |= {f"cost/{name}": value for name, value in (found.cost or {}).items()}
    return {metric_name(n): float(value) for n, value in numbers.items() if value is not None}
