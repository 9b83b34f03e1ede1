"""Who works on which trial, so that the trials of a killed process are done by another.

A working process holds the lock on a file of its own as long as it lives, and marks each trial it
takes with that file's name. A running trial whose mark nobody holds belongs to a process that was
killed: it is recorded as failed, and its point is queued again, once. Taking a trial and looking
for such trials happen under the sweep's lock, so that a trial without a mark is a killed one too.

A trial that is done again does not count: the study is complete when it has as many others as it
was asked for. Marks of other machines cannot be checked, and their trials are left alone.
"""

from __future__ import annotations

import fcntl
import platform
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from harness.runtime.manifest import utc_now
from harness.sweep.declaration import Scalar, Sweep
from harness.sweep.notes import ATTEMPT, DONE_AGAIN, FAILURE, OWNER, RETRY_OF, STARTED
from harness.sweep.space import grid
from harness.sweep.storage import sweep_lock, sweeps_dir
from harness.sweep.study import distributions, point_of, sampler_for, tidy, trials_of

MOST_ATTEMPTS = 2
"""How often a point is taken; a process that is killed twice over one is killed by it."""

_UNMARKED_FOR = timedelta(minutes=1)
"""Age from which a trial without a mark is nobody's, also where other machines take trials."""


class Claims:
    """Takes trials of one study for one process.

    Args:
        sweep: The sweep.
        study: Its study.
        work_dir: Folder of the locks and marks.
        shared: Whether other machines may take trials of this study.

    Attributes:
        study: The study.
    """

    def __init__(self, sweep: Sweep, study: optuna.Study, work_dir: Path, *, shared: bool) -> None:
        self._sweep = sweep
        self.study = study
        self._work_dir = work_dir
        self._shared = shared

    @contextmanager
    def working(self) -> Iterator[str]:
        """Mark this process as one that works; yield the mark."""
        name = f"{platform.node()}/{uuid.uuid4().hex}"
        path = _mark_path(self._work_dir, self._sweep.name, name)
        with sweep_lock(self._work_dir, self._sweep.name):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
            fcntl.flock(file, fcntl.LOCK_EX)
        with file:
            yield name
            path.unlink(missing_ok=True)

    def take(self, mark: str, target: int) -> optuna.Trial | None:
        """Return the next trial to work on, None where the study has all it was asked for.

        Args:
            mark: The mark of this process.
            target: How many trials the study shall have.
        """
        with sweep_lock(self._work_dir, self._sweep.name):
            self._repair()
            trials = trials_of(self.study)
            position = counted(trials)
            if position >= target:
                return None
            self.study.sampler = sampler_for(self._sweep.sampler, position)
            waiting = any(trial.state == TrialState.WAITING for trial in trials)
            if self._sweep.sampler.kind == "grid" and not waiting:
                self.study.enqueue_trial(self._next_of_grid(trials))
            trial = self.study.ask(distributions(self._sweep))
            trial.set_user_attr(OWNER, mark)
            trial.set_user_attr(STARTED, utc_now())
            return trial

    def repair(self) -> list[int]:
        """Queue the points of trials that nobody works on; return the trials' numbers."""
        with sweep_lock(self._work_dir, self._sweep.name):
            return self._repair()

    def give_back(self, trial: optuna.Trial, why: str) -> None:
        """End a trial that this process was told to stop, and queue its point again."""
        with sweep_lock(self._work_dir, self._sweep.name):
            frozen = self.study.get_trials(deepcopy=False)[trial.number]
            self._again(frozen, why, frozen.user_attrs.get(ATTEMPT, 1))

    def _repair(self) -> list[int]:
        held = self._held()
        left = [
            trial
            for trial in trials_of(self.study)
            if trial.state == TrialState.RUNNING and self._is_nobodys(trial, held)
        ]
        for trial in left:
            attempt = trial.user_attrs.get(ATTEMPT, 1)
            if attempt < MOST_ATTEMPTS:
                self._again(trial, "its process was killed", attempt + 1)
            else:
                self._set(trial, FAILURE, f"its process was killed, {attempt} times in a row")
                self.study.tell(trial.number, state=TrialState.FAIL)
        return [trial.number for trial in left]

    def _again(self, trial: FrozenTrial, why: str, attempt: int) -> None:
        """Fail a trial and queue its point.

        Killed while it got its point, a trial has only some settings; another is suggested then.
        """
        self._set(trial, DONE_AGAIN, why)
        self.study.tell(trial.number, state=TrialState.FAIL)
        if trial.params.keys() == self._sweep.space.keys():
            attributes = {ATTEMPT: attempt, RETRY_OF: trial.number}
            self.study.enqueue_trial(trial.params, user_attrs=attributes)

    def _next_of_grid(self, trials: Sequence[FrozenTrial]) -> dict[str, Scalar]:
        """Return the first point of the grid that no trial stands for."""
        taken = [point_of(trial) for trial in trials if DONE_AGAIN not in trial.user_attrs]
        return next(point for point in map(tidy, grid(self._sweep)) if point not in taken)

    def _set(self, trial: FrozenTrial, name: str, value: str) -> None:
        self.study._storage.set_trial_user_attr(trial._trial_id, name, value)

    def _held(self) -> set[str]:
        """Return the marks of this machine that a process holds; remove the others."""
        folder = _marks_dir(self._work_dir, self._sweep.name)
        held = set()
        for path in folder.glob("*") if folder.is_dir() else ():
            with path.open("a") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.add(path.name)
                else:
                    path.unlink(missing_ok=True)
        return held

    def _is_nobodys(self, trial: FrozenTrial, held: set[str]) -> bool:
        mark = trial.user_attrs.get(OWNER)
        if mark is None:
            begun = trial.datetime_start or datetime.now()
            return not self._shared or datetime.now() - begun > _UNMARKED_FOR
        machine, _, name = str(mark).partition("/")
        return machine == platform.node() and name not in held


def counted(trials: Sequence[FrozenTrial]) -> int:
    """Return how many trials a study has: begun, and not done again by another."""
    return sum(
        trial.state != TrialState.WAITING and DONE_AGAIN not in trial.user_attrs for trial in trials
    )


def _marks_dir(work_dir: Path, sweep: str) -> Path:
    return sweeps_dir(work_dir) / f"{sweep}.working"


def _mark_path(work_dir: Path, sweep: str, mark: str) -> Path:
    return _marks_dir(work_dir, sweep) / mark.rpartition("/")[2]
