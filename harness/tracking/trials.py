"""Records of what belongs to no table: sweep trials, and evaluations of external models.

    sweeps/<name>/<profile>   one run per trial
    evaluations/<benchmark>   one run per evaluation

A trial's parameters are its settings and its metrics the objectives, so MLflow can show a study in
parallel coordinates. An evaluation's identity includes the data it scored: different answers of the
same model make a new run, and the old one stays as history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.evaluation.scores import load, unreadable
from harness.runtime.manifest import utc_now
from harness.runtime.stage import fingerprint_of
from harness.tracking.record import Record, join, milliseconds, recipe_file

if TYPE_CHECKING:
    from harness.report.sweep import SweepTrial


def trial_record(study: str, trial: SweepTrial, recipe: Mapping[str, Any]) -> Record:
    """Return the record of a finished trial; `study` is `sweep/profile/digest of its settings`."""
    now, (sweep, profile, _) = utc_now(), study.split("/")
    tags = {
        "sweep": sweep,
        "study": study,
        "trial": str(trial.number),
        "trial.state": trial.state,
        "stages": f"{trial.reused} reused, {trial.computed} computed",
        "mlflow.source.name": f"harness sweep run {sweep} --profile {profile}",
        "mlflow.source.type": "LOCAL",
    }
    if trial.failure:
        tags["failure"] = trial.failure
    return Record(
        experiment=f"sweeps/{sweep}/{profile}",
        note=f"Trials of the sweep {sweep} on the profile {profile}. They are no "
        "result; the winner's scores on the benchmarks are.",
        identity=fingerprint_of(["trial", study, trial.number]),
        name=f"trial-{trial.number}",
        status="FAILED" if trial.state == "fail" else "FINISHED",
        start_ms=milliseconds(trial.started or now),
        end_ms=milliseconds(trial.ended or now),
        params={path: join([value]) for path, value in trial.params.items()},
        tags=tags,
        scores=dict(trial.values or {}),
        files=lambda: recipe_file({f"trial {trial.number}": dict(recipe)}),
    )


def evaluation_records(paths: Iterable[Path]) -> list[Record]:
    """Return the records of evaluations from their files (`harness.evaluation.scores`)."""
    return [_evaluation(path) for path in paths]


def _evaluation(path: Path) -> Record:
    found = load(path)
    try:
        return _record_of(found, path.parent)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise unreadable(path, f"{type(error).__name__}: {error}") from error


def _record_of(found: Mapping[str, Any], folder: Path) -> Record:
    source, finished = found["source"], milliseconds(found["finished"])
    benchmark, model, judge = found["benchmark"], found["model"], found["judge"] or "not said"
    return Record(
        experiment=f"evaluations/{benchmark}",
        note=f"One run for each model, judge and data that harness evaluate scored on {benchmark}. "
        "A score under another judge than the benchmark's own has the judge in its name.",
        identity=fingerprint_of(
            ["evaluation", benchmark, model, judge, *map(list, sorted(source.items()))]
        ),
        name=f"{model}-by-{judge}",
        status="FINISHED",
        start_ms=finished,
        end_ms=finished,
        params={
            "benchmark": benchmark,
            "model": model,
            "judge": judge,
            **{f"source.{name}": join([value]) for name, value in source.items()},
        },
        tags={
            "folder": str(folder),
            "n": str(found["n"]),
            "n_missing": str(found["n_missing"]),
            **{f"note.{name}": text for name, text in found["notes"].items()},
        },
        scores=_evaluation_metrics(found),
    )


def _evaluation_metrics(found: Mapping[str, Any]) -> dict[str, float]:
    numbers: dict[str, float | None] = {}
    for score, column in found["columns"].items():
        numbers[column] = found["scores"][score]
        low, high = found["intervals"].get(score) or (None, None)
        numbers[f"{column}_low"], numbers[f"{column}_high"] = low, high
    numbers |= {f"cost/{name}": value for name, value in (found["cost"] or {}).items()}
    return {name: float(value) for name, value in numbers.items() if value is not None}
