"""The study: where its trials are stored, how the next is suggested, and what they found.

Trials are stored in an Optuna journal in the work folder, written by one command at a time. A trial
that is still running when the next command starts was killed, and that command completes it.

A study is named after the sweep, the profile, and a digest of everything that changes its numbers:
the declaration, and the stages of the base recipe, which cover the profile, the models and the
code. Changing any of these starts a new study; the old one stays in the journal.

Optuna does not store samplers with a study. A new sampler is made for each suggestion, seeded by
the sweep's seed and the number of trials so far, so suggestions depend on the trials alone: a
resumed sweep suggests what an uninterrupted one would have.

Importances are computed with fANOVA for each objective separately, and are deterministic. With few
trials, or none that differ, there is no variance to attribute and they are omitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

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

from harness.registry.objective import Scalar
from harness.registry.profile import Profile
from harness.report.plots import Picture, Target
from harness.report.scores import Measured
from harness.report.sweep import SweepReport, SweepTrial, winner_scores
from harness.runtime import Json
from harness.runtime.stage import fingerprint_of
from harness.sweep.declaration import Parameter, Sampler, SearchPoint, Sweep
from harness.sweep.space import base_candidate, grid, validation_runs


class Note:
    """Names of a trial's Optuna user attributes."""

    FAILURE = "failure"  # why it failed
    SECONDS = "seconds"  # how long it took
    REUSED = "stages reused"  # in the store when it started
    COMPUTED = "stages computed"


FEWEST_TRIALS = 5
"""Minimum number of complete trials for importances."""

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
            made.datetime_start, made.datetime_complete = map(_local, (trial.started, trial.ended))
            study.add_trial(made)
    return study


def sampler_for(sampler: Sampler, position: int) -> BaseSampler:
    """Return the sampler for the trial at a position, counted from 0.

    A grid ignores it: its points are enqueued in order (`take`).
    """
    seed = int(np.random.SeedSequence([sampler.seed, position]).generate_state(1)[0])
    if sampler.kind != "tpe":
        return RandomSampler(seed=seed)
    with _quiet():
        return TPESampler(
            n_startup_trials=sampler.startup_trials,
            seed=seed,
            multivariate=True,
            constant_liar=True,
        )


def point_of(trial: FrozenTrial | optuna.Trial) -> dict[str, Scalar]:
    """Return a trial's point, without the rounding errors of a stepped search."""
    return tidy(trial.params)


def tidy(point: SearchPoint) -> dict[str, Scalar]:
    """Round a point's floats to 12 significant digits: 0.1 + 0.2 becomes 0.3."""
    return {
        path: float(f"{value:.12g}") if isinstance(value, float) else value
        for path, value in point.items()
    }


def trials_of(sweep: Sweep, study: optuna.Study | None) -> list[FrozenTrial]:
    """Return the trials with a full point; one killed while being suggested has a partial point."""
    known = [] if study is None else study.get_trials(deepcopy=False)
    return [trial for trial in known if trial.params.keys() == sweep.space.keys()]


def take(
    sweep: Sweep, study: optuna.Study, target: int, held: Collection[int] = ()
) -> optuna.Trial | None:
    """Return the next trial to work on, or None if the study has reached its target.

    Trials that a killed command left running come first; those in `held` are already in progress.
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
def _quiet() -> Iterator[None]:
    """Suppress warnings, such as Optuna's about its experimental features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _name_axes(study: optuna.Study, names: list[str]) -> None:
    if study.metric_names != names:
        with _quiet():
            study.set_metric_names(names)


def _span(report: SweepReport, path: str) -> BaseDistribution:
    """Return the distribution that covers the values that a setting took or may take."""
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


# --- What was found ---


def report_of(
    sweep: Sweep,
    profile: Profile,
    name: str,
    study: optuna.Study | None,
    measured: Measured | None = None,
) -> SweepReport:
    """Return a sweep's report so far; `study` is None if it has not been started."""
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


def _local(in_utc: str | None) -> datetime | None:
    """Return a time as Optuna keeps it: local, without a time zone."""
    if in_utc is None:
        return None
    return datetime.fromisoformat(in_utc).astimezone().replace(tzinfo=None)


def winner_of(sweep: Sweep, trials: Sequence[FrozenTrial]) -> int | None:
    """Return the number of the best complete trial, or None if there is none.

    The first objective decides; ties are broken by the others in order, then by the earlier trial.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    best = min(complete, key=lambda t: (_losses(sweep, t), t.number), default=None)
    return None if best is None else best.number


def pareto_front(sweep: Sweep, study: optuna.Study | None) -> tuple[int, ...]:
    """Return the numbers of the trials on the Pareto front, best first.

    Trials with equal objectives are represented by the earliest.
    """
    found: dict[tuple[float, ...], int] = {}
    for trial in [] if study is None else study.best_trials:
        found.setdefault(_losses(sweep, trial), trial.number)
    return tuple(number for _, number in sorted(found.items()))


def importances(sweep: Sweep, study: optuna.Study | None) -> dict[str, dict[str, float]] | None:
    """Return each setting's share of each objective's variance, or None with too few trials."""
    complete = [t for t in trials_of(sweep, study) if t.state == TrialState.COMPLETE]
    if study is None or len(complete) < FEWEST_TRIALS:
        return None
    found = {}
    for i, objective in enumerate(sweep.objectives):
        if len({trial.values[i] for trial in complete}) > 1:
            with _quiet():
                shares = optuna.importance.get_param_importances(
                    study,
                    evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0),
                    target=lambda trial, i=i: trial.values[i],  # type: ignore[misc]
                )
            found[objective.name] = {path: float(share) for path, share in shares.items()}
    return found or None


def _losses(sweep: Sweep, trial: FrozenTrial) -> tuple[float, ...]:
    """Return a complete trial's objectives, signed so that lower is better."""
    return tuple(
        -value if objective.direction == "maximize" else value
        for objective, value in zip(sweep.objectives, trial.values, strict=True)
    )


def sweep_pictures(report: SweepReport) -> list[Picture]:
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
    with _quiet(), matplotlib.rc_context(settings):
        axes = np.asarray(draw(), dtype=object).flat[0]
        axes.figure.savefig(target, format="svg", metadata={"Date": None}, bbox_inches="tight")
        pyplot.close(axes.figure)
