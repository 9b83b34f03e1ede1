"""Records of tables: experiment `<table>/<profile>`, one MLflow run for each row, over its runs.

An experiment's description is the table's answer. Ours minus the paper's is never written: only
gains over the baseline row are comparable. An incomplete row is KILLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from harness.report.answer import answer_to
from harness.report.view import plain
from harness.runtime import Store
from harness.tracking.record import (
    COMMIT_TAG,
    Record,
    Status,
    flatten,
    join,
    metric_name,
    recipe_file,
    rounded,
)
from harness.tracking.runs import experiment_note, row_identity, run_record, runs_of

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns
    from harness.report.model import Cell, ReportRow
    from harness.report.results import Results


class TableState(NamedTuple):
    """A table's runs at a profile, and its results; None to show only the runs."""

    runs: TableRuns
    results: Results | None = None


def state_records(state: TableState, store: Store) -> list[Record]:
    """Return the records of a table's rows, if there is a report, and of the runs below them."""
    runs = [record for of in runs_of(state.runs) if (record := run_record(of, store))]
    if state.results is None:
        return runs
    rows, results = [], state.results
    answer = "\n\n".join(answer_to([results], results.verdicts).lines)
    note = f"{experiment_note(results.table, results.profile)}\n\n{answer}"
    for number, row in enumerate(results.report.rows, start=1):
        if own := [record for record in runs if record.params["row"] == row.id]:
            rows.append(_row(results, number, row, own, note))
    return [*rows, *runs]


def _row(
    results: Results, number: int, row: ReportRow, runs: Sequence[Record], note: str
) -> Record:
    """Return the record of the report's row of that number, over those of its runs."""
    costs = {
        name: rounded(sum(run.scores[name] for run in runs) / len(runs))
        for name in runs[0].scores
        if all(name in run.scores for run in runs)
    }
    table, profile, report = results.table, results.profile, results.report
    origin = report.origin
    cells = [cell for cell in report.cells if cell.row == row.id]
    numbers = {name: value for cell in cells for name, value in _metrics(cell).items()}
    recipes = {name: it.canonical() for name, it in table.recipes(table.row(row.id)).items()}
    settings: dict[str, list[str]] = {}
    for recipe in recipes.values():
        for key, text in flatten(recipe, "recipe").items():
            settings.setdefault(key, []).append(text)
    tags = {
        "label": plain(row.label),
        "order": f"{number:02}",
        "scale": report.scale,
        "seeds": join(report.seeds),
        "states": join(cell.state for cell in cells),
        "policy": join(origin.policies),
        "reward_model": join(name for cell in cells for name in cell.reward_models),
        "creator": join(name for cell in cells for name in cell.creators),
        "judge": join(cell.judge for cell in cells if cell.judge),
        "mlflow.source.name": f"harness run {report.table} --profile {report.profile}",
        "mlflow.source.type": "LOCAL",
    }
    last = max(runs, key=lambda run: run.end_ms)
    if COMMIT_TAG in last.tags:
        tags[COMMIT_TAG] = last.tags[COMMIT_TAG]
    if reasons := {cell.reason: None for cell in cells if cell.state == "failed" and cell.reason}:
        tags["failure"] = "; ".join(filter(None, reasons))
    return Record(
        experiment=f"{table.id}/{profile.name}",
        note=note,
        identity=row_identity(table, profile.name, row.id),
        name=row.id,
        status=_status(cells),
        start_ms=min(run.start_ms for run in runs),
        end_ms=max(run.end_ms for run in runs),
        params={
            "table": table.id,
            "profile": profile.name,
            "row": row.id,
            "run": join(recipes),
            "baseline": row.baseline or "none",
            **{key: join(texts) for key, texts in settings.items()},
        },
        tags=tags,
        # MLflow compares runs by the metrics logged first, so ours come first.
        scores=dict(sorted((numbers | costs).items(), key=lambda it: it[0].startswith("paper/"))),
        files=lambda: recipe_file(recipes),
    )


def _status(cells: Sequence[Cell]) -> Status:
    states = {cell.state for cell in cells}
    if "failed" in states:
        return "FAILED"
    return "FINISHED" if states <= {"ok", "not_available"} else "KILLED"


def _metrics(cell: Cell) -> dict[str, float]:
    """Return a cell's numbers by metric name: the paper's, and ours if the cell is complete."""
    column = metric_name(cell.column)
    numbers = {f"paper/{column}": cell.paper, f"paper/{column}_gain": cell.paper_gain}
    if cell.state == "ok":
        numbers |= {
            f"ours/{column}": cell.mean,
            f"ours/{column}_low": cell.ci_low,
            f"ours/{column}_high": cell.ci_high,
            f"gain/{column}": cell.gain,
            f"gain/{column}_low": cell.gain_ci_low,
            f"gain/{column}_high": cell.gain_ci_high,
        }
    return {name: rounded(number) for name, number in numbers.items() if number is not None}
