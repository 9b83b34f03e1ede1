"""What the commands do with a sweep: run, show, serve and sync it.

A run first computes what all trials share, then the trials, then the winner. Only one command at a
time works on a sweep; if it is killed or stopped, the next one resumes its trials.

Trials run in batches of `--jobs`: a batch's stages are one plan, computed by one engine with as
many workers. With a pruner, seeds run one after another, so that a poor trial can be stopped early.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import optuna
from optuna.trial import TrialState

from harness import project
from harness.errors import HarnessError, UserError
from harness.pipeline import factory, steps
from harness.pipeline.algorithm import Run
from harness.project import store_dir, work_dir
from harness.registry.declared import all_profiles
from harness.registry.profile import Profile, unsupported
from harness.report.scores import Measured
from harness.report.sweep import SweepReport
from harness.runtime import (
    HERE,
    Engine,
    EngineOptions,
    Event,
    Interrupted,
    Plan,
    RunOutcome,
    Stage,
    Store,
    Tally,
)
from harness.runtime.files import hold
from harness.selection.names import Say, ignore
from harness.sweep.declaration import Sweep, load_sweeps
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
    find_study,
    journal,
    open_journal,
    open_study,
    point_of,
    report_of,
    study_name,
    study_names,
    study_of,
    take,
    trial_line,
    trials_of,
    winner_of,
)
from harness.tracking import Mlflow
from harness.tracking.record import Record
from harness.tracking.trials import published_sweep, trial_record
from harness.words import duration
from harness.worlds.needs import refuse_missing

LEAST_BETWEEN_S = 1.0
"""Minimum time between two progress messages, in seconds."""


@dataclass(frozen=True)
class Order:
    """What a command should do with a sweep on a profile.

    `trials` overrides the declared number of trials of the study; `functions` maps stage kinds to
    `module:function`.
    """

    sweep: Sweep
    profile: Profile
    trials: int | None = None
    jobs: int = 1
    final: bool = True
    where: EngineOptions = HERE
    work_dir: Path = field(default_factory=work_dir)
    store_dir: Path = field(default_factory=store_dir)
    functions: Mapping[str, str] = field(default_factory=lambda: steps.FUNCTIONS)

    @cached_property
    def study(self) -> str:
        """Name of the study; raises `UserError` if the profile cannot run the base recipe."""
        return study_name(self.sweep, self.profile)

    @property
    def target(self) -> int:
        return self.sweep.target(self.trials)

    @property
    def journal(self) -> Path:
        return journal(self.work_dir, self.sweep.name)

    @property
    def store(self) -> Store:
        return Store(self.store_dir)

    def found(self) -> optuna.Study | None:
        return find_study(self.study, self.journal)

    def engine(self) -> Engine:
        """Return an engine for the order's stages; `jobs` is local only, clusters pack stages."""
        stages: Sequence[Stage] = ()
        if self.functions is steps.FUNCTIONS:
            base = base_candidate(self.sweep, self.profile)
            stages = plan_of(validation_runs(self.sweep, base, self.sweep.name)).stages
        logs = self.work_dir / "logs" / "sweeps" / self.sweep.name
        jobs = self.jobs if self.where.engine == "local" else None
        return factory.engine_of(
            self.profile, self.store, self.functions, logs, stages, jobs=jobs, where=self.where
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the sweep against other commands.

        Raises:
            UserError: Another command is working on it.
        """
        with hold(self.journal.with_suffix(".running"), wait=False) as mine:
            if not mine:
                raise UserError(
                    f"`harness sweep run {self.sweep.name}` is running in this work folder: wait "
                    "until it has ended; `--jobs` works on several trials at once"
                )
            yield


def shared_stages(sweep: Sweep, profile: Profile) -> list[Stage]:
    """Check the points a sweep can suggest, and return the stages that every trial needs.

    Raises:
        UserError: The profile cannot run the base recipe, a setting does not exist, or a point is
            impossible.
    """
    reasons = unsupported(base_candidate(sweep, profile).recipe, (), profile)
    if reasons:
        raise UserError(
            f"`{sweep.name}` cannot run on the profile `{profile.name}`: " + "; ".join(reasons)
        )
    check_settings(sweep, profile)
    needed: list[dict[str, Stage]] = []
    for point in points(sweep):
        found = candidate(sweep, profile, point)
        try:
            runs = validation_runs(sweep, found, sweep.name)
        except UserError as error:
            raise UserError(impossible(sweep, point, str(error))) from error
        needed.append({stage.fingerprint: stage for stage in plan_of(runs)})
    first, *others = needed
    return [stage for name, stage in first.items() if all(name in own for own in others)]


def run_sweep(
    order: Order, shared: list[Stage], say: Say, warn: Say, watch: Say = ignore
) -> SweepReport:
    """Run the study's remaining trials, then the winner; return the report.

    `watch` receives progress messages.

    Raises:
        UserError: A requirement of the stages is missing, or another command runs the sweep.
        HarnessError: A stage shared by all trials or the winner failed, or no trial is complete.
        Interrupted: Ctrl-C.
    """
    pending, here = Plan(shared).pending(order.store), order.where.engine == "local"
    for advice in refuse_missing(order.profile, pending, here=here, serves=False):
        warn(advice)
    with order.alone():
        study = open_study(order.sweep, order.study, order.journal)
        mlflow = Mlflow(order.work_dir, warn)
        ended = sum(trial.state.is_finished() for trial in trials_of(order.sweep, study))
        say(f"{order.study}: {min(ended, order.target)} of {order.target} trials done")
        with order.engine() as engine:
            conductor = Conductor(order, engine, study, mlflow, say, watch)
            if ended < order.target:
                conductor.whole("shared by all trials", Plan(shared))
                conductor.work()
            mlflow.attempt(lambda: trial_records(order, study))
            best: tuple[Run, ...] = ()
            if order.final:
                best = _winner(order, study)
                conductor.whole(
                    "winner and base recipe on the benchmarks, fresh seeds", plan_of(best)
                )
        scores = final_scores(best, order.store)
        return report_of(order.sweep, order.profile, order.study, study, scores)


def _winner(order: Order, study: optuna.Study) -> tuple[Run, ...]:
    trials = trials_of(order.sweep, study)
    best = winner_of(order.sweep, trials)
    if best is None:
        raise HarnessError(
            f"no trial of `{order.sweep.name}` is complete: `harness sweep show "
            f"{order.sweep.name}` says why they failed"
        )
    (point,) = (point_of(trial) for trial in trials if trial.number == best)
    return final_runs(order.sweep, order.profile, point)


@dataclass
class _Live:
    """A trial in progress: its runs on the validation prompts, and its outcome.

    `runs` has one run per seed, by where they stop: at the end (None), or earlier if an objective
    is measured there.
    """

    trial: optuna.Trial
    began: float = field(default_factory=time.perf_counter)
    state: TrialState = TrialState.RUNNING
    runs: dict[int | None, list[Run]] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    computed: int = 0

    def plan(self, seeds: Sequence[int]) -> Plan:
        return plan_of([runs[seed] for seed in seeds for runs in self.runs.values()])

    def fail(self, why: str) -> None:
        self.state = TrialState.FAIL
        self.trial.set_user_attr(Note.FAILURE, why)


@dataclass
class Conductor:
    """Runs trials until the study has enough; `say` gets a line when a trial starts and ends.

    `watch` receives progress messages.
    """

    order: Order
    engine: Engine
    study: optuna.Study
    mlflow: Mlflow
    say: Say
    watch: Say = ignore

    def whole(self, what: str, plan: Plan) -> None:
        """Compute a plan that the sweep requires.

        Raises:
            HarnessError: A stage failed.
        """
        self.say(f"{what}: {self._reused(plan)}")
        outcome = self._compute(what, plan)
        if not outcome.ok:
            stage, reason = next(iter(outcome.failed.items()))
            raise HarnessError(
                f"{what}: the stage {stage.title} failed: {reason}; run the same command to try "
                "again"
            )

    def work(self) -> None:
        """Run trials until the study has enough.

        Raises:
            Interrupted: Ctrl-C.
        """
        sweep = self.order.sweep
        seeds = list(range(len(sweep.seeds)))
        rounds = [[seed] for seed in seeds] if sweep.pruner else [seeds]
        while batch := self._batch():
            for live in batch:
                self._plan(live)
            for some in rounds:
                running = [live for live in batch if live.state == TrialState.RUNNING]
                if running:
                    self._round(running, some)
            for live in batch:
                self._end(live)

    def _batch(self) -> list[_Live]:
        batch: list[_Live] = []
        while len(batch) < self.order.jobs:
            held = [live.trial.number for live in batch]
            trial = take(self.order.sweep, self.study, self.order.target, held)
            if trial is None:
                break
            batch.append(_Live(trial))
        return batch

    def _plan(self, live: _Live) -> None:
        trial, sweep = live.trial, self.order.sweep
        run_id = f"{sweep.name}-t{trial.number}"
        try:
            found = candidate(sweep, self.order.profile, point_of(trial))
            for after in dict.fromkeys([None, *(o.after for o in sweep.objectives)]):
                live.runs[after] = validation_runs(sweep, found, run_id, after)
        except HarnessError as error:
            live.fail(str(error))
            return
        plan = live.plan(range(len(sweep.seeds)))
        trial.set_user_attr(Note.REUSED, len(plan) - len(plan.pending(self.engine.store)))
        self.say(f"trial {trial.number} · {point_text(point_of(trial))}: {self._reused(plan)}")

    def _round(self, running: Sequence[_Live], seeds: Sequence[int]) -> None:
        """Compute some seeds of the running trials and evaluate them."""
        plans = [live.plan(seeds) for live in running]
        numbers = ", ".join(str(live.trial.number) for live in running)
        try:
            outcome = self._compute(
                f"trial {numbers} of {self.order.target}",
                Plan(stage for plan in plans for stage in plan.stages),
            )
        except (KeyboardInterrupt, Interrupted) as error:
            raise Interrupted(
                f"stopped in trial {numbers}: run the same command again to go on from there"
            ) from error
        failed = {**outcome.failed, **outcome.skipped}
        for live, plan in zip(running, plans, strict=True):
            own = {stage.fingerprint for stage in plan}
            live.computed += sum(stage.fingerprint in own for stage in outcome.finished)
            wrong = [f"{s.title}: {why}" for s, why in failed.items() if s.fingerprint in own]
            try:
                if wrong:
                    raise HarnessError(wrong[0])
                self._look(live, seeds)
            except HarnessError as error:
                live.fail(str(error))

    def _look(self, live: _Live, seeds: Sequence[int]) -> None:
        """Add some seeds to a trial's objectives; it continues, is pruned, or is complete."""
        trial, sweep = live.trial, self.order.sweep
        for seed in seeds:
            for o in sweep.objectives:
                value = objective_value(o.measure, live.runs[o.after][seed], self.engine.store)
                live.sums[o.name] = live.sums.get(o.name, 0.0) + value
            known = self.study.trials[trial.number].intermediate_values
            if len(live.sums) == 1 and seed + 1 not in known:
                (so_far,) = live.sums.values()
                trial.report(so_far / (seed + 1), step=seed + 1)
        if not all(map(math.isfinite, live.sums.values())):
            raise HarnessError(f"an objective is not a number: {live.sums}")
        if seeds[-1] + 1 == len(sweep.seeds):
            live.state = TrialState.COMPLETE
        elif trial.should_prune():
            live.state = TrialState.PRUNED

    def _end(self, live: _Live) -> None:
        trial, sweep, values = live.trial, self.order.sweep, None
        if live.state == TrialState.COMPLETE:
            values = [total / len(sweep.seeds) for total in live.sums.values()]
        trial.set_user_attr(Note.COMPUTED, live.computed)
        trial.set_user_attr(Note.SECONDS, round(time.perf_counter() - live.began, 1))
        ended = trial_line(sweep, self.study.tell(trial, values, state=live.state))
        self.mlflow.attempt(lambda: trial_records(self.order, self.study))
        what = ended.outcome(len(sweep.seeds))
        took = f"({ended.seconds or 0:.0f} s)"
        self.say(f"trial {trial.number} · {what} {took} · {self._standing()}")

    def _compute(self, head: str, plan: Plan) -> RunOutcome:
        tally = Tally(plan, self.engine.store, self.order.jobs, factory.EXPECTED_S)
        told = 0.0

        def observe(event: Event) -> None:
            nonlocal told
            tally.observe(event)
            if time.monotonic() - told >= LEAST_BETWEEN_S:
                told = time.monotonic()
                left = duration(tally.remaining_s())
                self.watch(f"{head} · {tally.done} of {tally.total} stages · about {left} left")

        self.engine.on_event = observe
        return self.engine.run(plan)

    def _reused(self, plan: Plan) -> str:
        missing = len(plan.pending(self.engine.store))
        return f"{len(plan) - missing} of {len(plan)} stages reused, {missing} to compute"

    def _standing(self) -> str:
        """Return the sweep's progress; time left is estimated from the mean of finished trials."""
        trials, target = trials_of(self.order.sweep, self.study), self.order.target
        took = [t.user_attrs.get(Note.SECONDS, 0.0) for t in trials if t.state.is_finished()]
        left_s = math.fsum(took) / len(took) * (target - len(took)) / self.order.jobs
        words = f"{len(took)} of {target} trials done"
        return f"{words}, about {duration(left_s)} left" if left_s else words


def trial_records(order: Order, study: optuna.Study) -> list[Record]:
    sweep, profile = order.sweep, order.profile
    return [
        trial_record(
            order.study,
            sweep.objectives,
            trial_line(sweep, trial),
            f"harness sweep run {sweep.name}",
            candidate(sweep, profile, point_of(trial)).recipe.canonical(),
        )
        for trial in trials_of(sweep, study)
        if trial.state.is_finished()
    ]


def stored_report(order: Order) -> SweepReport:
    """Return a sweep's report from what is stored, computing nothing."""
    study = order.found()
    scores: Measured = {}
    if study is not None and winner_of(order.sweep, trials_of(order.sweep, study)) is not None:
        scores = final_scores(_winner(order, study), order.store)
    return report_of(order.sweep, order.profile, order.study, study, scores)


def dashboard_command(order: Order, port: int) -> list[str]:
    """Return the command that serves optuna-dashboard for a sweep on the loopback interface.

    A sweep that was not run here is shown from its published trials.

    Raises:
        UserError: optuna-dashboard is not installed, or there are no trials.
    """
    if find_spec("optuna_dashboard") is None:
        raise UserError(
            "optuna-dashboard is not installed: install the extra `sweeps`, "
            "`pip install 'eva-harness[sweeps]'`"
        )
    where, name = order.journal, order.sweep.name
    if order.found() is None:
        report = published_sweep(project.results_dir(), order.profile.name, name)
        if report is None:
            raise UserError(
                f"there are no trials of `{name}` yet; run the sweep first: "
                f"`harness sweep run {name}`"
            )
        where = where.with_suffix(".published.log")
        where.unlink(missing_ok=True)
        study_of(report, open_journal(where))
    code = "from optuna_dashboard._cli import main; main()"
    options = ["--host", "127.0.0.1", "--port", str(port), "--server", "wsgiref"]
    return [sys.executable, "-c", code, str(where), *options]


def sync_sweeps(warn: Say) -> dict[str, Counter[str]]:
    """Write the finished trials of the work folder's studies to MLflow; return changes by study.

    Studies whose settings differ from the current declarations are skipped.

    Raises:
        TrackingError: MLflow cannot be reached, or rejects a write.
    """
    done, profiles = {}, all_profiles()
    for sweep in load_sweeps().values():
        path = journal(work_dir(), sweep.name)
        for name in study_names(path):
            profile = profiles.get(name.split("/")[1])
            order = None if profile is None else Order(sweep, profile)
            study = find_study(name, path)
            if order is not None and study is not None and order.study == name:
                records = trial_records(order, study)
                done[name.rpartition("/")[0]] = Mlflow(order.work_dir, warn).write(records)
    return done
