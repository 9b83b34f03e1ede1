"""Optuna's side of a sweep: the stored study, its points and its trials.

A study is in a file of the work folder, which optuna-dashboard opens. Its name contains a digest of
everything that decides what a trial is worth, so that other settings make another study.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from harness.project import sweeps_dir
from harness.registry.objective import Scalar
from harness.registry.profile import Profile
from harness.report.sweep import SweepTrial
from harness.runtime.stage import Json, fingerprint_of
from harness.sweep.declaration import Sweep
from harness.sweep.space import base_candidate, grid, validation_runs


class Note:
    """Names of a trial's Optuna user attributes."""

    FAILURE = "failure"  # why it failed
    RETRY = "retry"  # of a trial that failed
    REUSED = "stages reused"  # in the store when it started
    COMPUTED = "stages computed"


optuna.logging.set_verbosity(optuna.logging.ERROR)


def storage_file(name: str) -> Path:
    """Return the file with a sweep's studies, which optuna-dashboard opens."""
    return sweeps_dir() / f"{name}.log"


def _storage(path: Path) -> JournalStorage:
    path.parent.mkdir(parents=True, exist_ok=True)
    return JournalStorage(JournalFileBackend(str(path)))


def study_name(sweep: Sweep, profile: Profile) -> str:
    runs = validation_runs(sweep, base_candidate(sweep, profile), sweep.name)
    identity: dict[str, Json] = {
        "declared": sweep.model_dump(
            mode="json", include={"space", "objectives", "seeds", "sampler"}
        ),
        "base": [stage.fingerprint for run in runs for stage in run.targets],
    }
    return f"{sweep.name}/{profile.name}/{fingerprint_of(identity)[:8]}"


def open_study(sweep: Sweep, name: str, target: int) -> optuna.Study:
    """Create or resume a study, and queue the points that it must try to reach its target.

    These are the declared ones, and those of unfinished and failed trials.
    """
    study = optuna.create_study(
        storage=_storage(storage_file(sweep.name)),
        study_name=name,
        directions=[objective.direction for objective in sweep.objectives],
        load_if_exists=True,
    )
    study.sampler = _sampler(sweep, len(study.trials))
    with warnings.catch_warnings(action="ignore"):  # experimental features
        study.set_metric_names([objective.label for objective in sweep.objectives])
    for point in declared_points(sweep)[:target]:
        study.enqueue_trial(point, skip_if_exists=True)
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    known = [_asked(trial) for trial in study.trials if trial.state != TrialState.FAIL]
    # A point that failed is among the trials that have ended, even if it was also stopped once.
    for trial in sorted(study.get_trials(states=(TrialState.FAIL,)), key=_was_stopped):
        point = _asked(trial)
        if point.keys() == sweep.space.keys() and point not in known:
            known.append(point)
            study.enqueue_trial(point, user_attrs={Note.RETRY: not _was_stopped(trial)})
    return study


def declared_points(sweep: Sweep) -> list[dict[str, Scalar]]:
    """Return the points to try first, in order: those declared, then all others of a grid."""
    points = [dict(point) for point in sweep.enqueue]
    if sweep.sampler.kind == "grid":
        points += [point for point in grid(sweep) if point not in points]
    return points


def trials_left(study: optuna.Study, target: int) -> int:
    """Return how many trials are left: those up to the target, and retries of failed ones."""
    waiting = study.get_trials(states=(TrialState.WAITING,))
    retries = sum(bool(trial.user_attrs.get(Note.RETRY)) for trial in waiting)
    return max(0, target - len(trials_of(study))) + retries


def _asked(trial: FrozenTrial) -> dict[str, Scalar]:
    """Return a trial's point as it was queued, or as far as it was drawn."""
    return trial.system_attrs.get("fixed_params") or trial.params


def _was_stopped(trial: FrozenTrial) -> bool:
    """Return whether a trial ended because its command did."""
    return trial.state == TrialState.FAIL and Note.FAILURE not in trial.user_attrs


