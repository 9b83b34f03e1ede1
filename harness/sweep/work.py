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
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

import optuna
from optuna.trial import TrialState
from pydantic import BaseModel, ConfigDict

from harness.errors import HarnessError
from harness.quiet import worker_environment
from harness.registry.profile import Profile
from harness.runtime import HERE, Engine, EngineOptions, Interrupted, Plan, Store
from harness.runtime.manifest import utc_now
from harness.runtime.processes import Child, Parent
from harness.sweep.declaration import Sweep
from harness.sweep.results import trial_line
from harness.sweep.space import candidate, measured, on_validation, shown, validation_runs
from harness.sweep.study import (
    Claims,
    Note,
    open_storage,
    open_study,
    point_of,
    sweep_lock,
)
from harness.tracking import StudyName, TrialTracker
from harness.tracking.connection import shown as shown_uri
from harness.trainer.factory import hardware_of, needs_of
from harness.trainer.plan import Run

Say = Callable[[str], None]


class Order(BaseModel):
    """What a process of a sweep is to do.

    Attributes:
        sweep: The declaration.
        profile: The profile it runs on.
        study: Name of the study.
        storage: Where its trials are kept.
        target: Trials the study shall have.
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
        objective = self.sweep.objectives[0].name
        name = StudyName(self.sweep.name, self.profile.name, self.study, objective)
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
    profile: Profile | None = None


class Worker:
    """Works on trials until the study has enough; says a line when one begins and when it ends."""

    def __init__(
        self, order: Order, engine: Engine, claims: Claims, tracker: TrialTracker, say: Say
    ) -> None:
        self._order = order
        self._engine = engine
        self._claims = claims
        self._tracker = tracker
        self._say = say

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
        self._say(said(self._order.sweep, ended))

    def _plan(self, work: _Work) -> None:
        """Plan the runs of a trial and say what is there of them."""
        trial, sweep = work.trial, self._order.sweep
        found = candidate(sweep, self._order.profile, point_of(trial))
        work.profile = on_validation(found.profile)
        run_id = self._order.run_id(trial.number)
        work.runs = validation_runs(sweep, found, run_id)
        for after in {o.after for o in sweep.objectives if o.after is not None}:
            work.early[after] = validation_runs(sweep, found, run_id, after)
        planned = [*work.runs, *(run for runs in work.early.values() for run in runs)]
        plan = Plan(stage for run in planned for stage in run.targets)
        missing = len(plan.pending(self._engine.store))
        trial.set_user_attr(Note.REUSED, len(plan) - missing)
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
        trial, objectives = work.trial, self._order.sweep.objectives
        sums, computed = [0.0] * len(objectives), 0
        for number, run in enumerate(work.runs, start=1):
            at: dict[int | None, Run] = {k: runs[number - 1] for k, runs in work.early.items()}
            at[None] = run
            outcome = self._engine.run(Plan(s for some in at.values() for s in some.targets))
            computed += len(outcome.finished)
            trial.set_user_attr(Note.COMPUTED, computed)
            if not outcome.ok:
                stage, reason = next(iter(outcome.failed.items()))
                raise HarnessError(f"{stage.title}: {reason}")
            for i, objective in enumerate(objectives):
                sums[i] += measured(objective.measure, at[objective.after], self._engine.store)
            if len(objectives) == 1:
                trial.report(sums[0] / number, step=number)
                if number < len(work.runs) and trial.should_prune():
                    raise _Pruned
        means = [total / len(work.runs) for total in sums]
        if not all(map(math.isfinite, means)):
            raise HarnessError(f"an objective is not a number: {means}")
        return means

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
        step, value = max(line.so_far.items())
        return (
            f"trial {trial.number} · pruned with {name} {value:.6g} after {step} of "
            f"{len(sweep.seeds)} seeds {took}"
        )
    return f"trial {trial.number} · failed: {line.failure} {took}"


def run_processes(order: Order, count: int, say: Say, warn: Say) -> None:
    """Work on a study with several processes until it has enough trials; each warning is said once.

    Raises:
        HarnessError: A process ended with an error, or died.
        Interrupted: Ctrl-C; the processes have ended.
    """
    heard = _Heard(say, warn)
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

    def __init__(self, say: Say, warn: Say) -> None:
        self._say = say
        self._warn = warn
        self._warned: set[str] = set()
        self._errors: dict[Child, str] = {}
        self._ended: set[Child] = set()

    def listen(self, children: Collection[Child]) -> None:
        """Listen until all processes have ended."""
        while speaking := {c.connection: c for c in children if c not in self._ended}:
            for connection in wait(list(speaking)):
                child = speaking[connection]  # type: ignore[index]
                message = child.receive()
                if message is None:
                    child.process.wait()
                    self._ended.add(child)
                elif "error" in message:
                    self._errors[child] = message["error"]
                elif "say" in message:
                    self._say(message["say"])
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
            worker = Worker(order, engine, order.claims(), tracker, lambda text: send(say=text))
            worker.work()
    except (KeyboardInterrupt, Interrupted):
        sys.exit(Interrupted.exit_code)
    except HarnessError as error:
        send(error=str(error))
        sys.exit(error.exit_code)


def _interrupt() -> None:
    """Interrupt the main thread, as Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
