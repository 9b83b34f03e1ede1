"""Trials of sweeps: experiment `sweeps/<name>/<profile>`, one MLflow run for each trial.

A trial's parameters are the settings it was given and its metrics the objectives, so that MLflow
shows a study in parallel coordinates. The runs behind a trial are written to `runs/<profile>`
like those of tables, with their curves; each side has tags that lead to the other. MLflow is
never waited for twice: when it has failed, there is one warning and no further attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.runtime import Store
from harness.tracking.database import chosen_uri, open_server, reached, write_lock
from harness.tracking.marks import Mark, Marks
from harness.tracking.patience import attempt
from harness.tracking.record import Record, Status, join, metric_name, milliseconds, sha256
from harness.tracking.runs import run_identity, run_record

if TYPE_CHECKING:
    from harness.registry.profile import Profile
    from harness.tracking.server import Server
    from harness.trainer.plan import Run

NOTE = (
    "One run for each trial of the sweep `{}` at the profile `{}`, measured on validation prompts; "
    "no result. Select all, Compare, and look at the parallel coordinates."
)

_STATUS: Mapping[str, Status] = {
    "running": "RUNNING",
    "waiting": "KILLED",
    "complete": "FINISHED",
    "pruned": "FINISHED",
    "fail": "FAILED",
}


class TrialLike(Protocol):
    """What the projection reads of a trial."""

    @property
    def number(self) -> int:
        """Its number in the study."""
        ...

    @property
    def state(self) -> str:
        """`running`, `complete`, `pruned` or `fail`."""
        ...

    @property
    def params(self) -> Mapping[str, object]:
        """The settings it was given, by path."""
        ...

    @property
    def values(self) -> Mapping[str, float] | None:
        """Its objectives by name, once it is complete."""
        ...

    @property
    def so_far(self) -> Mapping[int, float]:
        """The one objective, averaged over the first seeds, by their number."""
        ...

    @property
    def started(self) -> str | None:
        """When it began, ISO 8601."""
        ...

    @property
    def ended(self) -> str | None:
        """When it ended, ISO 8601."""
        ...

    @property
    def reused(self) -> int:
        """Stages it found in the store."""
        ...

    @property
    def computed(self) -> int:
        """Stages computed for it."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it failed."""
        ...

    @property
    def retry_of(self) -> int | None:
        """The trial of a killed process that it stands for."""
        ...


@dataclass(frozen=True)
class StudyName:
    """What the trials belong to.

    Attributes:
        sweep: Name of the sweep.
        profile: Name of the profile.
        study: Name of the study, which differs where settings do.
        objective: Name of the first objective.
    """

    sweep: str
    profile: str
    study: str
    objective: str


