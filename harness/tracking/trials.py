"""Trials of sweeps: experiment `sweeps/<name>/<profile>`, one MLflow run for each trial.

A trial's parameters are the settings it was given and its metrics the objectives, so that MLflow
shows a study in parallel coordinates. The runs behind a trial are written to `runs/<profile>`
like those of tables, with their curves; each side has tags that lead to the other. MLflow is
never waited for twice: when it has failed, there is one warning and no further attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.store import Store
from harness.tracking.database import chosen_uri, open_server, reached, write_lock
from harness.tracking.patience import attempt
from harness.tracking.record import Record, Status, join, metric_name, milliseconds, sha256
from harness.tracking.runs import run_identity, run_record

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile
    from harness.tracking.server import Server
    from harness.trainer.plan import Run

NOTE = (
    "One run for each trial of the sweep `{}` at the profile `{}`, measured on validation prompts; "
    "no result. Select all, Compare, and look at the parallel coordinates."
)

_STATUS: Mapping[str, Status] = {
    "running": "RUNNING",
    "waiting": "RUNNING",
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
        self._failed = False

    def write(self, trial: TrialLike, runs: Sequence[Run], profile: Profile | None) -> str | None:
        """Bring MLflow to the state of a trial and, once it has ended, of its runs.

        Args:
            trial: The trial.
            runs: The runs behind it.
            profile: The profile of the runs; None where they could not be planned.

        Returns:
            The id of the trial's MLflow run, None where MLflow cannot be reached.
        """
        tags: dict[str, str] = {"runs": join(run_identity(run) for run in runs)}
        if trial.state != "running" and profile is not None:
            found = self.write_runs(runs, profile, {"trial": str(trial.number)})
            tags["runs.mlflow"] = join(found)
        record = trial_record(self._name, trial, tags)
        return self._apply([record])[0]

    def write_runs(
        self, runs: Sequence[Run], profile: Profile, tags: Mapping[str, str]
    ) -> list[str | None]:
        """Bring MLflow to the state of some runs of the sweep; return their MLflow ids."""
        own = {"sweep": self._name.sweep, "study": self._name.study, **tags}
        records = [run_record(run, profile, self._store, {}) for run in runs]
        return self._apply(
            [replace(record, tags={**record.tags, **own}) for record in records if record]
        )

    def _apply(self, records: Sequence[Record]) -> list[str | None]:
        found = None
        if not self._failed:
            work = partial(self._written, records)
            found = attempt(self._work_dir, self.uri, self._warn, work)
            self._failed = found is None
        return [None] * len(records) if found is None else [*found]

    def _written(self, records: Sequence[Record]) -> list[str]:
        if self._server is None:
            self._server = open_server(self.uri)
        with reached(self.uri), write_lock(self._work_dir):
            return [self._one(self._server, record) for record in records]

    def _one(self, server: Server, record: Record) -> str:
        found = server.runs(record).get(record.identity, [])
        return server.apply(record, found, settle=False)[1]


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
        identity=sha256(["trial", name.study, trial.number]),
        name=f"trial {trial.number}",
        status=status,
        start_ms=start_ms,
        end_ms=end_ms,
        params={path: join([value]) for path, value in trial.params.items()},
        tags={**own, **tags},
        scores_digest=sha256({key: repr(value) for key, value in metrics.items()}),
        read_scores=lambda: {metric_name(key): value for key, value in metrics.items()},
    )
