"""What a sweep has found: its trials, the winner beside the base recipe, and Optuna's pictures.

The best of many trials owes part of its score to luck, and the more trials the more of it. With
fresh seeds and other prompts that part is gone. The base recipe is run with the same seeds, so
that the gain is paired by seed and prompt.

Importances are fANOVA's, of each objective alone, and the same for the same trials. With few
trials, or when all came out the same, there is nothing to divide and they are not given.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from harness.pipeline.algorithm import Planner, Run
from harness.registry.profile import Profile
from harness.report.plots import Picture, Target
from harness.report.scores import Measured, read_values
from harness.report.sweep import (
    SweepReport,
    SweepTrial,
    base_run,
    winner_run,
    winner_scores,
)
from harness.runtime import Plan, Store
from harness.sweep.declaration import Point, Sweep
from harness.sweep.space import base_candidate, candidate
from harness.sweep.study import Note, point_of, study_of, trials_of
from harness.worlds.lookup import world_of

FEWEST_TRIALS = 5
"""Complete trials below which no importances are given."""


def report_of(
    sweep: Sweep,
    profile: Profile,
    name: str,
    study: optuna.Study | None,
    measured: Measured | None = None,
) -> SweepReport:
    """Return what a sweep has found so far; no study is one that has not begun."""
    trials = trials_of(sweep, study)
    return SweepReport(
        name=sweep.name,
        question=" ".join(sweep.question.split()),
        profile=profile.name,
        scale=profile.scale,
        study=name,
        space={path: tuple(parameter.values()) for path, parameter in sweep.space.items()},
        objectives=sweep.objectives,
        sampler=f"{sweep.sampler.kind}, seed {sweep.sampler.seed}",
        pruner=None if sweep.pruner is None else f"{sweep.pruner.kind}, after each seed",
        seeds=sweep.seeds,
        result_seeds=sweep.result.seeds,
        target=sweep.target(),
        counted=len(trials),
        trials=tuple(trial_line(sweep, trial) for trial in trials),
        winner=winner_of(sweep, trials),
        pareto=pareto_front(sweep, study) if len(sweep.objectives) > 1 else None,
        importances=importances(sweep, study),
        benchmarks=winner_scores(
            measured or {}, sweep.name, sweep.result.seeds, tuple(profile.scores)
        ),
        measured=measured or {},
    )


def trial_line(sweep: Sweep, trial: FrozenTrial) -> SweepTrial:
    """Return one trial as plain data."""
    notes = trial.user_attrs
    names = [objective.name for objective in sweep.objectives]
    complete = trial.state == TrialState.COMPLETE
    return SweepTrial(
        number=trial.number,
        state=trial.state.name.lower(),
        params=point_of(trial),
        values=dict(zip(names, trial.values, strict=True)) if complete else None,
        so_far=dict(sorted(trial.intermediate_values.items())),
        started=_in_utc(trial.datetime_start),
        ended=_in_utc(trial.datetime_complete),
        seconds=notes.get(Note.SECONDS),
        reused=notes.get(Note.REUSED, 0),
        computed=notes.get(Note.COMPUTED, 0),
        failure=notes.get(Note.FAILURE),
    )


def _in_utc(local: datetime | None) -> str | None:
    return None if local is None else local.astimezone(UTC).isoformat(timespec="seconds")


def winner_of(sweep: Sweep, trials: Sequence[FrozenTrial]) -> int | None:
    """Return the number of the best complete trial, None where there is none.

    The first objective decides, the others break ties in their order, then the earlier trial.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    best = min(complete, key=lambda t: (_losses(sweep, t), t.number), default=None)
    return None if best is None else best.number


def pareto_front(sweep: Sweep, study: optuna.Study | None) -> tuple[int, ...]:
    """Return the numbers of the trials that Optuna finds no other better than, best first.

    Of trials that are equal in all, the earliest stands for the others.
    """
    found: dict[tuple[float, ...], int] = {}
    for trial in [] if study is None else study.best_trials:
        found.setdefault(_losses(sweep, trial), trial.number)
    return tuple(number for _, number in sorted(found.items()))


