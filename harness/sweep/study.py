"""The study: where its trials are kept, what suggests the next, and who works on which.

Trials are kept in a journal file in the work folder, or in any Optuna storage. Several processes
that create one storage at once break it, so it is created under the sweep's lock. The journal's
own lock is one that the operating system releases when its holder dies; Optuna's would be waited
for. A line that a killed process did not finish is cut off before the file is used.

A study is named after the sweep, the profile, and a digest of all that changes its numbers: the
declaration, and the stages of the base recipe, which cover the profile, the models and the code.
Change any of these and a new study begins; the old one stays in the storage.

Optuna keeps no sampler with a study. A new one is made for each suggestion, seeded by the sweep's
seed and the number of trials so far, so that what is suggested follows from the trials alone: a
sweep that was stopped and goes on suggests what one left alone would have.

A working process holds the lock on a file of its own as long as it lives, and marks each trial it
takes with that file's name. A running trial whose mark nobody holds belongs to a process that was
killed: it is recorded as failed, and its point is queued again, once. Taking a trial and looking
for such trials happen under the sweep's lock, so that a trial without a mark is a killed one too.
A trial that is done again does not count: the study is complete when it has as many others as it
was asked for. Marks of other machines cannot be checked, and their trials are left alone. (Optuna's
heartbeats are no substitute: a journal has none, a database's run inside `Study.optimize` only, and
a killed trial is noticed minutes later.)
"""

from __future__ import annotations

import importlib.util
import platform
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIISampler,
    RandomSampler,
    TPESampler,
)
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from harness.errors import UserError
from harness.foreign import read_plain
from harness.registry.profile import Profile
from harness.runtime import Json, canonical_json
from harness.runtime.files import explained
from harness.runtime.leases import hold, is_held
from harness.runtime.manifest import utc_now
from harness.runtime.stage import digest
from harness.sweep.declaration import Parameter, Point, Sampler, Scalar, Sweep
from harness.sweep.space import base_candidate, grid, validation_runs
from harness.tracking.connection import shown, without_secrets


class Note:
    """What a trial notes of itself: names of Optuna's user attributes. Times are ISO 8601."""

    OWNER = "owner"  # the mark of the process that works on it
    ATTEMPT = "attempt"  # how often its point was taken, kills of its process included
    RETRY_OF = "retry of"  # the number of the trial whose point was queued again
    DONE_AGAIN = "done again"  # why its point was queued again, where it was
    FAILURE = "failure"  # why it failed
    STARTED = "started"
    ENDED = "ended"
    SECONDS = "seconds"  # how long it took
    REUSED = "stages reused"  # those in the store when it began
    COMPUTED = "stages computed"
    SO_FAR = "so far"  # the objective after each seed, where the pruner looks at prompts
    MLFLOW_RUN = "mlflow run"  # absent where MLflow could not be reached


SQLITE_WAIT_S = 60
"""Seconds a writer waits for another one's transaction."""

_JOURNAL = b'{"op_code":'
"""How a journal of Optuna begins."""

MOST_ATTEMPTS = 2
"""How often a point is taken; a process that is killed twice over one is killed by it."""

_UNMARKED_FOR = timedelta(minutes=1)
"""Age from which a trial without a mark is nobody's, also where other machines take trials."""

optuna.logging.set_verbosity(optuna.logging.ERROR)


def sweeps_dir(work_dir: Path) -> Path:
    """Return the folder of journals, locks and working processes' marks."""
    return work_dir / "sweeps"


def default_storage(work_dir: Path, name: str) -> str:
    """Return the journal file of a sweep."""
    return str(sweeps_dir(work_dir) / f"{name}.log")


@contextmanager
def sweep_lock(work_dir: Path, name: str) -> Iterator[None]:
    """Let one process of this work folder create storages and take trials of a sweep at a time."""
    folder, stack = sweeps_dir(work_dir), ExitStack()
    with explained(f"locking the sweep `{name}`", folder):
        stack.enter_context(hold(folder / f"{name}.lock"))
    with stack:
        yield


def open_storage(where: str) -> BaseStorage:
    """Return a storage by its URL or the path of a journal file; call it under the sweep's lock.

    It is created where absent.

    Raises:
        UserError: It cannot be used, be it unreachable, misspelt or without its driver.
    """
    try:
        if "://" not in where:
            return _journal(Path(where))
        settings = (
            {"connect_args": {"timeout": SQLITE_WAIT_S}} if where.startswith("sqlite") else {}
        )
        return RDBStorage(where, engine_kwargs=settings)
    except (SQLAlchemyError, ImportError, RuntimeError, OSError, ValueError, LookupError) as error:
        raise UserError(unusable(where, error)) from error


def is_there(where: str) -> bool:
    """Return whether a storage exists already, as far as a file shows; a server is asked later."""
    if "://" not in where:
        return Path(where).exists()
    try:
        url = make_url(where)
    except ArgumentError:
        return True
    in_file = url.get_backend_name() == "sqlite" and url.database
    return Path(str(url.database)).exists() if in_file else True


