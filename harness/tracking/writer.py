"""The runs of some tables, found by stage: which MLflow runs a stage's news belong to.

A stage that several runs share is computed once, and its curves appear in each of these runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.runtime import Stage, Store
from harness.tracking.marks import Marks
from harness.tracking.record import Status
from harness.tracking.runs import run_identity, run_record, trained_in, upstream
from harness.trainer.runs import asked_together

if TYPE_CHECKING:
    from mlflow.entities import Metric

    from harness.registry.profile import Profile
    from harness.tracking.server import Server
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns


@dataclass(frozen=True)
class LivePoint:
    """One point that the running stage of a fingerprint has reported."""

    stage: str
    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class _Tracked:
    """A run that is tracked, with its profile."""

    run: Run
    profile: Profile


@dataclass(frozen=True)
class _Written:
    """What was last written of a run."""

    run_id: str
    start_ms: int
    status: Status


class LiveWriter:
    """Knows the runs that are being computed, and writes what is new of them.

    Args:
        store: Where finished stages are.
        marks: Which runs are computed.
        served: The `table/row` places each run id stands behind.
        tables: The runs that are computed; one that several tables judge differently is judged on
            the benchmarks of all of them.
    """

    def __init__(
        self,
        store: Store,
        marks: Marks,
        served: Mapping[str, Sequence[str]],
        tables: Iterable[TableRuns],
    ) -> None:
        self._store = store
        self._marks = marks
        self._served = served
        self._tracked: dict[str, _Tracked] = {}
        self._trained: dict[str, dict[str, str]] = {}
        self._needed: dict[str, list[str]] = {}
        self._shown: set[str] = set()
        self._written: dict[str, _Written] = {}
        for table in asked_together(tables):
            for run in table.runs.values():
                self._add(_Tracked(run, table.profile))

    @property
    def asked(self) -> dict[str, tuple[str, ...]]:
        """The benchmarks asked for of each run, by its identity."""
        return {identity: tracked.run.asked for identity, tracked in self._tracked.items()}

    def has_curves(self, stage: Stage) -> bool:
        """Return whether a stage's points are shown: it trains one of the runs."""
        return stage.fingerprint in self._trained

    def is_shown(self, stage: Stage) -> bool:
        """Return whether a stage's end shows in MLflow: it trains or judges one of the runs."""
        return stage.fingerprint in self._shown

    def is_needed(self, stage: Stage) -> bool:
        """Return whether one of the runs cannot do without a stage."""
        return stage.fingerprint in self._needed

    def write_points(self, server: Server, points: Iterable[LivePoint]) -> None:
        """Add points of running trainings to all runs they belong to."""
        from harness.tracking.server import point_metrics

        metrics: dict[str, list[Metric]] = {}
        for point in points:
            if self._store.status(point.stage) == "done":
                continue  # the runs' records have the whole curve
            # A store keeps no infinities, so live points have none either.
            values = {n: v if math.isfinite(v) else math.nan for n, v in point.metrics.items()}
            for identity, prefix in self._trained[point.stage].items():
                written = self._written.get(identity) or self._write(server, identity)
                if written is not None:
                    new = point_metrics(prefix, written.start_ms, point.step, values)
                    metrics.setdefault(identity, []).extend(new)
        for identity, some in metrics.items():
            if not server.add_points(self._written[identity].run_id, some):
                del self._written[identity]  # another work folder writes it

    def write_settled(self, server: Server, stages: Iterable[str]) -> None:
        """Write the records of all runs that need stages which have finished or failed."""
        for identity in dict.fromkeys(name for stage in stages for name in self._needed[stage]):
            self._write(server, identity)

    def write_signs(self, server: Server) -> None:
        """Say of the runs that are computed that they still are."""
        for identity in self._running():
            if not server.sign(self._written[identity].run_id):
                del self._written[identity]

    def write_ends(self, server: Server) -> None:
        """Write the records of the runs that are not computed any more."""
        for identity in self._running():
            self._write(server, identity)

    def _running(self) -> list[str]:
        return [name for name, written in self._written.items() if written.status == "RUNNING"]

    def _add(self, tracked: _Tracked) -> None:
        identity = run_identity(tracked.run)
        if identity in self._tracked:
            return
        run = tracked.run
        self._tracked[identity] = tracked
        for prefix, stages in trained_in(run).items():
            for stage in stages:
                self._trained.setdefault(stage.fingerprint, {})[identity] = prefix
        for stage in upstream(run.targets):
            self._needed.setdefault(stage.fingerprint, []).append(identity)
        self._shown |= {stage.fingerprint for stage in (*run.training, *run.judged.values())}

    def _write(self, server: Server, identity: str) -> _Written | None:
        """Write a run's record; None if there is none, or another work folder writes it."""
        tracked = self._tracked[identity]
        asked = self._marks.read()
        record = run_record(tracked.run, tracked.profile, self._store, self._served, asked)
        if record is None:
            return None
        found = server.runs(record).get(identity, [])
        change, run_id = server.apply(record, found, settle=False)
        if change == "kept":
            self._written.pop(identity, None)
            return None
        self._written[identity] = _Written(run_id, record.start_ms, record.status)
        return self._written[identity]
