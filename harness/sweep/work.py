"""Working on a sweep's trials: takes one, computes what is missing of it, tells its values.

The seeds of a trial are run one after the other, so that a pruner can look after each: a trial that
is worse than most on the first seed is spared the others.

Everything a process needs is an `Order`, plain data that can be sent to another process. Several
processes may work on one study, each a fresh interpreter with one stage worker of its own. It
answers with something to say, a warning, or the error it ends with. When it is asked to end, or its
parent is killed, it stops like at Ctrl-C: it gives its trial back.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict

from harness.errors import HarnessError
from harness.quiet import worker_environment
from harness.registry.profile import Profile
from harness.runtime import (
    HERE,
    Engine,
    EngineOptions,
    Event,
    Interrupted,
    Plan,
    Store,
    Tally,
)
from harness.runtime.manifest import utc_now
from harness.runtime.processes import Child, Parent
from harness.sweep.declaration import Point, Sweep
from harness.sweep.results import final_runs, trial_line
from harness.sweep.space import (
    by_prompt,
    candidate,
    first_parts,
    measured,
    on_validation,
    shown,
    validation_runs,
)
from harness.sweep.study import (
    Claims,
    Note,
    counted,
    open_storage,
    open_study,
    point_of,
    sweep_lock,
    trials_of,
)
from harness.tracking import StudyName, TrialTracker
from harness.tracking.connection import shown as shown_uri
from harness.trainer.factory import hardware_of, needs_of
from harness.trainer.plan import Run
from harness.words import duration

Say = Callable[[str], None]

Watch = Callable[["Progress"], None]
"""Takes where a sweep stands, as often as that changes."""

MOST_PROMPTS = 100_000
"""More than a seed has validation prompts."""

LEAST_BETWEEN_S = 1.0
"""Seconds between two words about where a sweep stands."""


class Order(BaseModel):
    """What a process of a sweep is to do.

    Attributes:
        sweep: The declaration.
        profile: The profile it runs on.
        study: Name of the study.
        storage: Where its trials are kept.
        target: Trials the study shall have.
        final: Whether the winner is run after the trials.
        until: Time (seconds since 1970) from which no trial is begun; None for no limit.
        work_dir: The folder that is written to.
        store_dir: Root of the stage store.
        where: Where stages are computed.
        functions: `module:function` by stage kind.
        preload: Modules a stage worker imports at once.
        expected_s: Seconds of a stage by kind, before any was measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sweep: Sweep
    profile: Profile
    study: str
    storage: str
    target: int
    until: float | None
    final: bool = True
    work_dir: Path
    store_dir: Path
    where: EngineOptions = HERE
    functions: Mapping[str, str]
    preload: tuple[str, ...]
    expected_s: Mapping[str, float]

    def engine(self, jobs: int, slot: str) -> Engine:
        """Return an engine for the order's stages; its workers' logs are in a folder `slot`.

        On this machine it has so many workers; a cluster packs stages itself.
        """
        return self.where.make(
            Store(self.store_dir),
            dict(self.functions),
            self.work_dir / "logs" / "sweeps" / slot,
            jobs=jobs if self.where.engine == "local" else None,
            preload=self.preload,
            fallback=self.expected_s,
            threads=self.profile.threads,
            hardware=hardware_of(self.profile),
            needs=needs_of(self.profile),
        )

    @property
    def storage_shown(self) -> str:
        """Where trials are kept, without a password."""
        return shown_uri(self.storage)

    def run_id(self, trial: int) -> str:
        """Return what a trial's runs are called."""
        return f"{self.sweep.name}-t{trial}"

    def tracker(self, warn: Say) -> TrialTracker:
        """Return what writes the order's trials to MLflow."""
        objectives = self.sweep.objectives
        name = StudyName(
            self.sweep.name,
            self.profile.name,
            self.study,
            tuple(objective.name for objective in objectives),
            best_is_greatest=objectives[0].direction == "maximize",
        )
        return TrialTracker(self.work_dir, Store(self.store_dir), name, warn)

    def claims(self) -> Claims:
        """Return the order's study, opened, with what takes trials of it.

        Raises:
            UserError: The storage cannot be used.
        """
        with sweep_lock(self.work_dir, self.sweep.name):
            storage = open_storage(self.storage)
            study = open_study(self.sweep, self.study, storage, self.storage)
        return Claims(self.sweep, study, self.work_dir, shared="://" in self.storage)