def unusable(where: str, error: Exception) -> str:
    """Return the sentence for a storage that cannot be used."""
    what = without_secrets(" ".join(str(error).split()), where)
    return (
        f"the storage {shown(where)} cannot be used ({what[:200]}): correct `--storage`, or leave "
        "it out for a file in the work folder"
    )


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
    # Named where there are any, so that no other study is another one by their being possible.
    # What is tried first is not named: it changes no trial's numbers.
    if sweep.limits:
        identity["limits"] = sweep.model_dump(mode="json", include={"limits"})["limits"]
    return f"{sweep.name}/{profile.name}/{digest(canonical_json(identity))[:8]}"


def open_study(sweep: Sweep, name: str, storage: BaseStorage, where: str) -> optuna.Study:
    """Return a study, created where absent; call it under the sweep's lock.

    Raises:
        UserError: The storage cannot be used.
    """
    try:
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            sampler=RandomSampler(seed=0),
            pruner=pruner_of(sweep),
            directions=[objective.direction for objective in sweep.objectives],
            load_if_exists=True,
        )
        names = [objective.name for objective in sweep.objectives]
        if study.metric_names != names:
            with _experimental():
                study.set_metric_names(names)
        return study
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


@contextmanager
def _experimental() -> Iterator[None]:
    """Use what Optuna may change in another version, without its saying so each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def pruner_of(sweep: Sweep) -> optuna.pruners.BasePruner:
    """Return the sweep's pruner."""
    if sweep.pruner is None:
        return optuna.pruners.NopPruner()
    if sweep.pruner.kind == "wilcoxon":
        with _experimental():
            return optuna.pruners.WilcoxonPruner(p_threshold=sweep.pruner.p or 0.1)
    return optuna.pruners.MedianPruner(
        n_startup_trials=sweep.pruner.startup_trials, n_warmup_steps=0
    )


def sampler_for(sampler: Sampler, position: int) -> BaseSampler:
    """Return what suggests the trial at a position, counted from 0.

    A grid needs none: its points are given out in order (`Claims.take`).
    """
    seed = int(np.random.SeedSequence([sampler.seed, position]).generate_state(1)[0])
    startup = sampler.startup_trials
    with _experimental():
        if sampler.kind == "gp":
            return GPSampler(seed=seed, n_startup_trials=startup)
        if sampler.kind == "nsga2":
            return NSGAIISampler(seed=seed, population_size=max(startup, 2))
        if sampler.kind == "cmaes":
            return CmaEsSampler(seed=seed, n_startup_trials=startup)
        if sampler.kind != "tpe":
            return RandomSampler(seed=seed)
        return TPESampler(
            n_startup_trials=sampler.startup_trials,
            seed=seed,
            multivariate=True,
            constant_liar=True,
        )


