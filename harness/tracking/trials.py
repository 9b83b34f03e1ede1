"""Records of what no table has: trials of sweeps, and evaluations of models from outside.

    sweeps/<name>/<profile>   one run for each trial of a sweep
    evaluations/<benchmark>   one for each evaluation

A trial's parameters are the settings it was given and its metrics the objectives, so that MLflow
shows a study in parallel coordinates. The data that an evaluation scored are part of its identity:
other answers of the same model are another run, and the old one stays as history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.evaluation.scores import REPLIES, Kept, load
from harness.registry.declared import all_profiles
from harness.report.publication import REPORT, check_files
from harness.report.sweep import SWEEP, SweepReport
from harness.runtime.manifest import utc_now
from harness.tracking.record import (
    KIND_TAG,
    LONGEST_TAG,
    NOTE_TAG,
    Chart,
    Record,
    first_view,
    join,
    known,
    metric_name,
    milliseconds,
    recipe_file,
    sha256,
)

if TYPE_CHECKING:
    from harness.report.sweep import SweepTrial


class StudyName(NamedTuple):
    """What trials belong to: a sweep, a profile, and a study, which differs where settings do."""

    sweep: str
    profile: str
    study: str
    objectives: tuple[str, ...]
    best_is_greatest: bool = True
    """Of the first objective, by which trials are ordered."""


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
    objectives, varied = [metric_name(it) for it in name.objectives], sorted(trial.params)
    return Record(
        experiment=f"sweeps/{name.sweep}/{name.profile}{suffix}",
        note=f"Trials of the sweep {name.sweep} on the profile {name.profile}, measured on "
        "validation prompts; no result.",
        view=first_view(
            f"Trials of {name.sweep}",
            [*(f"metrics.{it}" for it in objectives), *(f"params.{it}" for it in varied)],
            [Chart("Settings and objectives", objectives, varied)],
            order_by=f"metrics.{objectives[0]}",
            ascending=not name.best_is_greatest,
        ),
        identity=sha256(["trial", name.study, trial.number, suffix]),
        name=f"trial {trial.number}",
        status="FAILED" if trial.state == "fail" else "FINISHED",
        start_ms=milliseconds(trial.started or now),
        end_ms=milliseconds(trial.ended or now),
        params={path: join([value]) for path, value in trial.params.items()},
        tags=tags,
        scores=known(metrics),
        files=None if recipe is None else recipe_file({f"trial {trial.number}": dict(recipe)}),
    )


def published_sweep(results_dir: Path, profile: str, name: str) -> SweepReport | None:
    """Return a published sweep; None where there is none.

    Raises:
        HarnessError: A published file is missing or was changed.
    """
    folder = results_dir / profile / "sweeps" / name
    if not (folder / REPORT).is_file():
        return None
    check_files(folder, (REPORT,), "sweep")
    return SWEEP.read(folder)


def published_trials(results_dir: Path, suffix: str) -> Iterator[Record]:
    for path in sorted(results_dir.glob(f"*/sweeps/*/{REPORT}")):
        profile, name = path.parts[-4], path.parts[-2]
        report = published_sweep(results_dir, profile, name)
        if report is None or profile not in all_profiles():
            continue
        best = report.objectives[0].direction == "maximize"
        names = tuple(objective.name for objective in report.objectives)
        study = StudyName(name, profile, report.study, names, best_is_greatest=best)
        for trial in report.trials:
            yield trial_record(study, trial, f"results/{profile}/sweeps/{name}", suffix=suffix)


def evaluation_records(paths: Iterable[Path]) -> list[Record]:
    """Return what MLflow should hold of evaluations, by their files (`harness.evaluation.scores`).

    Raises:
        HarnessError: A file cannot be read.
    """
    return [_evaluation(path) for path in paths]


def _evaluation(path: Path) -> Record:
    found = load(path)
    source, finished = found.source, milliseconds(found.finished)
    benchmark, judge = found.benchmark, found.judge or "not said"
    replies = path.parent / REPLIES
    return Record(
        experiment=f"evaluations/{benchmark}",
        note=f"One run for each model, judge and data that harness evaluate scored on {benchmark}. "
        "A score under another judge than the benchmark's own has the judge in its name.",
        view=KIND_TAG,
        identity=sha256(
            ["evaluation", benchmark, found.model, judge, *map(list, sorted(source.items()))]
        ),
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
        scores=known(_evaluation_metrics(found)),
    )


def _evaluation_metrics(found: Kept) -> dict[str, float]:
    numbers: dict[str, float | None] = {}
    for score, column in found.columns.items():
        numbers[column] = found.scores[score]
        low, high = found.intervals.get(score) or (None, None)
        numbers[f"{column}.ci_low"], numbers[f"{column}.ci_high"] = low, high
    numbers |= {f"category/{name}": value for name, value in found.per_category.items()}
    numbers |= {f"cost/{name}": value for name, value in (found.cost or {}).items()}
    return {name: float(value) for name, value in numbers.items() if value is not None}
