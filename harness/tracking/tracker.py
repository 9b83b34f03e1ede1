"""The tracker: what the command line knows of MLflow.

    tracker.start(tables)                    before a run; cheap
    tracker.progress / stage_finished / ...  from the engine's events; these return at once
    tracker.finish(lambda: states)           after the run: everything, or one warning
    tracker.sync(states)                     `harness sync`: everything, or an error

A note in the work folder says which records the server had after the last sync, so that a run
that has computed nothing new does not even import MLflow.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.runtime import Stage, Store
from harness.tracking.database import chosen_uri, open_server, reached, write_lock
from harness.tracking.live import Live
from harness.tracking.marks import Asked, Mark, Marks
from harness.tracking.notes import Notes
from harness.tracking.patience import PATIENCE_S, attempt
from harness.tracking.record import Record
from harness.tracking.rows import CellLike, table_records
from harness.tracking.writer import LiveWriter
from harness.trainer.runs import asked_together

if TYPE_CHECKING:
    from mlflow.entities import Run

    from harness.trainer.runs import TableRuns

_LOG = logging.getLogger(__name__)


class TableState(NamedTuple):
    """A table at a profile: the runs behind it, and the report's cells."""

    runs: TableRuns
    cells: Sequence[CellLike]


class Tracker:
    """Projects a store to MLflow.

    Args:
        work_dir: Folder of the default database, the locks and the notes.
        store: The stages.
        served: The `table/row` places each run id stands behind, over all tables.
        uri: Tracking URI; `MLFLOW_TRACKING_URI` where not given, else the default database.
        warn: Takes the one sentence that says MLflow is not available, in whichever thread finds
            out.
        flush_s: Seconds between two writes while stages run.

    Attributes:
        uri: The tracking URI.
    """

    def __init__(
        self,
        work_dir: Path,
        store: Store,
        served: Mapping[str, Sequence[str]],
        *,
        uri: str | None = None,
        warn: Callable[[str], None] = _LOG.warning,
        flush_s: float = 1.0,
    ) -> None:
        self.uri = chosen_uri(work_dir, uri)
        self._work_dir = work_dir
        self._store = store
        self._served = served
        self._warn = warn
        self._flush_s = flush_s
        self._notes = Notes(work_dir, self.uri)
        self._marks = Marks(work_dir)
        self._mark: Mark | None = None
        self._live: Live | None = None

    def start(self, tables: Sequence[TableRuns]) -> None:
        """Mark the runs of some tables as computed, and begin to track them live."""
        writer = LiveWriter(self._store, self._marks, self._served, tables)
        try:
            self._mark = self._marks.begin(writer.asked)
        except OSError as error:
            self._warn(f"MLflow is written after the run only: {error}")
        else:
            self._live = Live(self._work_dir, self.uri, writer, self._warn, self._flush_s)

    def progress(self, stage: Stage, step: int, metrics: Mapping[str, float]) -> None:
        """Take one point of a running stage's curves."""
        if self._live is not None:
            self._live.progress(stage, step, metrics)

    def stage_finished(self, stage: Stage) -> None:
        """Take that a stage is in the store."""
        if self._live is not None:
            self._live.stage_finished(stage)

    def stage_failed(self, stage: Stage) -> None:
        """Take that a stage has failed and the store knows why."""
        if self._live is not None:
            self._live.stage_failed(stage)

    def close(self, timeout_s: float = 15.0) -> bool:
        """End live tracking; return whether MLflow has failed meanwhile.

        Args:
            timeout_s: Longest wait for what is not written yet, in seconds.
        """
        if self._mark is not None:
            self._mark.end()
        if self._live is None:
            return False
        live, self._live = self._live, None
        live.close(timeout_s)
        return live.failed.is_set()

    def finish(
        self,
        states: Callable[[], Sequence[TableState]],
        timeout_s: float = 15.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """End live tracking and bring MLflow to the store's state; at worst there is a warning.

        Args:
            states: Returns the tables with their cells after the run.
            timeout_s: Longest wait for what is not written yet, in seconds.
            patience_s: Longest wait for the rest, in seconds.
        """
        if not self.close(timeout_s):
            attempt(
                self._work_dir, self.uri, self._warn, lambda: self._catch_up(states()), patience_s
            )

    def _catch_up(self, states: Sequence[TableState]) -> None:
        if not self.is_current(states):
            self.sync(states)

    def is_current(self, states: Sequence[TableState]) -> bool:
        """Return whether the last sync left nothing to do for some tables; imports no MLflow.

        What others have done to the server since is not noticed; `sync` would.
        """
        asked = self._marks.read()
        return not asked.ended and self._notes.covers(self._records(states, asked))

    def sync(self, states: Sequence[TableState]) -> Counter[str]:
        """Bring MLflow to the store's state, whatever it holds now.

        Args:
            states: The tables with their cells.

        Returns:
            How many MLflow runs were `created`, `updated`, `replaced`, and left `unchanged` or
            `kept` as another work folder writes them.

        Raises:
            TrackingError: MLflow cannot be reached, or refuses what is written.
            StoreError: The store cannot be read.
        """
        changes: Counter[str] = Counter()
        asked = self._marks.read()
        if not asked.ended and not self._records(states, asked):
            return changes
        server = open_server(self.uri, self._work_dir)
        with reached(self.uri), write_lock(self._work_dir, self.uri):
            # What begins from here on marks its runs first, and writes when this is done.
            asked = self._marks.read()
            records = self._records(states, asked)
            found: dict[str, dict[str, list[Run]]] = {}
            written = []
            for record in records:
                if record.experiment not in found:
                    found[record.experiment] = server.runs(record, all_of_experiment=True)
                held = found[record.experiment].get(record.identity, [])
                settle = record.identity not in asked.computing
                change, _ = server.apply(record, held, settle=settle)
                changes[change] += 1
                if change != "kept":
                    written.append(record)
            self._notes.add(written)
            server.end_stale(self._marks)
        return changes

    def _records(self, states: Sequence[TableState], asked: Asked) -> list[Record]:
        """Return the distinct records of some tables; tables may share runs."""
        together = asked_together([state.runs for state in states])
        return list(
            {
                record.identity: record
                for runs, state in zip(together, states, strict=True)
                for record in table_records(runs, state.cells, self._store, self._served, asked)
            }.values()
        )
