"""What a sweep has found, as plain data: read from its study and from the store.

Importances are fANOVA's, of each objective alone, and the same for the same trials. With few
trials, or when all came out the same, there is nothing to divide and they are not given.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from harness.registry.profile import Profile
from harness.report.scores import Measured
from harness.report.sweep import SweepObjective, SweepReport, SweepTrial, winner_scores
from harness.sweep.claims import counted
from harness.sweep.declaration import Sweep
from harness.sweep.notes import (
    COMPUTED,
    DONE_AGAIN,
    ENDED,
    FAILURE,
    MLFLOW_RUN,
    RETRY_OF,
    REUSED,
    SECONDS,
    STARTED,
)
from harness.sweep.study import point_of, trials_of

FEWEST_TRIALS = 5
"""Complete trials below which no importances are given."""


def report_of(
    sweep: Sweep,
    profile: Profile,
    name: str,
    study: optuna.Study | None,
    measured: Measured | None = None,
) -> SweepReport:
    """Return what a sweep has found so far.

    Args:
        sweep: The sweep.
        profile: The profile it runs on.
        name: The study's name.
        study: The study; None where it has not begun.
        measured: Per-prompt scores of the winner and the base recipe; none where not run.
    """
    trials = trials_of(study)
    front = pareto_front(sweep, trials)
    return SweepReport(
        name=sweep.name,
        question=" ".join(sweep.question.split()),
        profile=profile.name,
        scale=profile.scale,
        study=name,
        space={path: tuple(parameter.values()) for path, parameter in sweep.space.items()},
        objectives=tuple(
            SweepObjective(name=o.name, measure=o.measure, direction=o.direction, unit=o.unit)
            for o in sweep.objectives
        ),
        sampler=f"{sweep.sampler.kind}, seed {sweep.sampler.seed}",
        pruner=None if sweep.pruner is None else f"{sweep.pruner.kind}, after each seed",
        seeds=sweep.seeds,
        result_seeds=sweep.result.seeds,
        target=sweep.target(),
        counted=counted(trials),
        trials=tuple(
            trial_line(sweep, trial) for trial in trials if trial.state != TrialState.WAITING
        ),
        winner=winner_of(sweep, trials),
        pareto=front if len(sweep.objectives) > 1 else None,
        importances=importances(sweep, study),
        benchmarks=winner_scores(
            measured or {}, sweep.name, sweep.result.seeds, tuple(profile.scores)
        ),
        measured=measured or {},
    )


def trial_line(sweep: Sweep, trial: FrozenTrial) -> SweepTrial:
    """Return one trial as plain data."""
    notes = trial.user_attrs
    complete = trial.state == TrialState.COMPLETE
    names = [objective.name for objective in sweep.objectives]
    failed = trial.state == TrialState.FAIL
    return SweepTrial(
        number=trial.number,
        state=trial.state.name.lower(),
        params=point_of(trial),
        values=dict(zip(names, trial.values, strict=True)) if complete else None,
        so_far=dict(sorted(trial.intermediate_values.items())),
        started=notes.get(STARTED),
        ended=notes.get(ENDED),
        seconds=notes.get(SECONDS),
        reused=notes.get(REUSED, 0),
        computed=notes.get(COMPUTED, 0),
        failure=(notes.get(FAILURE) or notes.get(DONE_AGAIN) or "unknown") if failed else None,
        done_again=DONE_AGAIN in notes,
        retry_of=notes.get(RETRY_OF),
        mlflow_run=notes.get(MLFLOW_RUN),
    )


def winner_of(sweep: Sweep, trials: Sequence[FrozenTrial]) -> int | None:
    """Return the number of the best complete trial, None where there is none.

    The first objective decides, the others break ties in their order, then the earlier trial.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        return None
    return min(complete, key=lambda trial: (_losses(sweep, trial), trial.number)).number


def pareto_front(sweep: Sweep, trials: Sequence[FrozenTrial]) -> tuple[int, ...]:
    """Return the numbers of the complete trials that no other is better than, best first.

    Better is: no worse in any objective and better in one. Of trials that are equal in all, the
    earliest stands for the others.
    """
    losses: dict[tuple[float, ...], int] = {}
    for trial in trials:
        if trial.state == TrialState.COMPLETE:
            losses.setdefault(_losses(sweep, trial), trial.number)
    front = [
        (loss, number)
        for loss, number in losses.items()
        if not any(
            other != loss and all(a <= b for a, b in zip(other, loss, strict=True))
            for other in losses
        )
    ]
    return tuple(number for _, number in sorted(front))


def importances(sweep: Sweep, study: optuna.Study | None) -> dict[str, dict[str, float]] | None:
    """Return each setting's share in the variance of each objective, None with too few trials."""
    complete = [t for t in trials_of(study) if t.state == TrialState.COMPLETE]
    if study is None or len(complete) < FEWEST_TRIALS:
        return None
    found = {}
    for i, objective in enumerate(sweep.objectives):
        if len({trial.values[i] for trial in complete}) > 1:
            found[objective.name] = _importances(study, i)
    return found or None


def _importances(study: optuna.Study, i: int) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shares = optuna.importance.get_param_importances(
            study,
            evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0),
            target=lambda trial: trial.values[i],
        )
    return {path: float(share) for path, share in shares.items()}


def _losses(sweep: Sweep, trial: FrozenTrial) -> tuple[float, ...]:
    """Return a complete trial's objectives, each the better the less."""
    return tuple(
        -value if objective.direction == "maximize" else value
        for objective, value in zip(sweep.objectives, trial.values, strict=True)
    )
