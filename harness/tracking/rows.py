"""Records of rows: experiment `<table>/<profile>`, one MLflow run for each row.

Selecting rows in MLflow's UI then compares them. A row's numbers are those of the report's cells
and of nothing else; a cell that is not whole has no metrics, only its state. What is ours minus
what is the paper's is never written: gains over the baseline row are what can be compared. A row
that is not whole is KILLED and never RUNNING: what is computed is its runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from harness.runtime import Store
from harness.tracking.marks import Asked
from harness.tracking.record import Record, Status, join, metric_name, sha256
from harness.tracking.runs import LONGEST_TAG, run_record

if TYPE_CHECKING:
    from harness.registry.schema import Row
    from harness.trainer.runs import TableRuns

_INHERITED = ("policy", "reward_model", "creator", "judge", "benchmarks", "commit", "dirty")


class CellLike(Protocol):
    """What the projection reads of a report's cell."""

    @property
    def row(self) -> str:
        """Id of the row."""

    @property
    def column(self) -> str:
        """Id of the column."""

    @property
    def state(self) -> str:
        """One of `ok`, `partial`, `not_run`, `failed`, `not_available`."""

    @property
    def mean(self) -> float | None:
        """Ours, over seeds and prompts, in the unit of the column."""

    @property
    def ci_low(self) -> float | None:
        """Lower end of the 95% interval."""

    @property
    def ci_high(self) -> float | None:
        """Upper end of the 95% interval."""

    @property
    def gain(self) -> float | None:
        """Ours minus ours of the baseline row."""

    @property
    def gain_ci_low(self) -> float | None:
        """Lower end of the gain's 95% interval."""

    @property
    def gain_ci_high(self) -> float | None:
        """Upper end of the gain's 95% interval."""

    @property
    def paper(self) -> float | None:
        """The paper's value."""

    @property
    def paper_gain(self) -> float | None:
        """The paper's value minus its value of the baseline row."""


def table_records(
    table_runs: TableRuns,
    cells: Sequence[CellLike],
    store: Store,
    served: Mapping[str, Sequence[str]],
    asked: Asked,
) -> list[Record]:
    """Return the records of a table: its runs, then its rows.

    Args:
        table_runs: The runs behind the table.
        cells: The report's cells of the table at that profile; none, and there are no rows.
        store: Where the stages are.
        served: The `table/row` places each run id stands behind.
        asked: What the work folder knows of runs.

    Raises:
        StoreError: The store cannot be read.
    """
    runs = {
        key: record
        for key, run in table_runs.runs.items()
        if (record := run_record(run, table_runs.profile, store, served, asked))
    }
    rows = []
    for row in table_runs.rows:
        names = {row.run_id(column) for column in table_runs.table.columns}
        behind = [record for (name, _), record in runs.items() if name in names]
        of_row = [cell for cell in cells if cell.row == row.id]
        if behind and of_row:
            rows.append(_row_record(table_runs, row, of_row, behind))
    return [*runs.values(), *rows]


def _row_record(
    table_runs: TableRuns, row: Row, cells: Sequence[CellLike], behind: Sequence[Record]
) -> Record:
    table, profile = table_runs.table, table_runs.profile
    metrics = {name: value for cell in cells for name, value in _metrics(cell).items()}
    states = {cell.state for cell in cells}
    status: Status = "FAILED" if "failed" in states else "KILLED"
    if states <= {"ok", "not_available"}:
        status = "FINISHED"
    start_ms = min(record.start_ms for record in behind)
    ends = [record.end_ms for record in behind if record.end_ms is not None]
    return Record(
        experiment=f"{table.id}/{profile.name}",
        note=f"{table.title}. {table.question} Scale: {profile.scale}.",
        identity=sha256(["row", table.id, profile.name, row.id]),
        name=row.id,
        status=status,
        start_ms=start_ms,
        end_ms=max(ends, default=start_ms),
        params={
            "table": table.id,
            "profile": profile.name,
            "row": row.id,
            "label": row.label,
            "run": join(row.run_id(column) for column in table.columns),
            "baseline": row.baseline or "none",
        },
        tags=_tags(table_runs, cells, behind),
        scores_digest=sha256(metrics),
        read_scores=lambda: metrics,
    )


def _metrics(cell: CellLike) -> dict[str, float]:
    """Return a whole cell's numbers by metric name; nothing for a cell that is not whole."""
    if cell.state != "ok":
        return {}
    column = metric_name(cell.column)
    numbers = {
        column: cell.mean,
        f"{column}.ci_low": cell.ci_low,
        f"{column}.ci_high": cell.ci_high,
        f"{column}.gain": cell.gain,
        f"{column}.gain_ci_low": cell.gain_ci_low,
        f"{column}.gain_ci_high": cell.gain_ci_high,
        f"{column}.paper": cell.paper,
        f"{column}.paper_gain": cell.paper_gain,
    }
    return {name: float(number) for name, number in numbers.items() if number is not None}


def _tags(
    table_runs: TableRuns, cells: Sequence[CellLike], behind: Sequence[Record]
) -> dict[str, str]:
    states = {cell.state for cell in cells}
    tags = {
        "scale": table_runs.profile.scale,
        "seeds": join(table_runs.seeds),
        "state": states.pop() if len(states) == 1 else "mixed",
        **{f"state.{metric_name(cell.column)}": cell.state for cell in cells},
    }
    found = [record.tags for record in behind]
    inherited = [*_INHERITED, *sorted({n for t in found for n in t if n.startswith("version.")})]
    for name in inherited:
        # A run that several commits computed says so itself, as a list.
        values = [part for t in found if name in t for part in t[name].split(", ")]
        tags[name] = join(value for value in values if value != "none")
    failures = dict.fromkeys(t["failure"] for t in found if "failure" in t)
    if failures:
        tags["failure"] = "; ".join(failures)[:LONGEST_TAG]
    return tags
