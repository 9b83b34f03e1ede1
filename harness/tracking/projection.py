"""What MLflow is to hold of tables, trials and evaluations, read from the store and the reports.

    runs/<profile>            one MLflow run for each recipe and seed (`harness.tracking.runs`)
    <table>/<profile>         one for each row, so that selecting rows in MLflow compares them
    sweeps/<name>/<profile>   one for each trial of a sweep
    evaluations/<benchmark>   one for each evaluation of a model from outside

A row's numbers are those of the report's cells and of nothing else; a cell that is not whole has
no metrics, only its state. What is ours minus what is the paper's is never written: gains over the
baseline row are what can be compared. A row that is not whole is KILLED and never RUNNING: what is
computed is its runs.

A trial's parameters are the settings it was given and its metrics the objectives, so that MLflow
shows a study in parallel coordinates. The data that an evaluation scored are part of its identity:
other answers of the same model are another run, and the old one stays as history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.evaluation import archive
from harness.runtime import Store
from harness.runtime.manifest import utc_now
from harness.tracking.marks import Asked
from harness.tracking.record import (
    LONGEST_TAG,
    Record,
    Status,
    join,
    metric_name,
    milliseconds,
    sha256,
)
from harness.tracking.runs import run_record

if TYPE_CHECKING:
    from harness.registry.schema import Row
    from harness.report.model import Cell, HumanPrompts
    from harness.report.sweep import SweepTrial
    from harness.trainer.runs import TableRuns

_TRIALS_NOTE = (
    "One run for each trial of the sweep `{}` at the profile `{}`, measured on validation prompts; "
    "no result. Select all, Compare, and look at the parallel coordinates."
)
_EVALUATIONS_NOTE = (
    "One run for each model, judge and data that `harness evaluate` scored on {}. A score under "
    "another judge than the benchmark's own has the judge in its name."
)

_INHERITED = ("policy", "reward_model", "creator", "judge", "benchmarks", "commit", "dirty")
"""Tags that a row has from the runs behind it."""

_TRIAL_STATUS: Mapping[str, Status] = {
    "running": "RUNNING",
    "waiting": "KILLED",
    "complete": "FINISHED",
    "pruned": "FINISHED",
    "fail": "FAILED",
}


def table_records(
    table_runs: TableRuns,
    cells: Sequence[Cell],
    store: Store,
    served: Mapping[str, Sequence[str]],
    asked: Asked,
) -> list[Record]:
    """Return the records of a table: its runs, then its rows, if there are cells of it.

    Raises:
        StoreError: The store cannot be read.
    """
    runs = {
        key: record
        for key, run in table_runs.runs.items()
        if (record := run_record(run, table_runs.profile, store, served, asked))
    }
    rows = []
    for row in table_runs.rows:
        names = {row.run_id(column) for column in table_runs.table.columns}
        behind = [record for (name, _), record in runs.items() if name in names]
        of_row = [cell for cell in cells if cell.row == row.id]
        if behind and of_row:
            rows.append(_row_record(table_runs, row, of_row, behind))
    return [*runs.values(), *rows]


def _row_record(
    table_runs: TableRuns, row: Row, cells: Sequence[Cell], behind: Sequence[Record]
) -> Record:
    table, profile = table_runs.table, table_runs.profile
    metrics = {name: value for cell in cells for name, value in _metrics(cell).items()}
    states = {cell.state for cell in cells}
    status: Status = "FAILED" if "failed" in states else "KILLED"
    if states <= {"ok", "not_available"}:
        status = "FINISHED"
    start_ms = min(record.start_ms for record in behind)
    ends = [record.end_ms for record in behind if record.end_ms is not None]
    return Record(
        experiment=f"{table.id}/{profile.name}",
        note=f"{table.title}. {table.question} Scale: {profile.scale}.",
        identity=sha256(["row", table.id, profile.name, row.id]),
        name=row.id,
        status=status,
        start_ms=start_ms,
        end_ms=max(ends, default=start_ms),
        params={
            "table": table.id,
            "profile": profile.name,
            "row": row.id,
            "label": row.label,
            "run": join(row.run_id(column) for column in table.columns),
            "baseline": row.baseline or "none",
        },
        tags=_tags(table_runs, cells, behind),
        scores_digest=sha256(metrics),
        read_scores=lambda: metrics,
    )


def _metrics(cell: Cell) -> dict[str, float]:
    """Return a whole cell's numbers by metric name; nothing for a cell that is not whole."""
    if cell.state != "ok":
        return {}
    column = metric_name(cell.column)
    numbers = {
        column: cell.mean,
        f"{column}.ci_low": cell.ci_low,
        f"{column}.ci_high": cell.ci_high,
        f"{column}.gain": cell.gain,
        f"{column}.gain_ci_low": cell.gain_ci_low,
        f"{column}.gain_ci_high": cell.gain_ci_high,
        f"{column}.paper": cell.paper,
        f"{column}.paper_gain": cell.paper_gain,
        f"{column}.gain_detectable": cell.gain_detectable,
        **_worth(f"{column}.worth", cell.worth),
        **_worth(f"{column}.paper_worth", cell.paper_worth),
    }
    return {name: float(number) for name, number in numbers.items() if number is not None}


