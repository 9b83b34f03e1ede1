"""The study: where its trials are kept, and what suggests the next.

Trials are kept in a journal of Optuna's in the work folder, which one command writes at a time. A
trial that is still running when the next command begins was killed with its own, and is finished.

A study is named after the sweep, the profile, and a digest of all that changes its numbers: the
declaration, and the stages of the base recipe, which cover the profile, the models and the code.
Change any of these and a new study begins; the old one stays in the journal.

Optuna keeps no sampler with a study. A new one is made for each suggestion, seeded by the sweep's
seed and the number of trials so far, so that what is suggested follows from the trials alone: a
sweep that was stopped and goes on suggests what one left alone would have.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
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
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from harness.registry.profile import Profile
from harness.report.sweep import Scalar, SweepReport
from harness.runtime import Json
from harness.runtime.stage import fingerprint_of
from harness.sweep.declaration import Parameter, Point, Sampler, Sweep
from harness.sweep.space import base_candidate, grid, validation_runs


class Note:
    """What a trial notes of itself: names of Optuna's user attributes."""

    FAILURE = "failure"  # why it failed
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
    return f"{sweep.name}/{profile.name}/{fingerprint_of(identity)[:8]}"


def open_study(sweep: Sweep, name: str, path: Path) -> optuna.Study:
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if sweep.pruner is not None:
        pruner = optuna.pruners.MedianPruner(n_startup_trials=sweep.pruner.startup_trials)
    study = optuna.create_study(
        storage=open_journal(path),
        study_name=name,
        sampler=RandomSampler(seed=0),
        pruner=pruner,
        directions=[objective.direction for objective in sweep.objectives],
        load_if_exists=True,
    )
    _name_axes(study, [objective.label for objective in sweep.objectives])
    return study


def study_names(path: Path) -> list[str]:
    return optuna.get_all_study_names(open_journal(path)) if path.exists() else []


def find_study(name: str, path: Path) -> optuna.Study | None:
    """Return a study; None where it has not begun."""
    if name not in study_names(path):
        return None
    return optuna.load_study(study_name=name, storage=open_journal(path))


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


def trials_of(sweep: Sweep, study: optuna.Study | None) -> list[FrozenTrial]:
    """Return the trials that have a point: one killed while it got its own has only half."""
    known = [] if study is None else study.get_trials(deepcopy=False)
    return [trial for trial in known if trial.params.keys() == sweep.space.keys()]


def take(
    sweep: Sweep, study: optuna.Study, target: int, held: Collection[int] = ()
) -> optuna.Trial | None:
    """Return the next trial to work on, None where the study has all it was asked for.

    One that a killed command left running comes first; those that are `held` are worked on.
    """
    trials = trials_of(sweep, study)
    for trial in trials:
        if trial.state == TrialState.RUNNING and trial.number not in held:
            return optuna.Trial(study, trial._trial_id)
    if len(trials) >= target:
        return None
    study.sampler = sampler_for(sweep.sampler, len(trials))
    if not any(t.state == TrialState.WAITING for t in study.get_trials(deepcopy=False)):
        taken = [point_of(trial) for trial in trials]
        wanted = [*sweep.enqueue, *(grid(sweep) if sweep.sampler.kind == "grid" else [])]
        first = next((point for point in map(tidy, wanted) if point not in taken), None)
        if first is not None:
            study.enqueue_trial(first)
    return study.ask({path: _distribution(it) for path, it in sweep.space.items()})


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
    numbers = [value for value in values if type(value) in (int, float)]
    if len(numbers) < len(values):
        return CategoricalDistribution(list({repr(value): value for value in values}.values()))
    low, high = min(map(float, numbers)), max(map(float, numbers))  # type: ignore[arg-type]
    if all(type(value) is int for value in values):
        return IntDistribution(int(low), int(high))
    return FloatDistribution(low, high)


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.kind == "categorical":
        return CategoricalDistribution(parameter.choices)
    low, high, step = parameter.span
    if parameter.kind == "int":
        return IntDistribution(int(low), int(high), log=parameter.log, step=int(step))
    return FloatDistribution(low, high, log=parameter.log, step=parameter.step)
