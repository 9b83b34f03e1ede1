"""Working on trials: what a command is to do of a sweep, and who does it.

Trials are worked on in batches of `--jobs`: the stages of a batch are one plan, which one engine
computes with so many workers, so that what its trials share is computed once. Where a pruner looks
after each seed, seeds are run one after the other, and a trial that is worse than most on the first
is spared the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import optuna
from optuna.trial import TrialState

from harness.errors import HarnessError, UserError
from harness.pipeline import factory, steps
from harness.pipeline.algorithm import Run
from harness.project import store_dir, work_dir
from harness.registry.profile import Profile
from harness.report.sweep import digits
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
from harness.runtime.manifest import utc_now
from harness.sweep.declaration import Sweep
from harness.sweep.results import plan_of, trial_line
from harness.sweep.space import base_candidate, candidate, measured, shown, validation_runs
from harness.sweep.study import Note, journal, point_of, standing, study_name, take, trials_of
from harness.tracking import Mlflow
from harness.tracking.record import Record
from harness.tracking.trials import StudyName, trial_record
from harness.words import duration

Say = Callable[[str], None]

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
        final: Whether the winner is run after the trials.
        where: Where stages are computed.
        functions: `module:function` by stage kind.
    """

    sweep: Sweep
    profile: Profile
    study: str
    target: int
    jobs: int = 1
    final: bool = True
    work_dir: Path = field(default_factory=work_dir)
    store_dir: Path = field(default_factory=store_dir)
    where: EngineOptions = HERE
    functions: Mapping[str, str] = field(default_factory=lambda: steps.FUNCTIONS)
    preload: tuple[str, ...] = ()

    @property
    def journal(self) -> Path:
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
        return f"{self.sweep.name}-t{trial}"

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
    return Order(
        sweep=sweep,
        profile=profile,
        study=study_name(sweep, profile),
        target=sweep.target(trials),
        jobs=jobs,
        final=final,
        where=where,
        preload=tuple(factory.needed_modules(Plan(t for run in runs for t in run.targets).stages)),
    )


def trial_records(order: Order, study: optuna.Study) -> list[Record]:
    """Return what MLflow should hold of the trials that have ended."""
    sweep, profile = order.sweep, order.profile
    names = tuple(objective.name for objective in sweep.objectives)
    best = sweep.objectives[0].direction == "maximize"
    name = StudyName(sweep.name, profile.name, order.study, names, best_is_greatest=best)
    return [
        trial_record(
            name,
            trial_line(sweep, trial),
            f"harness sweep run {sweep.name}",
            candidate(sweep, profile, point_of(trial)).recipe.canonical(),
        )
        for trial in trials_of(study)
        if trial.state.is_finished() and trial.params.keys() == sweep.space.keys()
    ]


class _Pruned(Exception):
    """A trial is worse than most and need not go on."""


@dataclass
class _Work:
    """A trial that is worked on: its runs on the validation prompts, and what comes of it.

    `early` has the runs that end earlier, by what they end after, for objectives that ask for it.
    """

    trial: optuna.Trial
    began: float = field(default_factory=time.perf_counter)
    state: TrialState = TrialState.RUNNING
    values: list[float] | None = None
    runs: list[Run] = field(default_factory=list)
    early: dict[int, list[Run]] = field(default_factory=dict)
    sums: list[float] = field(default_factory=list)
    computed: int = 0

    def of_seeds(self, seeds: Iterable[int]) -> list[Run]:
        return [runs[seed] for seed in seeds for runs in (self.runs, *self.early.values())]

    def at(self, seed: int, after: int | None) -> Run:
        return self.runs[seed] if after is None else self.early[after][seed]