def check_sampler(sampler: Sampler) -> None:
    """Check that what a sampler needs is installed.

    Raises:
        UserError: It is not.
    """
    needed = {"cmaes": "cmaes"}.get(sampler.kind)
    if needed and importlib.util.find_spec(needed) is None:
        raise UserError(
            f"the sampler `{sampler.kind}` needs the package `{needed}`: install the extra "
            "`sweeps`, `pip install 'eva-harness[sweeps]'`"
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


def counted(trials: Sequence[FrozenTrial]) -> int:
    """Return how many trials a study has: begun, and not done again by another."""
    return sum(
        trial.state != TrialState.WAITING and Note.DONE_AGAIN not in trial.user_attrs
        for trial in trials
    )


class Claims:
    """Takes trials of one study for one process; other machines may take some if it is shared."""

    def __init__(self, sweep: Sweep, study: optuna.Study, work_dir: Path, *, shared: bool) -> None:
        self._sweep = sweep
        self.study = study
        self._work_dir = work_dir
        self._shared = shared
        self._marks = sweeps_dir(work_dir) / f"{sweep.name}.working"

    @contextmanager
    def working(self) -> Iterator[str]:
        """Mark this process as one that works; yield the mark."""
        name = f"{platform.node()}/{uuid.uuid4().hex}"
        path = self._marks / name.rpartition("/")[2]
        with ExitStack() as mark:
            with sweep_lock(self._work_dir, self._sweep.name):
                mark.enter_context(hold(path))
            yield name
            path.unlink(missing_ok=True)

    def take(self, mark: str, target: int) -> optuna.Trial | None:
        """Return the next trial to work on, None where the study has all it was asked for."""
        with sweep_lock(self._work_dir, self._sweep.name):
            self._repair()
            trials = trials_of(self.study)
            position = counted(trials)
            if position >= target:
                return None
            self.study.sampler = sampler_for(self._sweep.sampler, position)
            waiting = any(trial.state == TrialState.WAITING for trial in trials)
            first = self._first_of_all(trials)
            if first is not None and not waiting:
                self.study.enqueue_trial(first)
            elif self._sweep.sampler.kind == "grid" and not waiting:
                self.study.enqueue_trial(self._next_of_grid(trials))
            trial = self.study.ask(distributions(self._sweep))
            trial.set_user_attr(Note.OWNER, mark)
            trial.set_user_attr(Note.STARTED, utc_now())
            return trial

    def repair(self) -> list[int]:
        """Queue the points of trials that nobody works on; return the trials' numbers."""
        with sweep_lock(self._work_dir, self._sweep.name):
            return self._repair()

    def give_back(self, trial: optuna.Trial, why: str) -> None:
        """End a trial that this process was told to stop, and queue its point again."""
        with sweep_lock(self._work_dir, self._sweep.name):
            frozen = self.study.get_trials(deepcopy=False)[trial.number]
            self._again(frozen, why, frozen.user_attrs.get(Note.ATTEMPT, 1))

    def _repair(self) -> list[int]:
        held, ended = self._marked()
        left = [
            trial
            for trial in trials_of(self.study)
            if trial.state == TrialState.RUNNING and self._is_nobodys(trial, held, ended)
        ]
        for trial in left:
            attempt = trial.user_attrs.get(Note.ATTEMPT, 1)
            if attempt < MOST_ATTEMPTS:
                self._again(trial, "its process was killed", attempt + 1)
            else:
                self._set(trial, Note.FAILURE, f"its process was killed, {attempt} times in a row")
                self.study.tell(trial.number, state=TrialState.FAIL)
        for name in ended:  # not before: whoever is killed here is repaired by the next
            (self._marks / name).unlink(missing_ok=True)
        return [trial.number for trial in left]

    def _again(self, trial: FrozenTrial, why: str, attempt: int) -> None:
        """Fail a trial and queue its point.

        Killed while it got its point, a trial has only some settings; another is suggested then.
        """
        self._set(trial, Note.DONE_AGAIN, why)
        self.study.tell(trial.number, state=TrialState.FAIL)
        if trial.params.keys() == self._sweep.space.keys():
            attributes = {Note.ATTEMPT: attempt, Note.RETRY_OF: trial.number}
            self.study.enqueue_trial(trial.params, user_attrs=attributes)

    def _first_of_all(self, trials: Sequence[FrozenTrial]) -> dict[str, Scalar] | None:
        """Return the first point that is to be tried first and was not; None where all were."""
        taken = [point_of(trial) for trial in trials if Note.DONE_AGAIN not in trial.user_attrs]
        return next((p for p in map(tidy, self._sweep.enqueue) if p not in taken), None)

    def _next_of_grid(self, trials: Sequence[FrozenTrial]) -> dict[str, Scalar]:
        """Return the first point of the grid that no trial stands for."""
        taken = [point_of(trial) for trial in trials if Note.DONE_AGAIN not in trial.user_attrs]
        return next(point for point in map(tidy, grid(self._sweep)) if point not in taken)

    def _set(self, trial: FrozenTrial, name: str, value: str) -> None:
        self.study._storage.set_trial_user_attr(trial._trial_id, name, value)

    def _marked(self) -> tuple[set[str], set[str]]:
        """Return the marks in this work folder that a process holds, and those none holds any more.

        They are leases: processes on other machines that share the folder have theirs here, too.
        """
        held: set[str] = set()
        ended: set[str] = set()
        for path in self._marks.glob("*"):
            if not path.suffix:  # else it is the lease beside a mark
                (held if is_held(path) else ended).add(path.name)
        return held, ended

    def _is_nobodys(self, trial: FrozenTrial, held: set[str], ended: set[str]) -> bool:
        mark = trial.user_attrs.get(Note.OWNER)
        if mark is None:
            begun = trial.datetime_start or datetime.now()
            return not self._shared or datetime.now() - begun > _UNMARKED_FOR
        machine, _, name = str(mark).partition("/")
        return name in ended or (machine == platform.node() and name not in held)


def _journal(path: Path) -> JournalStorage:
    lock = path.with_name(f"{path.name}.lock")
    with hold(lock):
        _cut_off_unfinished(path)
    return JournalStorage(JournalFileBackend(str(path), lock_obj=_JournalLock(lock)))


def _cut_off_unfinished(path: Path) -> None:
    """Remove a last line without an end, which would make all that follow unreadable.

    Raises:
        ValueError: The file is somebody's other file.
        OSError: It cannot be read.
    """
    if not path.exists():
        return
    whole = read_plain(path)
    if not whole.startswith(_JOURNAL) and not _JOURNAL.startswith(whole):
        raise ValueError("it is no journal of Optuna")
    if whole and not whole.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(whole.rfind(b"\n") + 1)


class _JournalLock(BaseJournalFileLock):
    """A lock that ends with its process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._held.enter_context(hold(self._path))
        return True

    def release(self) -> None:
        """Let others have the lock."""
        self._held.close()


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
