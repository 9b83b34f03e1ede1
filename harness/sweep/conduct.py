"""A whole `sweep run`: what all trials share first, then the trials, then the winner.

Trials are worked on in batches of `--jobs`: the stages of a batch are one plan, which one engine
computes with so many workers, so that what its trials share is computed once. Where a pruner looks
after each seed, seeds are run one after the other, and a trial that is worse than most on the first
is spared the others.

One command at a time works on a sweep. What it was doing when it was killed or stopped, the next
one does again.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import optuna
from optuna.trial import TrialState

from harness.errors import HarnessError, UserError
from harness.preflight import refuse_to_start
from harness.project import results_dir, store_dir, work_dir
from harness.registry.declared import all_profiles
from harness.registry.profile import Profile, unsupported
from harness.registry.recipe import Recipe
from harness.report.scores import Measured
from harness.report.sweep import SweepReport, digits
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
from harness.runtime.leases import hold
from harness.runtime.manifest import utc_now
from harness.sweep.declaration import Sweep, load_sweeps
from harness.sweep.results import (
    Final,
    final_runs,
    final_scores,
    report_of,
    run_final,
    trial_line,
    winner_of,
)
from harness.sweep.space import (
    base_candidate,
    by_prompt,
    candidate,
    check_settings,
    first_parts,
    impossible,
    measured,
    on_validation,
    points,
    shown,
    validation_runs,
)
from harness.sweep.study import (
    Note,
    check_sampler,
    cut_off_unfinished,
    find_study,
    journal,
    open_journal,
    open_study,
    point_of,
    requeue,
    standing,
    study_name,
    study_of,
    take,
    trials_of,
)
from harness.tracking import Source, StudyName, TrialTracker
from harness.tracking.published import published_sweep
from harness.trainer import factory, steps
from harness.trainer.plan import Run
from harness.words import duration

Say = Callable[[str], None]

MOST_PROMPTS = 100_000
"""More than a seed has validation prompts."""

LEAST_BETWEEN_S = 1.0
"""Seconds between two words about where a sweep stands."""


@dataclass(frozen=True)
class Order:
    """What a command is to do of a sweep.

    Attributes:
        sweep: The declaration.
        profile: The profile it runs on.
        study: Name of the study.
        target: Trials the study shall have.
        jobs: Trials that are worked on at once.
        until: Time (seconds since 1970) from which no trial is begun; None for no limit.
        final: Whether the winner is run after the trials.
        where: Where stages are computed.
        functions: `module:function` by stage kind.
    """

    sweep: Sweep
    profile: Profile
    study: str
    target: int
    jobs: int = 1
    until: float | None = None
    final: bool = True
    work_dir: Path = field(default_factory=work_dir)
    store_dir: Path = field(default_factory=store_dir)
    where: EngineOptions = HERE
    functions: Mapping[str, str] = field(default_factory=lambda: steps.FUNCTIONS)
    preload: tuple[str, ...] = ()

    @property
    def journal(self) -> Path:
        """The file with the trials."""
        return journal(self.work_dir, self.sweep.name)

    def engine(self) -> Engine:
        """Return an engine for the order's stages; a cluster packs stages itself."""
        return self.where.make(
            Store(self.store_dir),
            dict(self.functions),
            self.work_dir / "logs" / "sweeps" / self.sweep.name,
            jobs=self.jobs if self.where.engine == "local" else None,
            preload=self.preload,
            fallback=factory.EXPECTED_S,
            threads=self.profile.threads,
            hardware=factory.hardware_of(self.profile),
            needs=factory.needs_of(self.profile),
        )

    def run_id(self, trial: int) -> str:
        """Return what a trial's runs are called."""
        return f"{self.sweep.name}-t{trial}"

    def tracker(self, warn: Say, *, must: bool = False) -> TrialTracker:
        """Return what writes the order's trials to MLflow; where it `must`, a failure is raised."""
        objectives = self.sweep.objectives
        name = StudyName(
            self.sweep.name,
            self.profile.name,
            self.study,
            tuple(objective.name for objective in objectives),
            best_is_greatest=objectives[0].direction == "maximize",
        )
        return TrialTracker(self.work_dir, Store(self.store_dir), name, warn, must=must)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other commands from the sweep.

        Raises:
            UserError: One works on it.
        """
        with hold(self.journal.with_suffix(".running"), wait=False) as mine:
            if not mine:
                raise UserError(
                    f"`harness sweep run {self.sweep.name}` is running in this work folder: wait "
                    "until it has ended; `--jobs` works on several trials at once"
                )
            yield


def order_of(
    sweep: Sweep,
    profile: Profile,
    trials: int | None = None,
    jobs: int = 1,
    where: EngineOptions = HERE,
    *,
    final: bool = True,
) -> Order:
    """Return what is to be done of a sweep, with another number of trials than it declares.

    Raises:
        UserError: The profile cannot run the base recipe.
    """
    runs = validation_runs(sweep, base_candidate(sweep, profile), sweep.name)
    hours = sweep.budget.hours if sweep.budget else None
    return Order(
        sweep=sweep,
        profile=profile,
        study=study_name(sweep, profile),
        target=sweep.target(trials),
        jobs=jobs,
        until=None if hours is None else time.time() + 3600 * hours,
        final=final,
        where=where,
        preload=tuple(factory.needed_modules(Plan(t for run in runs for t in run.targets).stages)),
    )


def shared_stages(sweep: Sweep, profile: Profile) -> list[Stage]:
    """Check what a sweep can suggest, and return the stages that every trial needs.

    Raises:
        UserError: The profile cannot run the base recipe, a setting does not exist, or some point
            is impossible.
    """
    reasons = unsupported(base_candidate(sweep, profile).recipe, (), profile)
    if reasons:
        raise UserError(
            f"`{sweep.name}` cannot run on the profile `{profile.name}`: " + "; ".join(reasons)
        )
    check_settings(sweep, profile)
    check_sampler(sweep.sampler)
    shared: dict[str, Stage] | None = None
    for point in points(sweep):
        found = candidate(sweep, profile, point)
        try:
            runs = validation_runs(sweep, found, sweep.name)
        except UserError as error:
            raise UserError(impossible(sweep, point, error)) from error
        stages = {stage.fingerprint: stage for run in runs for stage in Plan(run.targets)}
        kept = stages if shared is None else shared
        shared = {name: stage for name, stage in kept.items() if name in stages}
    return list((shared or {}).values())


def run_sweep(
    order: Order,
    shared: list[Stage],
    say: Say,
    warn: Say,
    watch: Say = lambda words: None,
) -> SweepReport:
    """Run the trials a study lacks, then the winner; return what was found.

    `watch` takes where the sweep stands.

    Raises:
        UserError: What the stages need is not on this machine, or another command runs the sweep.
        HarnessError: A stage that all need failed, or the winner failed.
        Interrupted: Ctrl-C.
    """
    pending, here = Plan(shared).pending(Store(order.store_dir)), order.where.engine == "local"
    for advice in refuse_to_start(order.profile, pending, here=here):
        warn(advice)
    with order.alone():
        cut_off_unfinished(order.journal)
        study = open_study(order.sweep, order.study, order.journal)
        for number in requeue(order.sweep, study):
            say(f"trial {number} · its command was stopped; its point is tried again")
        tracker = order.tracker(warn)
        done = len(standing(trials_of(study)))
        say(f"{order.study}: {min(done, order.target)} of {order.target} trials done")
        with order.engine() as engine:
            worker = Worker(order, engine, study, tracker, say, watch)
            if done < order.target:
                worker.share(shared)
                worker.work()
            track_rest(order, study, tracker)
            best = _winner(order, study, worker) if order.final else None
        scores = {} if best is None else final_scores(best, Store(order.store_dir))
        return report_of(order.sweep, order.profile, order.study, study, scores)


def dashboard_command(order: Order, port: int) -> list[str]:
    """Return the command that serves optuna-dashboard's pages of a sweep on this machine.

    Of one that was not run here, they are those of the published study.

    Raises:
        UserError: It is not installed, or there are no trials.
    """
    if find_spec("optuna_dashboard") is None:
        raise UserError(
            "optuna-dashboard is not installed: install the extra `sweeps`, "
            "`pip install 'eva-harness[sweeps]'`"
        )
    where, name = order.journal, order.sweep.name
    if find_study(order.study, where)[0] is None:
        report = published_sweep(results_dir(), order.profile.name, name)
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


def stored_report(order: Order) -> tuple[SweepReport, int]:
    """Return what a sweep has found, without computing anything, and its number of old studies."""
    sweep, profile = order.sweep, order.profile
    study, others = find_study(order.study, order.journal)
    best = winner_of(sweep, trials_of(study))
    scores: Measured = {}
    if study is not None and best is not None:
        point = point_of(trials_of(study)[best])
        scores = final_scores(final_runs(sweep, profile, point), Store(order.store_dir))
    return report_of(sweep, profile, order.study, study, scores), others


def sync_sweeps(warn: Say) -> dict[str, int]:
    """Write all ended trials of the work folder's studies to MLflow; return how many, by study.

    Studies under other settings than those declared now are left out.

    Raises:
        UserError: MLflow is a file in a folder that cannot be written, and lacks a trial.
        TrackingError: MLflow cannot be reached, or refuses what is written.
    """
    done = {}
    for sweep in load_sweeps().values():
        if not journal(work_dir(), sweep.name).exists():
            continue
        for profile in all_profiles().values():
            try:
                order = order_of(sweep, profile)
            except UserError:
                continue  # it cannot run there, so it has no study
            study, _ = find_study(order.study, order.journal)
            if study is not None:
                tracker = order.tracker(warn, must=True)
                track_rest(order, study, tracker, again=not tracker.is_read_only())
                done[f"{sweep.name}/{profile.name}"] = len(trials_of(study))
    return done


def track_rest(
    order: Order, study: optuna.Study, tracker: TrialTracker, *, again: bool = False
) -> None:
    """Write the ended trials that MLflow lacks: those it was away for, and killed ones.

    `again` also writes those that it had, should another server be meant now.
    """
    trials = trials_of(study)
    counted = {trial.number for trial in standing(trials)}
    for trial in trials:
        line = trial_line(order.sweep, trial, stands=trial.number in counted)
        known = line.mlflow_run and trial.number in counted and not again
        if not trial.state.is_finished() or known:
            continue
        if trial.params.keys() != order.sweep.space.keys():
            continue
        found = candidate(order.sweep, order.profile, point_of(trial))
        runs = validation_runs(order.sweep, found, order.run_id(trial.number))
        tracker.write(line, runs, on_validation(found.profile), source_of(order, found.recipe))


def source_of(order: Order, recipe: Recipe) -> Source:
    """Return where a trial of a recipe comes from."""
    return Source(f"harness sweep run {order.sweep.name}", recipe=recipe.canonical())


class _Pruned(Exception):
    """A trial is worse than most and need not go on."""


@dataclass
class _Work:
    """A trial that is worked on: its runs on the validation prompts, and what comes of it.

    `early` has the runs that end earlier, by what they end after, for objectives that ask for it,
    `first` the first parts of its runs, for a pruner that looks at them.
    """

    trial: optuna.Trial
    began: float = field(default_factory=time.perf_counter)
    state: TrialState = TrialState.RUNNING
    values: list[float] | None = None
    runs: list[Run] = field(default_factory=list)
    early: dict[int, list[Run]] = field(default_factory=dict)
    first: list[Run] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    computed: int = 0
    profile: Profile | None = None
    source: Source | None = None

    def of_seeds(self, seeds: Iterable[int]) -> list[Run]:
        """Return the runs of some seeds, by their places."""
        return [runs[seed] for seed in seeds for runs in (self.runs, *self.early.values())]

    def at(self, seed: int, after: int | None) -> Run:
        """Return the run of a seed that an objective is measured of."""
        return self.runs[seed] if after is None else self.early[after][seed]


class Worker:
    """Works on trials until the study has enough; says a line when one begins and when it ends."""

    def __init__(
        self,
        order: Order,
        engine: Engine,
        study: optuna.Study,
        tracker: TrialTracker,
        say: Say,
        watch: Say = lambda words: None,
    ) -> None:
        self._order = order
        self._engine = engine
        self._store = engine.store
        self._study = study
        self.tracker = tracker
        self.say = say
        self._watch = watch

    def share(self, shared: list[Stage]) -> None:
        """Compute what every trial needs.

        Raises:
            HarnessError: A stage failed.
        """
        plan = Plan(shared)
        missing = len(plan.pending(self._store))
        if not missing:
            return
        self.say(f"shared by all trials: {len(plan) - missing} of {len(plan)} stages reused, "
                 f"{missing} to compute")  # fmt: skip
        outcome = self.compute("shared by all trials", plan)
        if not outcome.ok:
            stage, reason = next(iter(outcome.failed.items()))
            raise HarnessError(
                f"a stage that every trial needs failed, {stage.title}: {reason}; run the same "
                "command to try again"
            )

    def work(self) -> None:
        """Work until the study has enough trials, or the time is up.

        Raises:
            Interrupted: Ctrl-C.
        """
        order = self._order
        while order.until is None or time.time() < order.until:
            batch: list[_Work] = []
            while len(batch) < order.jobs:
                trial = take(order.sweep, self._study, order.target)
                if trial is None:
                    break
                batch.append(_Work(trial))
            if not batch:
                return
            self._work_on(batch)

    def compute(self, head: str, plan: Plan) -> RunOutcome:
        """Compute a plan, and let be seen where it stands."""
        tally = Tally(plan, self._store, self._order.jobs, factory.EXPECTED_S)
        said = 0.0

        def observe(event: Event) -> None:
            nonlocal said
            tally.observe(event)
            if time.monotonic() - said >= LEAST_BETWEEN_S:
                said = time.monotonic()
                left = duration(tally.remaining_s())
                self._watch(f"{head} · {tally.done} of {tally.total} stages · about {left} left")

        self._engine.on_event(observe)
        return self._engine.run(plan)

    def _work_on(self, batch: list[_Work]) -> None:
        """Run some trials, whatever comes of them."""
        sweep = self._order.sweep
        for work in batch:
            self._unless_failed(work, lambda work=work: self._plan(work))  # type: ignore[misc]
        seeds = range(len(sweep.seeds))
        rounds = [[seed] for seed in seeds] if sweep.pruner else [list(seeds)]
        with self.tracker.computing({work.trial.number: work.runs for work in batch}):
            for work in batch:
                if work.state == TrialState.RUNNING:
                    self._track(work)
            if sweep.pruner is not None and sweep.pruner.early:
                self._round(batch, lambda work: work.first, self._look_early)
            for places in rounds:
                self._round(
                    batch,
                    lambda work, places=places: work.of_seeds(places),  # type: ignore[misc]
                    lambda work, places=places: self._look(work, places),  # type: ignore[misc]
                )
            for work in batch:
                self._end(work)

    def _plan(self, work: _Work) -> None:
        """Plan the runs of a trial and say what is there of them."""
        trial, order, sweep = work.trial, self._order, self._order.sweep
        found = candidate(sweep, order.profile, point_of(trial))
        work.profile, work.source = on_validation(found.profile), source_of(order, found.recipe)
        run_id = order.run_id(trial.number)
        work.runs = validation_runs(sweep, found, run_id)
        for after in {o.after for o in sweep.objectives if o.after is not None}:
            work.early[after] = validation_runs(sweep, found, run_id, after)
        if sweep.pruner is not None and sweep.pruner.early:
            work.first = first_parts(sweep, found, run_id)
        work.sums, work.spent = [0.0] * len(sweep.objectives), [0.0] * len(sweep.limits)
        planned = [*work.first, *work.of_seeds(range(len(sweep.seeds)))]
        plan = Plan(stage for run in planned for stage in run.targets)
        missing = len(plan.pending(self._store))
        trial.set_user_attr(Note.REUSED, len(plan) - missing)
        self.say(
            f"trial {trial.number} · {shown(point_of(trial))}: {len(plan) - missing} of "
            f"{len(plan)} stages reused, {missing} to compute"
        )

    def _round(
        self,
        batch: Sequence[_Work],
        runs_of: Callable[[_Work], Sequence[Run]],
        look: Callable[[_Work], None],
    ) -> None:
        """Compute some runs of each trial that goes on, and look at what they are worth."""
        live = [work for work in batch if work.state == TrialState.RUNNING]
        if not live:
            return
        plans = {w.trial.number: Plan(t for run in runs_of(w) for t in run.targets) for w in live}
        numbers = ", ".join(map(str, plans))
        try:
            outcome = self.compute(
                f"trial {numbers} of {self._order.target}",
                Plan(stage for plan in plans.values() for stage in plan.stages),
            )
        except (KeyboardInterrupt, Interrupted) as error:
            raise Interrupted(
                f"stopped in trial {numbers}: run the same command again to go on from there"
            ) from error
        for work in live:

            def settle(work: _Work = work) -> None:
                own = {stage.fingerprint for stage in plans[work.trial.number]}
                work.computed += sum(stage.fingerprint in own for stage in outcome.finished)
                work.trial.set_user_attr(Note.COMPUTED, work.computed)
                for stage, reason in [*outcome.failed.items(), *outcome.skipped.items()]:
                    if stage.fingerprint in own:
                        raise HarnessError(f"{stage.title}: {reason}")
                look(work)

            self._unless_failed(work, settle)

    def _unless_failed(self, work: _Work, do: Callable[[], None]) -> None:
        try:
            do()
        except _Pruned:
            work.state = TrialState.PRUNED
        except HarnessError as error:
            work.state = TrialState.FAIL
            work.trial.set_user_attr(Note.FAILURE, str(error))

    @property
    def _by_prompt(self) -> bool:
        pruner = self._order.sweep.pruner
        return pruner is not None and pruner.kind == "wilcoxon"

    def _look_early(self, work: _Work) -> None:
        """Show the pruner the first parts of the runs; raise _Pruned where they are enough."""
        measure = self._order.sweep.objectives[0].measure
        if self._by_prompt:
            for seed, run in enumerate(work.first):
                self._report_prompts(work, run, seed - len(work.first))
        else:
            values = [measured(measure, run, self._store) for run in work.first]
            work.trial.report(math.fsum(values) / len(values), step=0)
        if work.trial.should_prune():
            raise _Pruned

    def _look(self, work: _Work, places: Sequence[int]) -> None:
        """Take in some seeds; raise _Pruned where they are enough."""
        sweep, total = self._order.sweep, len(self._order.sweep.seeds)
        for seed in places:
            for i, objective in enumerate(sweep.objectives):
                run = work.at(seed, objective.after)
                work.sums[i] += measured(objective.measure, run, self._store)
            for i, limit in enumerate(sweep.limits):
                work.spent[i] += measured(limit.measure, work.runs[seed], self._store) / total
            if len(sweep.objectives) == 1:
                self._report(work, seed)
        if places[-1] + 1 < total:
            if work.trial.should_prune():
                raise _Pruned
            return
        for limit, spent in zip(sweep.limits, work.spent, strict=True):
            work.trial.set_constraint(limit.measure, spent - limit.at_most)
        means = [found / total for found in work.sums]
        if not all(map(math.isfinite, means)):
            raise HarnessError(f"an objective is not a number: {means}")
        work.state, work.values = TrialState.COMPLETE, means

    def _report(self, work: _Work, seed: int) -> None:
        """Show the pruner what a trial has found up to a seed, counted from 0."""
        mean = work.sums[0] / (seed + 1)
        if not self._by_prompt:
            work.trial.report(mean, step=seed + 1)
            return
        self._report_prompts(work, work.at(seed, self._order.sweep.objectives[0].after), seed)
        so_far = work.trial.user_attrs.get(Note.SO_FAR, {})
        work.trial.set_user_attr(Note.SO_FAR, {**so_far, str(seed + 1): mean})

    def _report_prompts(self, work: _Work, run: Run, seed: int) -> None:
        """Report the score of each prompt; a prompt has the same step in every trial."""
        sweep = self._order.sweep
        first = (seed + len(sweep.seeds)) * MOST_PROMPTS
        for at, value in enumerate(by_prompt(sweep.objectives[0].measure, run, self._store)):
            work.trial.report(value, step=first + at)

    def _end(self, work: _Work) -> None:
        trial = work.trial
        trial.set_user_attr(Note.SECONDS, round(time.perf_counter() - work.began, 1))
        trial.set_user_attr(Note.ENDED, utc_now())
        # MLflow comes first, because a trial that has ended takes no more notes.
        self._track(work)
        ended = self._study.tell(trial, work.values, state=work.state)
        self.say(f"{said(self._order.sweep, ended)} · {self._standing()}")

    def _standing(self) -> str:
        """Return where the whole sweep stands; trials are expected to take what they took."""
        trials = standing(trials_of(self._study))
        ended = [trial for trial in trials if trial.state.is_finished()]
        target = self._order.target
        pruned = sum(trial.state == TrialState.PRUNED for trial in ended)
        words = f"{len(ended)} of {target} trials done"
        words += f" ({pruned} pruned)" if pruned else ""
        took = [trial.user_attrs.get(Note.SECONDS, 0.0) for trial in ended]
        left_s = math.fsum(took) / len(took) * (target - len(ended)) / self._order.jobs
        after = " before the winner" if self._order.final else ""
        return f"{words}, about {duration(left_s)} left{after}" if left_s else words

    def _track(self, work: _Work) -> None:
        """Bring MLflow to the state of a trial, and note its run there."""
        trial, sweep = work.trial, self._order.sweep
        line = trial_line(sweep, trials_of(self._study)[trial.number])
        names = (objective.name for objective in sweep.objectives)
        values = None if work.values is None else dict(zip(names, work.values, strict=True))
        failed = work.state == TrialState.FAIL
        failure = trial.user_attrs.get(Note.FAILURE) if failed else None
        line = line.model_copy(
            update={"state": work.state.name.lower(), "values": values, "failure": failure}
        )
        source = work.source or Source(f"harness sweep run {sweep.name}")
        run_id = self.tracker.write(line, work.runs, work.profile, source)
        if run_id is not None and line.mlflow_run != run_id:
            trial.set_user_attr(Note.MLFLOW_RUN, run_id)


def said(sweep: Sweep, trial: optuna.trial.FrozenTrial) -> str:
    """Return how a trial ended, as a line."""
    line = trial_line(sweep, trial)
    took = f"({trial.user_attrs.get(Note.SECONDS, 0):.0f} s)"
    if line.state == "complete" and line.values:
        scores = ", ".join(f"{name} {digits(value)}" for name, value in line.values.items())
        return f"trial {trial.number} · {scores} {took}"
    if line.state == "pruned":
        name = sweep.objectives[0].name
        step, value = max(line.so_far.items(), default=(0, math.nan))
        after = f"{step} of {len(sweep.seeds)} seeds" if step else "the first part of its runs"
        worth = "" if math.isnan(value) else f" with {name} {digits(value)}"
        return f"trial {trial.number} · pruned{worth} after {after} {took}"
    return f"trial {trial.number} · failed: {line.failure} {took}"


def _winner(order: Order, study: optuna.Study, worker: Worker) -> Final | None:
    """Run the winner on the benchmarks once the study is complete."""
    trials = trials_of(study)
    begun = len(standing(trials))
    if begun < order.target:
        worker.say(f"the budget is used up with {begun} of {order.target} trials: run the same "
                   "command again to go on")  # fmt: skip
        return None
    best = winner_of(order.sweep, trials)
    if best is None:
        raise HarnessError(
            f"no trial of `{order.sweep.name}` is complete: `harness sweep show "
            f"{order.sweep.name}` says why they failed"
        )
    final = final_runs(order.sweep, order.profile, point_of(trials[best]))
    run_final(final, lambda plan: worker.compute("winner", plan), Store(order.store_dir),
              worker.say)  # fmt: skip
    for run_id, profile in final.profiles.items():
        runs = [run for run in final.runs if run.run_id == run_id]
        worker.tracker.write_runs(runs, profile, {"sweep.role": run_id.rpartition("-")[2]})
    return final
