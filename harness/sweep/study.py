"""The study: where its trials are kept, and what suggests the next.

Trials are kept in a journal of Optuna's in the work folder, which one command writes at a time. A
trial that is still running when the next command begins was killed with its own: its point is
queued again by Optuna's retry callback. (Optuna's heartbeats are for databases alone.)

A study is named after the sweep, the profile, and a digest of all that changes its numbers: the
declaration, and the stages of the base recipe, which cover the profile, the models and the code.
Change any of these and a new study begins; the old one stays in the journal.

Optuna keeps no sampler with a study. A new one is made for each suggestion, seeded by the sweep's
seed and the number of trials so far, so that what is suggested follows from the trials alone: a
sweep that was stopped and goes on suggests what one left alone would have.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from harness.registry.profile import Profile
from harness.report.sweep import SweepReport
from harness.runtime import Json, canonical_json
from harness.runtime.manifest import utc_now
from harness.runtime.stage import digest
from harness.sweep.declaration import Parameter, Point, Sampler, Scalar, Sweep
from harness.sweep.space import base_candidate, grid, validation_runs


class Note:
    """What a trial notes of itself: names of Optuna's user attributes. Times are ISO 8601."""

    FAILURE = "failure"  # why it failed
    STARTED = "started"
    ENDED = "ended"
    SECONDS = "seconds"  # how long it took
    REUSED = "stages reused"  # those in the store when it began
    COMPUTED = "stages computed"


optuna.logging.set_verbosity(optuna.logging.ERROR)


def journal(work_dir: Path, name: str) -> Path:
    return work_dir / "sweeps" / f"{name}.log"


def open_journal(path: Path) -> JournalStorage:
    path.parent.mkdir(parents=True, exist_ok=True)
    return JournalStorage(JournalFileBackend(str(path)))


def study_name(sweep: Sweep, profile: Profile) -> str:
    """Return the name of a sweep's study on a profile.

    Raises:
        UserError: The profile cannot run the base recipe.
    """
    runs = validation_runs(sweep, base_candidate(sweep, profile), sweep.name)
    identity: dict[str, Json] = {
        "declared": sweep.model_dump(
            mode="json", include={"space", "objectives", "seeds", "sampler", "pruner"}
        ),
        "base": [stage.fingerprint for run in runs for stage in run.targets],
    }
    return f"{sweep.name}/{profile.name}/{digest(canonical_json(identity))[:8]}"


def open_study(sweep: Sweep, name: str, path: Path) -> optuna.Study:
    study = optuna.create_study(
        storage=open_journal(path),
        study_name=name,
        sampler=RandomSampler(seed=0),
        pruner=pruner_of(sweep),
        directions=[objective.direction for objective in sweep.objectives],
        load_if_exists=True,
    )
    _name_axes(study, [objective.label for objective in sweep.objectives])
    return study


def find_study(name: str, path: Path) -> optuna.Study | None:
    """Return a study; None where it has not begun."""
    if not path.exists():
        return None
    storage = open_journal(path)
    if name not in optuna.get_all_study_names(storage):
        return None
    return optuna.load_study(study_name=name, storage=storage)


def study_of(report: SweepReport, storage: BaseStorage | None = None) -> optuna.Study:
    """Return a study with the trials of a report, for Optuna's plots and its dashboard."""
    study = optuna.create_study(
        storage=storage,
        study_name=report.study,
        directions=[StudyDirection[o.direction.upper()] for o in report.objectives],
    )
    _name_axes(study, [objective.label for objective in report.objectives])
    space = {path: _span(report, path) for path in report.space}
    for trial in report.trials:
        values = None if trial.values is None else [trial.values[o.name] for o in report.objectives]
        state = TrialState[trial.state.upper()]
        if state.is_finished() and trial.params.keys() == space.keys():
            made = optuna.create_trial(
                state=state,
                params=trial.params,
                distributions=space,
                values=values,
                intermediate_values=dict(trial.so_far) if len(report.objectives) == 1 else None,
            )
            study.add_trial(made)
    return study


def pruner_of(sweep: Sweep) -> optuna.pruners.BasePruner:
    if sweep.pruner is None:
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(
        n_startup_trials=sweep.pruner.startup_trials, n_warmup_steps=0
    )


