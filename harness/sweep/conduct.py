"""What the commands do with a sweep: run, show and sync it.

Only one command at a time works on a sweep. A trial that failed, or that a stopped command left
unfinished, is queued again; its finished stages are in the store.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean

import optuna

from harness.errors import HarnessError, UserError
from harness.pipeline import factory
from harness.pipeline.algorithm import Run
from harness.pipeline.estimate import timings_of
from harness.project import store_dir, work_dir
from harness.registry.declared import all_profiles
from harness.registry.profile import Profile
from harness.report.sweep import SweepReport, winner_scores
from harness.runtime import Engine, EngineOptions, Event, Plan, Stage, Store
from harness.runtime.engine import LOCAL
from harness.runtime.files import hold
from harness.runtime.plan import Interrupted, Tally
from harness.sweep.declaration import SearchPoint, Sweep, load_sweeps
from harness.sweep.space import (
    base_candidate,
    candidate,
    check_settings,
    final_runs,
    final_scores,
    impossible,
    objective_value,
    plan_of,
    point_text,
    points,
    validation_runs,
)
from harness.sweep.study import (
    Note,
    declared_points,
    ended_trials,
    find_study,
    open_study,
    pareto_front,
    point_of,
    storage_file,
    study_name,
    study_names,
    suggest,
    trial_line,
    trials_left,
    trials_of,
    winner_of,
)
from harness.tracking import Mlflow
from harness.tracking.record import Record
from harness.tracking.trials import trial_record
from harness.words import Say, ignore, time_left
from harness.worlds.lookup import world_of
from harness.worlds.needs import refuse_missing

LEAST_BETWEEN_S = 1.0
"""Minimum seconds between progress messages: computing the time left walks the whole plan."""


@dataclass(frozen=True)
class Order:
    """What a command should do with a sweep; `trials` overrides the declared number."""

    sweep: Sweep
    profile: Profile
    trials: int | None = None
    jobs: int | None = None
    final: bool = True
    where: EngineOptions = LOCAL

    @cached_property
    def study(self) -> str:
        """Name of the study; raises `UserError` if the profile cannot run the base recipe."""
        return study_name(self.sweep, self.profile)

    @property
    def target(self) -> int:
        return self.sweep.target(self.trials)

    @property
    def file(self) -> Path:
        return storage_file(self.sweep.name)

    @cached_property
    def sample(self) -> Plan:
        """What a point needs, as a trial and as the winner: every kind of stage there is."""
        point = points(self.sweep)[0]
        found = candidate(self.sweep, self.profile, point)
        runs = validation_runs(self.sweep, found, self.sweep.name)
        if self.final:
            runs += final_runs(self.sweep, self.profile, point)
        return plan_of(runs)

    def engine(self) -> Engine:
        stages = self.sample.stages
        logs = work_dir() / "logs" / "sweeps" / self.sweep.name
        store = Store(store_dir())
        return factory.engine_of(
            self.profile, store, logs, stages, jobs=self.jobs, where=self.where
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the sweep against other commands."""
        with hold(self.file.with_suffix(".running"), wait=False) as mine:
            if not mine:
                raise UserError(
                    f"`harness sweep run {self.sweep.name}` is running in this work folder: wait "
                    "until it has ended"
                )
            yield


def shared_stages(sweep: Sweep, profile: Profile) -> list[Stage]:
    """Check the points a sweep can suggest, and return the stages that every trial needs."""
    base_candidate(sweep, profile)  # first: its error says why the profile can run no point at all
    check_settings(sweep, profile)
    needed: list[dict[Stage, None]] = []
    for point in points(sweep):
        found = candidate(sweep, profile, point)
        try:
            runs = validation_runs(sweep, found, sweep.name)
        except UserError as error:
            raise UserError(impossible(sweep, point, str(error))) from error
        needed.append(dict.fromkeys(plan_of(runs)))
    first, *others = needed
    return [stage for stage in first if all(stage in own for own in others)]