class _Pruned(Exception):
    """A trial is worse than most and need not go on."""


@dataclass
class _Work:
    """A trial that is worked on: its runs on the validation prompts, and what comes of it.

    `early` has the runs that end earlier, by what they end after, for objectives that ask for it.
    """

    trial: optuna.Trial
    state: TrialState = TrialState.RUNNING
    values: list[float] | None = None
    runs: list[Run] = field(default_factory=list)
    early: dict[int, list[Run]] = field(default_factory=dict)
    first: list[Run] = field(default_factory=list)
    computed: int = 0
    profile: Profile | None = None


class _Looks:
    """Shows a pruner what a trial has found so far, and ends the trial where it says so."""

    def __init__(self, sweep: Sweep, trial: optuna.Trial, store: Store) -> None:
        self._sweep = sweep
        self._trial = trial
        self._store = store
        self._so_far: dict[str, float] = {}

    def early(self, runs: Sequence[Run]) -> None:
        """Take in the first parts of the runs of all seeds; raise _Pruned where they are enough."""
        measure = self._sweep.objectives[0].measure
        if self._by_prompt:
            for seed, run in enumerate(runs):
                self._prompts(run, -seed - 1)
        else:
            values = [measured(measure, run, self._store) for run in runs]
            self._trial.report(math.fsum(values) / len(values), step=0)
        self._decide()

    def after_seed(self, number: int, run: Run, mean: float) -> None:
        """Take in a seed, counted from 1, and the mean so far; raise _Pruned where it is enough."""
        if not self._by_prompt:
            self._trial.report(mean, step=number)
        else:
            self._prompts(run, number - 1)
            self._so_far[str(number)] = mean
            self._trial.set_user_attr(Note.SO_FAR, dict(self._so_far))
        if number < len(self._sweep.seeds):
            self._decide()

    @property
    def _by_prompt(self) -> bool:
        return self._sweep.pruner is not None and self._sweep.pruner.kind == "wilcoxon"

    def _prompts(self, run: Run, seed: int) -> None:
        """Report the score of each prompt; a prompt has the same step in every trial."""
        first = (seed + len(self._sweep.seeds)) * MOST_PROMPTS
        for at, value in enumerate(by_prompt(self._sweep.objectives[0].measure, run, self._store)):
            self._trial.report(value, step=first + at)

    def _decide(self) -> None:
        if self._trial.should_prune():
            raise _Pruned


class Progress(NamedTuple):
    """Where a sweep stands, in words: what this process computes, and the whole sweep."""

    here: str
    sweep: str