class Worker:
    """Works on trials until the study has enough; says a line when one begins and when it ends."""

    def __init__(
        self,
        order: Order,
        engine: Engine,
        study: optuna.Study,
        mlflow: Mlflow,
        say: Say,
        watch: Say = lambda words: None,
    ) -> None:
        self._order = order
        self._engine = engine
        self._store = engine.store
        self._study = study
        self._mlflow = mlflow
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
        """Work until the study has enough trials.

        Raises:
            Interrupted: Ctrl-C.
        """
        order = self._order
        while True:
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

        self._engine.on_event = observe
        return self._engine.run(plan)

    def _work_on(self, batch: list[_Work]) -> None:
        """Run some trials, whatever comes of them."""
        sweep = self._order.sweep
        for work in batch:
            self._unless_failed(work, partial(self._plan, work))
        seeds = range(len(sweep.seeds))
        for places in [[seed] for seed in seeds] if sweep.pruner else [list(seeds)]:
            self._round(batch, places)
        for work in batch:
            self._end(work)

    def _plan(self, work: _Work) -> None:
        trial, order, sweep = work.trial, self._order, self._order.sweep
        found = candidate(sweep, order.profile, point_of(trial))
        run_id = order.run_id(trial.number)
        work.runs = validation_runs(sweep, found, run_id)
        for after in {o.after for o in sweep.objectives if o.after is not None}:
            work.early[after] = validation_runs(sweep, found, run_id, after)
        work.sums = [0.0] * len(sweep.objectives)
        planned = work.of_seeds(range(len(sweep.seeds)))
        plan = plan_of(planned)
        missing = len(plan.pending(self._store))
        trial.set_user_attr(Note.REUSED, len(plan) - missing)
        self.say(
            f"trial {trial.number} · {shown(point_of(trial))}: {len(plan) - missing} of "
            f"{len(plan)} stages reused, {missing} to compute"
        )

    def _round(self, batch: Sequence[_Work], places: Sequence[int]) -> None:
        """Compute some seeds of each trial that goes on, and look at what they are worth."""
        live = [work for work in batch if work.state == TrialState.RUNNING]
        if not live:
            return
        plans = {work.trial.number: plan_of(work.of_seeds(places)) for work in live}
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
                self._look(work, places)

            self._unless_failed(work, settle)

    def _unless_failed(self, work: _Work, do: Callable[[], None]) -> None:
        try:
            do()
        except _Pruned:
            work.state = TrialState.PRUNED
        except HarnessError as error:
            work.state = TrialState.FAIL
            work.trial.set_user_attr(Note.FAILURE, str(error))

    def _look(self, work: _Work, places: Sequence[int]) -> None:
        """Take in some seeds; raise _Pruned where they are enough."""
        sweep, total = self._order.sweep, len(self._order.sweep.seeds)
        for seed in places:
            for i, objective in enumerate(sweep.objectives):
                run = work.at(seed, objective.after)
                work.sums[i] += measured(objective.measure, run, self._store)
            if len(sweep.objectives) == 1:
                work.trial.report(work.sums[0] / (seed + 1), step=seed + 1)
        if places[-1] + 1 < total:
            if work.trial.should_prune():
                raise _Pruned
            return
        means = [found / total for found in work.sums]
        if not all(map(math.isfinite, means)):
            raise HarnessError(f"an objective is not a number: {means}")
        work.state, work.values = TrialState.COMPLETE, means

    def _end(self, work: _Work) -> None:
        trial = work.trial
        trial.set_user_attr(Note.SECONDS, round(time.perf_counter() - work.began, 1))
        trial.set_user_attr(Note.ENDED, utc_now())
        ended = self._study.tell(trial, work.values, state=work.state)
        self._mlflow.attempt(lambda: trial_records(self._order, self._study))
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


def said(sweep: Sweep, trial: optuna.trial.FrozenTrial) -> str:
    line = trial_line(sweep, trial)
    took = f"({trial.user_attrs.get(Note.SECONDS, 0):.0f} s)"
    if line.state == "complete" and line.values:
        scores = ", ".join(f"{name} {digits(value)}" for name, value in line.values.items())
        return f"trial {trial.number} · {scores} {took}"
    if line.state == "pruned":
        name = sweep.objectives[0].name
        step, value = max(line.so_far.items())
        after = f"{step} of {len(sweep.seeds)} seeds"
        return f"trial {trial.number} · pruned with {name} {digits(value)} after {after} {took}"
    return f"trial {trial.number} · failed: {line.failure} {took}"
