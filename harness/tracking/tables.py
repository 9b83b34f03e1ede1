"""Records of tables: experiment `<table>/<profile>`, one MLflow run for each row, over its runs.

Ours minus the paper's is never written: only gains over the baseline row are comparable. An
incomplete row is KILLED, never RUNNING. Published results get experiments that end in `/published`,
and need no store: a row has its scores as curves over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import HarnessError
from harness.registry.declared import all_profiles, all_tables
from harness.report.answer import answer_to
from harness.report.build import published_results
from harness.report.controls import KnownControls
from harness.report.publication import published_folders
from harness.report.view import plain
from harness.runtime import Store
from harness.tracking.record import (
    COMMIT_TAG,
    LONGEST_TAG,
    MetricValue,
    Record,
    Status,
    flatten,
    join,
    metric_name,
    milliseconds,
    recipe_file,
    rounded,
)
from harness.tracking.runs import experiment_note, row_identity, run_record, runs_of
from harness.tracking.trials import published_trials

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns
    from harness.report.model import Cell, ReportRow
    from harness.report.results import Results

SUFFIX = "/published"


class TableState(NamedTuple):
    """A table's runs at a profile, and its results; None to show only the runs."""

    runs: TableRuns
    results: Results | None = None


def state_records(state: TableState, store: Store) -> list[Record]:
    """Return the records of a table's rows, if there is a report, and of the runs below them."""
    runs = [record for of in runs_of(state.runs) if (record := run_record(of, store))]
    if state.results is None:
        return runs
    report = state.results.report
    source = f"harness run {report.table} --profile {report.profile}"
    rows = []
    for number, row in enumerate(report.rows, start=1):
        own = [record for record in runs if record.params["row"] == row.id]
        if own:
            times = (
                min(record.start_ms for record in own),
                max(record.end_ms or record.start_ms for record in own),
            )
            costs = {
                name: rounded(sum(record.scores[name] for record in own) / len(own))
                for name in own[0].scores
                if all(name in record.scores for record in own)
            }
            rows.append(_row(state.results, number, row, source, times, costs))
    return [*rows, *runs]


def _row(
    results: Results,
    number: int,
    row: ReportRow,
    source: str,
    times: tuple[int, int],
    costs: dict[str, float],
    by_seed: Sequence[MetricValue] = (),
    suffix: str = "",
    answer: str = "",
) -> Record:
    """Return the record of the report's row of that number; `suffix` ends the experiment's name."""
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
        "mlflow.source.name": source,
        "mlflow.source.type": "LOCAL",
        COMMIT_TAG: join(origin.commits[-1:]),
        **({"answer": answer[:LONGEST_TAG]} if answer else {}),
    }
    if reasons := {cell.reason: None for cell in cells if cell.state == "failed" and cell.reason}:
        tags["failure"] = "; ".join(filter(None, reasons))[:LONGEST_TAG]
    return Record(
        experiment=f"{table.id}/{profile.name}{suffix}",
        note=experiment_note(table, profile),
        identity=row_identity(table, f"{profile.name}{suffix}", row.id),
        name=row.id,
        status=_status(cells),
        start_ms=times[0],
        end_ms=times[1],
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
        basis=repr(by_seed),
        metrics=lambda: by_seed,
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


def published_records(results_dir: Path) -> list[Record]:
    controls = cache(lambda name: KnownControls(all_profiles()[name], None, results_dir))
    found: dict[str, list[Results]] = {}
    for folder in published_folders(results_dir):
        own = published_results(all_tables()[folder.name], folder, controls(folder.parent.name))
        found.setdefault(folder.parent.name, []).append(own)
    rows = [
        record
        for own in found.values()
        for answer in ["\n".join(answer_to(own, ()).lines)]
        for results in own
        for record in _published_rows(results, answer)
    ]
    return [*rows, *published_trials(results_dir, SUFFIX)]


def _published_rows(results: Results, answer: str) -> Iterator[Record]:
    """Yield the records of a published table's rows, tagged with its profile's answer."""
    report = results.report
    if report.origin.finished is None:
        raise HarnessError("a published table names no finished stage; publish it again")
    end, source = milliseconds(report.origin.finished), f"results/{report.profile}/{report.table}"
    for number, row in enumerate(report.rows, start=1):
        by_seed = [
            MetricValue(f"seeds/{score}", sum(values.values()) / len(values), end, seed)
            for (run, seed, score), values in results.measured.items()
            if run in row.runs.values()
        ]
        yield _row(results, number, row, source, (end, end), {}, by_seed, SUFFIX, answer)