class Standing:
    """Where a process and its whole sweep stand, and the time they take yet.

    Told at most once a second. How long a trial takes, those say that have ended, pruned and failed
    ones included; before the first has, nothing is said of the sweep's time.
    """

    def __init__(self, order: Order, engine: Engine, watch: Watch, jobs: int = 1) -> None:
        self._order = order
        self._engine = engine
        self._watch = watch
        self._jobs = jobs
        self._head = ""
        self._tally: Tally | None = None
        self._trials: Sequence[FrozenTrial] = ()
        self._after_s = 0.0
        self._said = 0.0
        if isinstance(engine, Engine):
            engine.on_event(self.observe)

    def begin(self, head: str, plan: Plan, trials: Sequence[FrozenTrial] = ()) -> None:
        """Take in what is computed now, all its stages, and the study's trials so far."""
        self._head, self._trials = head, trials
        self._tally = Tally(plan, self._engine.store, self._jobs, self._order.expected_s)
        self._show()

    def begin_trial(self, point: Point, plan: Plan, trials: Sequence[FrozenTrial]) -> None:
        """Take in a trial and all its stages."""
        order = self._order
        if order.final:
            last = final_runs(order.sweep, order.profile, point).plan()
            jobs = sum(trial.state == TrialState.RUNNING for trial in trials)
            self._after_s = last.remaining_s(self._engine.store, max(1, jobs), order.expected_s)
        self.begin(f"trial {counted(trials)} of {order.target}", plan, trials)

    def end_trial(self, trials: Sequence[FrozenTrial]) -> str:
        """Take in that a trial has ended; return where the sweep stands."""
        self._trials, self._tally = trials, None
        return self.sweep

    def observe(self, event: Event) -> None:
        """Take in an event of the engine."""
        if self._tally is not None:
            self._tally.observe(event)
            if time.monotonic() - self._said >= LEAST_BETWEEN_S:
                self._show()

    @property
    def sweep(self) -> str:
        """Where the whole sweep stands."""
        states = [t.state for t in self._trials if Note.DONE_AGAIN not in t.user_attrs]
        done = sum(state.is_finished() for state in states)
        pruned = states.count(TrialState.PRUNED)
        words = f"{done} of {self._order.target} trials done"
        words += f" ({pruned} pruned)" if pruned else ""
        left = self._left_s()
        if left is None:
            return f"{words}, time left not known before the first"
        return f"{words}, about {duration(left)} left"

    def _left_s(self) -> float | None:
        """Return the seconds that the sweep takes yet, None where no trial has said."""
        order = self._order
        own = self._tally.remaining_s() if self._tally is not None else 0.0
        to_begin = max(0, order.target - counted(self._trials))
        running = sum(trial.state == TrialState.RUNNING for trial in self._trials)
        others = running - (self._tally is not None)
        took = [t.user_attrs[Note.SECONDS] for t in self._trials if Note.SECONDS in t.user_attrs]
        if not took and (to_begin or others > 0):
            return None
        usual = math.fsum(took) / max(1, len(took))
        # Trials that run elsewhere are half done, as far as is known here.
        work = own + usual * (to_begin + max(0, others) / 2)
        left = max(own, work / max(1, running))
        if order.until is not None:
            left = min(left, max(own, order.until - time.time() + usual))
        return left + self._after_s

    def _show(self) -> None:
        tally = self._tally
        assert tally is not None
        self._said = time.monotonic()
        words = [self._head, f"{tally.done} of {tally.total} stages"]
        if tally.done < tally.total:
            words.append(f"about {duration(tally.remaining_s())} left")
        running = next(iter(tally.running), None)
        if running is not None:
            point = tally.latest.get(running.fingerprint)
            words.append(running.kind + ("" if point is None else f" {point.words}"))
        self._watch(Progress(" · ".join(words), self.sweep if self._trials else ""))


