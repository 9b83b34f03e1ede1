"""The study: which trials belong together, and what suggests the next one.

A study is named after the sweep, the profile, and a digest of all that changes its numbers: the
declaration, and the stages of the base recipe, which cover the profile, the models and the code.
Change any of these and a new study begins; the old one stays in the storage.

Optuna keeps no sampler with a study. A new one is made for each suggestion, seeded by the sweep's
seed and the number of trials so far, so that what is suggested follows from the trials alone: a
sweep that was stopped and goes on suggests what one left alone would have.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial
from sqlalchemy.exc import SQLAlchemyError

from harness.errors import UserError
from harness.registry.profile import Profile
from harness.runtime import canonical_json
from harness.sweep.declaration import Parameter, Point, Sampler, Scalar, Sweep
from harness.sweep.objective import validation_runs
from harness.sweep.space import base_candidate
from harness.sweep.storage import unusable


def study_name(sweep: Sweep, profile: Profile) -> str:
    """Return the name of a sweep's study on a profile.

    Raises:
        UserError: The profile cannot run the base recipe.
    """
    runs = validation_runs(sweep, base_candidate(sweep, profile), sweep.name)
    identity = {
        "declared": sweep.model_dump(
            mode="json", include={"space", "objectives", "seeds", "sampler", "pruner"}
        ),
        "base": [stage.fingerprint for run in runs for stage in run.targets],
    }
    digest = hashlib.sha256(canonical_json(identity).encode("ascii")).hexdigest()
    return f"{sweep.name}/{profile.name}/{digest[:8]}"


def open_study(sweep: Sweep, name: str, storage: BaseStorage, where: str) -> optuna.Study:
    """Return a study, created where absent; call it under the sweep's lock.

    Args:
        sweep: The sweep.
        name: The study's name.
        storage: Where trials are kept.
        where: The storage's URL, for messages.

    Raises:
        UserError: The storage cannot be used.
    """
    try:
        return optuna.create_study(
            storage=storage,
            study_name=name,
            sampler=RandomSampler(seed=0),
            pruner=pruner_of(sweep),
            directions=[objective.direction for objective in sweep.objectives],
            load_if_exists=True,
        )
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, OSError) as error:
        raise UserError(unusable(where, error)) from error


def find_study(name: str, storage: BaseStorage, where: str) -> tuple[optuna.Study | None, int]:
    """Return a study that exists, or None, and how many of other settings its sweep has.

    Raises:
        UserError: The storage cannot be used.
    """
    try:
        names = optuna.get_all_study_names(storage)
        family = name.rpartition("/")[0]
        others = sum(n.rpartition("/")[0] == family and n != name for n in names)
        found = optuna.load_study(study_name=name, storage=storage) if name in names else None
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, OSError) as error:
        raise UserError(unusable(where, error)) from error
    return found, others


def pruner_of(sweep: Sweep) -> optuna.pruners.BasePruner:
    """Return the sweep's pruner."""
    if sweep.pruner is None:
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(
        n_startup_trials=sweep.pruner.startup_trials, n_warmup_steps=0
    )


def sampler_for(sampler: Sampler, position: int) -> BaseSampler:
    """Return what suggests the trial at a position, counted from 0.

    A grid needs none: its points are given out in order (`harness.sweep.claims`).
    """
    seed = int(np.random.SeedSequence([sampler.seed, position]).generate_state(1)[0])
    if sampler.kind != "tpe":
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(
            n_startup_trials=sampler.startup_trials,
            seed=seed,
            multivariate=True,
            constant_liar=True,
        )


def distributions(sweep: Sweep) -> dict[str, BaseDistribution]:
    """Return the search space as Optuna has it."""
    return {path: _distribution(parameter) for path, parameter in sweep.space.items()}


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
    """Return a study's trials in order; none where there is no study yet."""
    return [] if study is None else study.get_trials(deepcopy=False)


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