def importances(sweep: Sweep, study: optuna.Study | None) -> dict[str, dict[str, float]] | None:
    """Return each setting's share in the variance of each objective, None with too few trials."""
    complete = [t for t in trials_of(sweep, study) if t.state == TrialState.COMPLETE]
    if study is None or len(complete) < FEWEST_TRIALS:
        return None
    found = {}
    for i, objective in enumerate(sweep.objectives):
        if len({trial.values[i] for trial in complete}) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                shares = optuna.importance.get_param_importances(
                    study,
                    evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0),
                    target=lambda trial, i=i: trial.values[i],  # type: ignore[misc]
                )
            found[objective.name] = {path: float(share) for path, share in shares.items()}
    return found or None


def _losses(sweep: Sweep, trial: FrozenTrial) -> tuple[float, ...]:
    """Return a complete trial's objectives, each the better the less."""
    return tuple(
        -value if objective.direction == "maximize" else value
        for objective, value in zip(sweep.objectives, trial.values, strict=True)
    )


def final_runs(sweep: Sweep, profile: Profile, point: Point) -> tuple[Run, ...]:
    """Return the runs of a point and of the base recipe with the fresh seeds.

    Raises:
        UserError: The profile cannot run them.
    """
    best, base = candidate(sweep, profile, point), base_candidate(sweep, profile)
    named = {winner_run(sweep.name): best}
    if (best.recipe.canonical(), best.profile) != (base.recipe.canonical(), base.profile):
        named[base_run(sweep.name)] = base
    return tuple(
        Planner(world_of(found.profile)).run(run_id, found.recipe, seed)
        for run_id, found in named.items()
        for seed in sweep.result.seeds
    )


def plan_of(runs: Sequence[Run]) -> Plan:
    return Plan(stage for run in runs for stage in run.targets)


def final_scores(runs: Sequence[Run], store: Store) -> Measured:
    """Return the per-prompt scores of the winner's and the base's runs; empty while one lacks."""
    if plan_of(runs).pending(store):
        return {}
    return {
        (run.run_id, run.seed, score): dict(sorted(values.items()))
        for run in runs
        for stage in run.judged.values()
        for (score,), values in read_values(
            store.open(stage.fingerprint) / "scores.parquet", "column"
        ).items()
    }


def pictures(report: SweepReport) -> list[Picture]:
    """Return the plots that have anything to show."""
    if not report.complete:
        return []
    from optuna.visualization import matplotlib as plots

    study, first = study_of(report), report.objectives[0].label
    both = [objective.label for objective in report.objectives[:2]]
    of_first: dict[str, Any] = {"target": lambda t: t.values[0], "target_name": first}
    wanted: list[tuple[str, str, Callable[[], Any]]] = [
        ("history", f"{first} by trial, and the best so far",
         partial(plots.plot_optimization_history, study, **of_first)),
        ("slice", f"{first} at each setting", partial(plots.plot_slice, study, **of_first)),
    ]  # fmt: skip
    if report.importances:
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        draw = partial(plots.plot_param_importances, study, evaluator, **of_first)
        wanted.append(("importances", f"Importances of the settings for {first}", draw))
    if report.pareto:
        both_of: Any = {"targets": lambda t: t.values[:2], "target_names": both}
        draw = partial(plots.plot_pareto_front, study, **both_of)
        wanted.append(("pareto", "Pareto front of the first two objectives", draw))
    return [
        Picture(title, f"{name}.svg", title, partial(_draw, name, draw))
        for name, title, draw in wanted
    ]


def _draw(name: str, draw: Callable[[], Any], target: Target) -> None:
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings: dict[Any, Any] = {"svg.hashsalt": name}
    with warnings.catch_warnings(), matplotlib.rc_context(settings):
        warnings.simplefilter("ignore")
        axes = np.asarray(draw(), dtype=object).flat[0]
        axes.figure.savefig(target, format="svg", metadata={"Date": None}, bbox_inches="tight")
        pyplot.close(axes.figure)