def sampler_for(sampler: Sampler, position: int) -> BaseSampler:
    """Return what suggests the trial at a position, counted from 0.

    A grid needs none: its points are given out in order (`take`).
    """
    seed = int(np.random.SeedSequence([sampler.seed, position]).generate_state(1)[0])
    if sampler.kind != "tpe":
        return RandomSampler(seed=seed)
    with experimental():
        return TPESampler(
            n_startup_trials=sampler.startup_trials,
            seed=seed,
            multivariate=True,
            constant_liar=True,
        )


def point_of(trial: FrozenTrial | optuna.Trial) -> dict[str, Scalar]:
    """Return a trial's point; floats without the rounding errors of a stepped search."""
    return tidy(trial.params)


def tidy(point: Point) -> dict[str, Scalar]:
    """Return a point with 12 digits of each float: 0.1 + 0.2 is a setting of 0.3."""
    return {
        path: float(f"{value:.12g}") if isinstance(value, float) else value
        for path, value in point.items()
    }


def trials_of(study: optuna.Study | None) -> Sequence[FrozenTrial]:
    return [] if study is None else study.get_trials(deepcopy=False)


def standing(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count: those that began, and that no other stands for."""
    with experimental():
        again = {n for t in trials for n in RetryHeartbeatStaleTrialCallback.retry_history(t)}
    return [t for t in trials if Note.STARTED in t.user_attrs and t.number not in again]


def retry_of(trial: FrozenTrial) -> int | None:
    """Return the number of the trial whose point was queued again as this one."""
    with experimental():
        return next(reversed(RetryHeartbeatStaleTrialCallback.retry_history(trial)), None)


def requeue(sweep: Sweep, study: optuna.Study) -> list[int]:
    """Queue the points of trials that an earlier command left running; return their numbers."""
    left = [trial for trial in trials_of(study) if trial.state == TrialState.RUNNING]
    for trial in left:
        study.tell(trial.number, state=TrialState.FAIL)
        # Killed while it got its point, a trial has only some settings; another is suggested then.
        if trial.params.keys() == sweep.space.keys():
            bare = copy.copy(trial)
            bare.user_attrs = {}
            with experimental():
                RetryHeartbeatStaleTrialCallback()(study, bare)
    return [trial.number for trial in left]


def take(sweep: Sweep, study: optuna.Study, target: int) -> optuna.Trial | None:
    """Return the next trial to work on, None where the study has all it was asked for."""
    trials = trials_of(study)
    position = len(standing(trials))
    if position >= target:
        return None
    study.sampler = sampler_for(sweep.sampler, position)
    if not any(trial.state == TrialState.WAITING for trial in trials):
        taken = [point_of(trial) for trial in standing(trials)]
        wanted = [*sweep.enqueue, *(grid(sweep) if sweep.sampler.kind == "grid" else [])]
        first = next((point for point in map(tidy, wanted) if point not in taken), None)
        if first is not None:
            study.enqueue_trial(first)
    trial = study.ask({path: _distribution(it) for path, it in sweep.space.items()})
    trial.set_user_attr(Note.STARTED, utc_now())
    return trial


@contextmanager
def experimental() -> Iterator[None]:
    """Use what Optuna may change in another version, without its saying so each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def _name_axes(study: optuna.Study, names: list[str]) -> None:
    if study.metric_names != names:
        with experimental():
            study.set_metric_names(names)


def _span(report: SweepReport, path: str) -> BaseDistribution:
    """Return the values that a setting of a report took or may take."""
    values = [*report.space[path], *(t.params[path] for t in report.trials if path in t.params)]
    if all(type(value) in (int, float) for value in values):
        numbers = [float(value) for value in values]  # type: ignore[arg-type]
        if all(type(value) is int for value in values):
            return IntDistribution(int(min(numbers)), int(max(numbers)))
        return FloatDistribution(min(numbers), max(numbers))
    return CategoricalDistribution(list({repr(value): value for value in values}.values()))


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.kind == "categorical":
        return CategoricalDistribution(parameter.choices)
    assert parameter.low is not None
    assert parameter.high is not None
    if parameter.kind == "int":
        step = int(parameter.step or 1)
        return IntDistribution(
            int(parameter.low), int(parameter.high), log=parameter.log, step=step
        )
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