def study_names(path: Path) -> list[str]:
    return optuna.get_all_study_names(_storage(path)) if path.exists() else []


def find_study(name: str, path: Path) -> optuna.Study | None:
    if name not in study_names(path):
        return None
    return optuna.load_study(study_name=name, storage=_storage(path))


def _sampler(sweep: Sweep, made: int) -> BaseSampler:
    """Return the sampler of the next trials; for a grid, all points are queued already."""
    seed = sweep.sampler.seed + made
    if sweep.sampler.kind != "tpe":
        return RandomSampler(seed=seed)
    with warnings.catch_warnings(action="ignore"):  # experimental features
        return TPESampler(
            n_startup_trials=sweep.sampler.n_startup_trials, seed=seed, multivariate=True
        )


def suggest(sweep: Sweep, trial: optuna.Trial) -> dict[str, Scalar]:
    """Let Optuna choose a trial's point."""
    for path, parameter in sweep.space.items():
        method, arguments = parameter.call
        getattr(trial, method)(path, **arguments)
    return point_of(trial)


def point_of(trial: FrozenTrial | optuna.Trial) -> dict[str, Scalar]:
    """Return a trial's point, without the rounding errors of a stepped search (0.1 + 0.2)."""
    return {
        path: float(f"{value:.12g}") if isinstance(value, float) else value
        for path, value in trial.params.items()
    }


def ended_trials(study: optuna.Study | None) -> list[FrozenTrial]:
    """Return the trials that ended by themselves, not because their command did."""
    known = [] if study is None else study.get_trials(deepcopy=False)
    return [trial for trial in known if trial.state.is_finished() and not _was_stopped(trial)]


def trials_of(study: optuna.Study | None) -> list[FrozenTrial]:
    """Return the ended trials that count: one that tries a failed one again takes its place."""
    found: list[FrozenTrial] = []
    for trial in ended_trials(study):
        if trial.user_attrs.get(Note.RETRY):
            failed = (it for it in found if it.state == TrialState.FAIL)
            before = next((it for it in failed if _asked(it) == _asked(trial)), None)
            found = [it for it in found if it is not before]
        found.append(trial)
    return found


def trial_line(sweep: Sweep, trial: FrozenTrial) -> SweepTrial:
    notes = trial.user_attrs
    names = [objective.name for objective in sweep.objectives]
    complete = trial.state == TrialState.COMPLETE
    return SweepTrial(
        number=trial.number,
        state=trial.state.name.lower(),
        params=point_of(trial),
        values=dict(zip(names, trial.values, strict=True)) if complete else None,
        started=_in_utc(trial.datetime_start),
        ended=_in_utc(trial.datetime_complete),
        seconds=None if trial.duration is None else round(trial.duration.total_seconds(), 1),
        reused=notes.get(Note.REUSED, 0),
        computed=notes.get(Note.COMPUTED, 0),
        failure=notes.get(Note.FAILURE),
    )


def _in_utc(local: datetime | None) -> str | None:
    return None if local is None else local.astimezone(UTC).isoformat(timespec="seconds")


def winner_of(sweep: Sweep, trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Return the best complete trial, or None: by the objectives in order, then the earliest."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return min(complete, key=lambda t: (_losses(sweep, t), t.number), default=None)


def pareto_front(sweep: Sweep, study: optuna.Study | None) -> tuple[int, ...]:
    """Return the numbers of the trials on the Pareto front, best first."""
    found: dict[tuple[float, ...], int] = {}
    for trial in [] if study is None else study.best_trials:
        found.setdefault(_losses(sweep, trial), trial.number)
    return tuple(number for _, number in sorted(found.items()))


def _losses(sweep: Sweep, trial: FrozenTrial) -> tuple[float, ...]:
    """Return a complete trial's objectives, signed so that lower is better."""
    return tuple(
        objective.loss(value)
        for objective, value in zip(sweep.objectives, trial.values, strict=True)
    )