def _worth(name: str, found: HumanPrompts | None) -> dict[str, float | None]:
    """Return a worth in human prompts; what lies outside the curve has no number."""
    if found is None:
        return {}
    return {name: found.times, f"{name}_ci_low": found.low, f"{name}_ci_high": found.high}


def _tags(table_runs: TableRuns, cells: Sequence[Cell], behind: Sequence[Record]) -> dict[str, str]:
    states = {cell.state for cell in cells}
    tags = {
        "scale": table_runs.profile.scale,
        "seeds": join(table_runs.seeds),
        "state": states.pop() if len(states) == 1 else "mixed",
        **{f"state.{metric_name(cell.column)}": cell.state for cell in cells},
    }
    found = [record.tags for record in behind]
    inherited = [*_INHERITED, *sorted({n for t in found for n in t if n.startswith("version.")})]
    for name in inherited:
        # A run that several commits computed says so itself, as a list.
        values = [part for t in found if name in t for part in t[name].split(", ")]
        tags[name] = join(value for value in values if value != "none")
    failures = dict.fromkeys(t["failure"] for t in found if "failure" in t)
    if failures:
        tags["failure"] = "; ".join(failures)[:LONGEST_TAG]
    return tags


@dataclass(frozen=True)
class StudyName:
    """What trials belong to: a sweep, a profile, and a study, which differs where settings do."""

    sweep: str
    profile: str
    study: str
    objective: str


def trial_identity(name: StudyName, trial: SweepTrial) -> str:
    """Return the tag value by which a trial's MLflow run is found again."""
    return sha256(["trial", name.study, trial.number])


def trial_record(name: StudyName, trial: SweepTrial, tags: Mapping[str, str]) -> Record:
    """Return what MLflow should hold of a trial."""
    now = utc_now()
    start_ms = milliseconds(trial.started or now)
    status = _TRIAL_STATUS[trial.state]
    metrics = dict(trial.values or {})
    metrics |= {f"{name.objective}/seeds{step}": value for step, value in trial.so_far.items()}
    end_ms = None if status == "RUNNING" else milliseconds(trial.ended or now)
    own = {
        "sweep": name.sweep,
        "study": name.study,
        "trial": str(trial.number),
        "trial.state": trial.state,
        "stages": f"{trial.reused} reused, {trial.computed} computed",
    }
    if trial.failure:
        own["failure"] = trial.failure[:LONGEST_TAG]
    if trial.retry_of is not None:
        own["retry_of"] = str(trial.retry_of)
    return Record(
        experiment=f"sweeps/{name.sweep}/{name.profile}",
        note=_TRIALS_NOTE.format(name.sweep, name.profile),
        identity=trial_identity(name, trial),
        name=f"trial {trial.number}",
        status=status,
        start_ms=start_ms,
        end_ms=end_ms,
        params={path: join([value]) for path, value in trial.params.items()},
        tags={**own, **tags},
        scores_digest=sha256({key: repr(value) for key, value in metrics.items()}),
        read_scores=lambda: {metric_name(key): value for key, value in metrics.items()},
    )


def evaluation_record(path: Path) -> Record:
    """Return what MLflow should hold of an evaluation, by its file (`harness.evaluation.archive`).

    Raises:
        HarnessError: The file cannot be read.
    """
    found = archive.load(path)
    source, finished = found.source, milliseconds(found.finished)
    metrics = _evaluation_metrics(found)
    benchmark, judge = found.benchmark, found.judge or "not said"
    identity = ["evaluation", benchmark, found.model, judge, *sorted(source.items())]
    return Record(
        experiment=f"evaluations/{benchmark}",
        note=_EVALUATIONS_NOTE.format(benchmark),
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
            **_task_params(found.tasks),
        },
        tags={
            "folder": str(path.parent),
            "replies": _replies(path.parent),
            "n": str(found.n),
            "n_missing": str(found.n_missing),
            **{f"note.{name}": text[:LONGEST_TAG] for name, text in found.notes.items()},
        },
        scores_digest=sha256({name: repr(value) for name, value in metrics.items()}),
        read_scores=lambda: metrics,
    )


def _evaluation_metrics(found: archive.Kept) -> dict[str, float]:
    """Return scores, intervals, categories and costs by metric name."""
    numbers: dict[str, float | None] = {}
    for score, column in found.columns.items():
        numbers[column] = found.scores[score]
        low, high = found.intervals.get(score) or (None, None)
        numbers[f"{column}.ci_low"], numbers[f"{column}.ci_high"] = low, high
    numbers |= {f"category/{name}": value for name, value in found.per_category.items()}
    numbers |= {f"cost/{name}": value for name, value in (found.cost or {}).items()}
    return {metric_name(n): float(value) for n, value in numbers.items() if value is not None}


def _task_params(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {
        f"task.{column}.{name}": join([value])
        for column, facts in tasks.items()
        for name, value in facts.items()
    }


def _replies(folder: Path) -> str:
    """Return the file that says where the raw replies are; `none` where nobody was asked."""
    path = folder / archive.REPLIES
    return str(path) if path.is_file() else "none"