class Worker:
    """Works on trials until the study has enough; says a line when one begins and when it ends."""

    def __init__(
        self,
        order: Order,
        engine: Engine,
        claims: Claims,
        tracker: TrialTracker,
        say: Say,
        watch: Watch = lambda progress: None,
    ) -> None:
        self._order = order
        self._engine = engine
        self._claims = claims
        self._tracker = tracker
        self._say = say
        self._standing = Standing(order, engine, watch)

    def work(self) -> None:
        """Work until the study has enough trials, or the time is up.

        Raises:
            Interrupted: Ctrl-C; the trial's point is queued again.
        """
        with self._claims.working() as mark:
            while self._order.until is None or time.time() < self._order.until:
                trial = self._claims.take(mark, self._order.target)
                if trial is None:
                    return
                self._work_on(trial)

    def _work_on(self, trial: optuna.Trial) -> None:
        """Run one trial, whatever comes of it."""
        started = time.perf_counter()
        work = _Work(trial)
        try:
            self._plan(work)
            work.state, work.values = TrialState.COMPLETE, self._values(work)
        except _Pruned:
            work.state = TrialState.PRUNED
        except (KeyboardInterrupt, Interrupted) as error:
            self._claims.give_back(trial, "it was stopped")
            raise Interrupted(
                f"stopped in trial {trial.number}: run the same command again to go on from there"
            ) from error
        except HarnessError as error:
            work.state = TrialState.FAIL
            trial.set_user_attr(Note.FAILURE, str(error))
        trial.set_user_attr(Note.SECONDS, round(time.perf_counter() - started, 1))
        trial.set_user_attr(Note.ENDED, utc_now())
        # MLflow comes first, because a trial that has ended takes no more notes.
        self._track(work)
        ended = trial.study.tell(trial, work.values, state=work.state)
        standing = self._standing.end_trial(trials_of(trial.study))
        self._say(f"{said(self._order.sweep, ended)} · {standing}")

    def _plan(self, work: _Work) -> None:
        """Plan the runs of a trial and say what is there of them."""
        trial, sweep = work.trial, self._order.sweep
        found = candidate(sweep, self._order.profile, point_of(trial))
        work.profile = on_validation(found.profile)
        run_id = self._order.run_id(trial.number)
        work.runs = validation_runs(sweep, found, run_id)
        for after in {o.after for o in sweep.objectives if o.after is not None}:
            work.early[after] = validation_runs(sweep, found, run_id, after)
        if sweep.pruner is not None and sweep.pruner.early:
            work.first = first_parts(sweep, found, run_id)
        more = (run for runs in work.early.values() for run in runs)
        planned = [*work.first, *work.runs, *more]
        plan = Plan(stage for run in planned for stage in run.targets)
        missing = len(plan.pending(self._engine.store))
        trial.set_user_attr(Note.REUSED, len(plan) - missing)
        self._standing.begin_trial(point_of(trial), plan, trials_of(trial.study))
        self._say(
            f"trial {trial.number} · {shown(point_of(trial))}: {len(plan) - missing} of "
            f"{len(plan)} stages reused, {missing} to compute"
        )
        self._track(work)

    def _values(self, work: _Work) -> list[float]:
        """Return the objectives of a trial, averaged over its seeds.

        Raises:
            _Pruned: The trial is worse than most after some of its seeds.
            HarnessError: A stage failed.
        """
        trial, sweep = work.trial, self._order.sweep
        objectives = sweep.objectives
        sums, spent = [0.0] * len(objectives), [0.0] * len(sweep.limits)
        looks = _Looks(sweep, trial, self._engine.store)
        if work.first:
            self._compute(work, work.first)
            looks.early(work.first)
        for number, run in enumerate(work.runs, start=1):
            at: dict[int | None, Run] = {k: runs[number - 1] for k, runs in work.early.items()}
            at[None] = run
            self._compute(work, at.values())
            for i, objective in enumerate(objectives):
                sums[i] += measured(objective.measure, at[objective.after], self._engine.store)
            for i, limit in enumerate(sweep.limits):
                spent[i] += measured(limit.measure, run, self._engine.store) / len(work.runs)
            if len(objectives) == 1:
                looks.after_seed(number, at[objectives[0].after], sums[0] / number)
        for limit, total in zip(sweep.limits, spent, strict=True):
            trial.set_constraint(limit.measure, total - limit.at_most)
        means = [total / len(work.runs) for total in sums]
        if not all(map(math.isfinite, means)):
            raise HarnessError(f"an objective is not a number: {means}")
        return means

    def _compute(self, work: _Work, runs: Iterable[Run]) -> None:
        """Compute what is missing of some runs of a trial.

        Raises:
            HarnessError: A stage failed.
        """
        outcome = self._engine.run(Plan(stage for run in runs for stage in run.targets))
        work.computed += len(outcome.finished)
        work.trial.set_user_attr(Note.COMPUTED, work.computed)
        if not outcome.ok:
            stage, reason = next(iter(outcome.failed.items()))
            raise HarnessError(f"{stage.title}: {reason}")

    def _track(self, work: _Work) -> None:
        """Bring MLflow to the state of a trial, and note its run there."""
        trial, sweep = work.trial, self._order.sweep
        line = trial_line(sweep, trial.study.get_trials(deepcopy=False)[trial.number])
        names = (objective.name for objective in sweep.objectives)
        values = None if work.values is None else dict(zip(names, work.values, strict=True))
        failed = work.state == TrialState.FAIL
        failure = trial.user_attrs.get(Note.FAILURE) if failed else None
        line = line.model_copy(
            update={"state": work.state.name.lower(), "values": values, "failure": failure}
        )
        run_id = self._tracker.write(line, work.runs, work.profile)
        if run_id is not None and line.mlflow_run != run_id:
            trial.set_user_attr(Note.MLFLOW_RUN, run_id)