def run_sweep(
    order: Order, shared: list[Stage], say: Say, warn: Say, watch: Say = ignore
) -> SweepReport:
    """Run the study's remaining trials, then the winner; return the report."""
    sweep, here = order.sweep, order.where.engine == "local"
    pending = order.sample.pending(Store(store_dir()))
    for advice in refuse_missing(order.profile, pending, here=here, serves=False):
        warn(advice)
    with order.alone():
        study, mlflow = open_study(sweep, order.study, order.target), Mlflow(work_dir(), warn)

        def ended() -> int:
            return len(trials_of(study))

        def tell(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
            mlflow.attempt(lambda: trial_records(order, study))
            outcome = trial_line(sweep, trial).outcome
            say(f"trial {trial.number} · {outcome} · {ended()} of {order.target} trials done")

        say(f"{order.study}: {min(ended(), order.target)} of {order.target} trials done")
        with order.engine() as engine:
            objective = Objective(order, engine, say, watch)
            if left := trials_left(study, order.target):
                objective.compute("shared by all trials", Plan(shared))
                if sweep.sampler.kind == "grid":
                    objective.compute_grid()
                study.optimize(
                    objective,
                    n_trials=left,
                    catch=(TrialFailed,),
                    callbacks=[tell],
                )
            mlflow.attempt(lambda: trial_records(order, study))
            if order.final:
                best = winner_of(sweep, trials_of(study))
                if best is None:
                    raise HarnessError(
                        f"no trial of `{sweep.name}` is complete: the lines of the trials say why, "
                        "and the same command tries them again"
                    )
                what = "winner and base recipe on the benchmarks, fresh seeds"
                runs = final_runs(sweep, order.profile, point_of(best))
                objective.compute(what, plan_of(runs))
        return stored_report(order)


class TrialFailed(HarnessError):
    """A trial failed, for the reason in its notes, and the study continues with the next one."""


@dataclass
class Objective:
    """Computes the stages of a trial, and measures them."""

    order: Order
    engine: Engine
    say: Say
    watch: Say = ignore
    _uncounted: set[Stage] = field(default_factory=set, init=False)
    """Stages computed for the whole grid that no trial has counted as its own yet."""

    def __call__(self, trial: optuna.Trial) -> tuple[float, ...]:
        """Return the trial's objectives, means over the seeds."""
        try:
            return self._measured(trial, suggest(self.order.sweep, trial))
        except Interrupted:
            raise
        except HarnessError as error:
            trial.set_user_attr(Note.FAILURE, str(error))
            raise TrialFailed(str(error)) from error

    def _measured(self, trial: optuna.Trial, point: SearchPoint) -> tuple[float, ...]:
        sweep, store = self.order.sweep, self.engine.store
        runs = self._runs(point, str(trial.number))
        whole = plan_of([run for several in runs.values() for run in several])
        own = {*whole.pending(store)} | self._uncounted.intersection(whole)
        self._uncounted -= own
        trial.set_user_attr(Note.REUSED, len(whole) - len(own))
        trial.set_user_attr(Note.COMPUTED, len(own))
        self.compute(f"trial {trial.number} · {point_text(point)}", whole)
        means = tuple(
            fmean(objective_value(it.measure, run, store) for run in runs[it.after])
            for it in sweep.objectives
        )
        if not all(map(math.isfinite, means)):
            raise HarnessError(f"an objective is not a number: {means}")
        return means

    def compute_grid(self) -> None:
        """Compute all points of a grid in one plan; a stage that fails fails in its trial."""
        asked = enumerate(declared_points(self.order.sweep)[: self.order.target])
        runs = [self._runs(point, str(i)).values() for i, point in asked]
        plan = plan_of([run for some in runs for several in some for run in several])
        self._uncounted = {*plan.pending(self.engine.store)}
        self._run("all points of the grid", plan)

    def compute(self, what: str, plan: Plan) -> None:
        for stage, reason in self._run(what, plan).items():
            raise HarnessError(f"the stage {stage.title} failed: {reason}")

    def _runs(self, point: SearchPoint, number: str) -> dict[int | None, list[Run]]:
        """Return a trial's run for each seed, by where they stop: at the end (None), or earlier."""
        sweep = self.order.sweep
        found = candidate(sweep, self.order.profile, point)
        stops = dict.fromkeys([None, *(objective.after for objective in sweep.objectives)])
        run_id = f"{sweep.name}-t{number}"
        return {after: validation_runs(sweep, found, run_id, after) for after in stops}

    def _run(self, what: str, plan: Plan) -> dict[Stage, str]:
        """Compute a plan; return the stages that failed, with the reasons."""
        store = self.engine.store
        missing, told = len(plan.pending(store)), 0.0
        timings = timings_of(plan, store, self.order.profile)
        workers = factory.workers_of(self.order.profile, self.order.jobs)
        tally = Tally(plan, store, workers, timings.expected, timings.is_timed)
        self.say(
            f"{what}: {len(plan) - missing} of {len(plan)} stages reused, {missing} to compute"
        )

        def observe(event: Event) -> None:
            nonlocal told
            tally.observe(event)
            if time.monotonic() - told >= LEAST_BETWEEN_S:
                told = time.monotonic()
                left = time_left(tally.remaining_s(), tally.least_s())
                self.watch(f"{what} · {tally.done} of {tally.total} stages · {left}")

        self.engine.on_event, self.engine.expected = observe, timings.expected
        return dict(self.engine.run(plan).failed)


def trial_records(order: Order, study: optuna.Study | None) -> list[Record]:
    sweep, profile = order.sweep, order.profile
    return [
        trial_record(
            order.study,
            trial_line(sweep, trial),
            candidate(sweep, profile, point_of(trial)).recipe.canonical(),
        )
        for trial in ended_trials(study)
    ]


def stored_report(order: Order) -> SweepReport:
    """Return a sweep's report from what is stored, computing nothing."""
    sweep, profile = order.sweep, order.profile
    study = find_study(order.study, order.file)
    trials = trials_of(study)
    best = winner_of(sweep, trials)
    runs = () if best is None else final_runs(sweep, profile, point_of(best))
    measured = final_scores(runs, Store(store_dir()))
    return SweepReport(
        name=sweep.name,
        question=" ".join(sweep.question.split()),
        profile=profile.name,
        scale=profile.scale,
        held_out=not world_of(profile).has_validation_prompts,
        study=order.study,
        space={path: tuple(parameter.values()) for path, parameter in sweep.space.items()},
        objectives=sweep.objectives,
        sampler=f"{sweep.sampler.kind}, seed {sweep.sampler.seed}",
        seeds=sweep.seeds,
        result_seeds=sweep.result.seeds,
        target=max(sweep.target(), len(trials)),
        counted=len(trials),
        trials=tuple(trial_line(sweep, trial) for trial in trials),
        winner=None if best is None else best.number,
        pareto=pareto_front(sweep, study) if len(sweep.objectives) > 1 else None,
        benchmarks=winner_scores(measured, sweep.name, sweep.result.seeds, tuple(profile.scores)),
        measured=measured,
    )


def sync_sweeps(warn: Say) -> dict[str, Counter[str]]:
    """Write the finished trials of the work folder's studies to MLflow; return changes by study."""
    done, profiles = {}, all_profiles()
    for sweep in load_sweeps().values():
        path = storage_file(sweep.name)
        for name in study_names(path):
            profile = profiles.get(name.split("/")[1])
            if profile is not None and (order := Order(sweep, profile)).study == name:
                records = partial(trial_records, order, find_study(name, path))
                done[name.rpartition("/")[0]] = Mlflow(work_dir(), warn).write(records)
    return done