class TrialTracker:
    """Projects trials to MLflow.

    Args:
        work_dir: Folder of the default database and the locks.
        store: The stages.
        name: What the trials belong to.
        warn: Takes the one sentence that says MLflow is not available.
        uri: Tracking URI; `MLFLOW_TRACKING_URI` where not given, else the default database.
    """

    def __init__(
        self,
        work_dir: Path,
        store: Store,
        name: StudyName,
        warn: Callable[[str], None],
        uri: str | None = None,
    ) -> None:
        self.uri = chosen_uri(work_dir, uri)
        self._work_dir = work_dir
        self._store = store
        self._name = name
        self._warn = warn
        self._server: Server | None = None
        self._marks = Marks(work_dir)
        self._mark: Mark | None = None
        self._failed = False

    def write(self, trial: TrialLike, runs: Sequence[Run], profile: Profile | None) -> str | None:
        """Bring MLflow to the state of a trial and, once it has ended, of its runs.

        A trial that is running is marked as computed by this process until it is written again.

        Args:
            trial: The trial.
            runs: The runs behind it.
            profile: The profile of the runs; None where they could not be planned.

        Returns:
            The id of the trial's MLflow run, None where MLflow cannot be reached.
        """
        tags: dict[str, str] = {"runs": join(run_identity(run) for run in runs)}
        self._hold(trial, runs)
        if trial.state != "running" and profile is not None:
            found = self.write_runs(runs, profile, {"trial": str(trial.number)})
            tags["runs.mlflow"] = join(found)
        return self._attempt(lambda: [trial_record(self._name, trial, tags)])[0]

    def _hold(self, trial: TrialLike, runs: Sequence[Run]) -> None:
        """Mark a trial and its runs as computed, or as computed no more."""
        if self._mark is not None:
            self._mark.end()
            self._mark = None
        if trial.state == "running":
            asked = {run_identity(run): run.asked for run in runs}
            asked[trial_identity(self._name, trial)] = ()
            with suppress(OSError):  # then it is ended in MLflow too soon, and written later
                self._mark = self._marks.begin(asked)

    def write_runs(
        self, runs: Sequence[Run], profile: Profile, tags: Mapping[str, str]
    ) -> list[str | None]:
        """Bring MLflow to the state of some runs of the sweep; return their MLflow ids."""
        own = {"sweep": self._name.sweep, "study": self._name.study, **tags}

        def records() -> list[Record]:
            asked = self._marks.read()
            found = [run_record(run, profile, self._store, {}, asked) for run in runs]
            return [replace(record, tags={**record.tags, **own}) for record in found if record]

        return self._attempt(records)

    def _attempt(self, records: Callable[[], list[Record]]) -> list[str | None]:
        """Write some records; return the ids of their MLflow runs, `[None]` if that fails."""
        found = None
        if not self._failed:
            work = partial(self._written, records)
            found = attempt(self._work_dir, self.uri, self._warn, work)
            self._failed = found is None
        return [None] if found is None else [*found]

    def _written(self, records: Callable[[], list[Record]]) -> list[str]:
        first = self._server is None
        server = self._server or open_server(self.uri, self._work_dir)
        self._server = server
        with reached(self.uri), write_lock(self._work_dir, self.uri):
            if first:
                server.end_stale(self._marks)
            return [self._one(server, record) for record in records()]

    def _one(self, server: Server, record: Record) -> str:
        found = server.runs(record).get(record.identity, [])
        return server.apply(record, found, settle=False)[1]


def trial_identity(name: StudyName, trial: TrialLike) -> str:
    """Return the tag value by which a trial's MLflow run is found again."""
    return sha256(["trial", name.study, trial.number])


def trial_record(name: StudyName, trial: TrialLike, tags: Mapping[str, str]) -> Record:
    """Return what MLflow should hold of a trial."""
    now = datetime.now(UTC).isoformat()
    start_ms = milliseconds(trial.started or now)
    status = _STATUS[trial.state]
    metrics = dict(trial.values or {})
    metrics |= {f"{name.objective}/seeds{step}": value for step, value in trial.so_far.items()}
    end_ms = None if status == "RUNNING" else milliseconds(trial.ended or now)
    own = {
        "sweep": name.sweep,
        "study": name.study,
        "trial": str(trial.number),
        "trial.state": trial.state,
        "stages": f"{trial.reused} reused, {trial.computed} computed",
    }
    if trial.failure:
        own["failure"] = trial.failure[:4000]
    if trial.retry_of is not None:
        own["retry_of"] = str(trial.retry_of)
    return Record(
        experiment=f"sweeps/{name.sweep}/{name.profile}",
        note=NOTE.format(name.sweep, name.profile),
        identity=trial_identity(name, trial),
        name=f"trial {trial.number}",
        status=status,
        start_ms=start_ms,
        end_ms=end_ms,
        params={path: join([value]) for path, value in trial.params.items()},
        tags={**own, **tags},
        scores_digest=sha256({key: repr(value) for key, value in metrics.items()}),
        read_scores=lambda: {metric_name(key): value for key, value in metrics.items()},
    )