def said(sweep: Sweep, trial: optuna.trial.FrozenTrial) -> str:
    """Return how a trial ended, as a line."""
    line = trial_line(sweep, trial)
    took = f"({trial.user_attrs.get(Note.SECONDS, 0):.0f} s)"
    if line.state == "complete" and line.values:
        scores = ", ".join(f"{name} {value:.6g}" for name, value in line.values.items())
        return f"trial {trial.number} · {scores} {took}"
    if line.state == "pruned":
        name = sweep.objectives[0].name
        step, value = max(line.so_far.items(), default=(0, math.nan))
        after = f"{step} of {len(sweep.seeds)} seeds" if step else "the first part of its runs"
        worth = "" if math.isnan(value) else f" with {name} {value:.6g}"
        return f"trial {trial.number} · pruned{worth} after {after} {took}"
    return f"trial {trial.number} · failed: {line.failure} {took}"


def run_processes(
    order: Order, count: int, say: Say, warn: Say, watch: Watch = lambda progress: None
) -> None:
    """Work on a study with several processes until it has enough trials; each warning is said once.

    Raises:
        HarnessError: A process ended with an error, or died.
        Interrupted: Ctrl-C; the processes have ended.
    """
    heard = _Heard(say, warn, watch)
    children = [
        Child(
            __name__,
            {"order": order.model_dump(mode="json", by_alias=True), "slot": str(slot)},
            worker_environment(),
        )
        for slot in range(count)
    ]
    try:
        heard.listen(children)
    except KeyboardInterrupt:
        for child in children:
            child.send(None)
        heard.listen(children)
        raise Interrupted("stopped: run the same command again to go on from there") from None
    for child in children:
        heard.check(child)


class _Heard:
    """Passes on what several processes say."""

    def __init__(self, say: Say, warn: Say, watch: Watch) -> None:
        self._say = say
        self._warn = warn
        self._watch = watch
        self._warned: set[str] = set()
        self._errors: dict[Child, str] = {}
        self._ended: set[Child] = set()
        self._here: dict[Child, str] = {}

    def listen(self, children: Collection[Child]) -> None:
        """Listen until all processes have ended."""
        while speaking := {c.connection: c for c in children if c not in self._ended}:
            for connection in wait(list(speaking)):
                child = speaking[connection]  # type: ignore[index]
                message = child.receive()
                if message is None:
                    child.process.wait()
                    self._here.pop(child, None)
                    self._ended.add(child)
                elif "error" in message:
                    self._errors[child] = message["error"]
                elif "say" in message:
                    self._say(message["say"])
                elif "watch" in message:
                    self._here[child] = message["watch"]
                    self._watch(Progress("\n".join(self._here.values()), message["sweep"]))
                elif message["warn"] not in self._warned:
                    self._warned.add(message["warn"])
                    self._warn(message["warn"])

    def check(self, child: Child) -> None:
        """Raise what a process ended with, if it was an error."""
        cause = child.cause()
        if child in self._errors:
            raise HarnessError(self._errors[child])
        if child.process.returncode:
            raise HarnessError(
                f"a process of the sweep died ({cause}): run the same command again, its trial is "
                "then done by another"
            )


def main(descriptor: int) -> None:
    """Work as one of several processes, as the parent says."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parent = Parent(descriptor, on_end=_interrupt)

    def send(**message: str) -> None:
        with suppress(OSError):  # whoever listened is gone; that stops this process
            parent.send(message)

    request = parent.receive()
    try:
        order = Order.model_validate(request["order"])
        tracker = order.tracker(lambda text: send(warn=text))
        with order.engine(1, request["slot"]) as engine:
            worker = Worker(
                order,
                engine,
                order.claims(),
                tracker,
                lambda text: send(say=text),
                lambda progress: send(watch=progress.here, sweep=progress.sweep),
            )
            worker.work()
    except (KeyboardInterrupt, Interrupted):
        sys.exit(Interrupted.exit_code)
    except HarnessError as error:
        send(error=str(error))
        sys.exit(error.exit_code)


def _interrupt() -> None:
    """Interrupt the main thread, as Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
