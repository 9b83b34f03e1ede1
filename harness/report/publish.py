"""Publishing: a report that stays, with the per-prompt scores it was computed from.

    results/<profile>/<table>/report.md        for people
                              report.json      cells, summary, distances, creator and origin
                              scores.parquet   value of each prompt, by run, seed and score
                              curves.svg       learning curves, where anything is trained online
                              study.svg        what a table's study found, where it has one
                              digests.json     sha256 of the files, fingerprints of the stages

Nothing else writes there (`harness.report.publication`). `harness.report.published` reads it back
and computes the cells again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.registry.profile import benchmark_of
from harness.report import view
from harness.report.cells import Cell
from harness.report.costs import Costs, RowCost
from harness.report.curves import draw_curves
from harness.report.json import dumps
from harness.report.markdown import as_markdown
from harness.report.parquet import Column, write_columns
from harness.report.publication import PAGE, REPORT, SCORES, publish_folder
from harness.report.published import TABLE
from harness.report.report import Report, assemble
from harness.report.reward_study import read_study
from harness.report.reward_study_plot import draw_study
from harness.report.scores import Measured, flat, read_scores
from harness.store import Store

if TYPE_CHECKING:
    from harness.trainer.runs import TableRuns

OF_STUDY = "study"
"""Where the digests name the stages of a table's study, beside those of its runs."""


def publish(
    table_runs: TableRuns,
    cells: Sequence[Cell],
    store: Store,
    results_dir: Path,
    *,
    allow_fewer: bool = False,
) -> Path:
    """Write `results/<profile>/<table>/`, in place of what was published before.

    Args:
        table_runs: The runs behind the table.
        cells: Its cells (`harness.report.cells.build_cells`).
        store: The store they were read from.
        results_dir: The folder of published results.
        allow_fewer: Publish it though it is not whole, or has less than what stands there.

    Returns:
        The folder that was written.

    Raises:
        Refused: It is not whole, or has less than what stands there, and that is not allowed.
        StoreError: A stored file is not what was written, the disk is full, or the folder may
            not be written.
    """
    measured = read_scores(table_runs, store)
    report = assemble(table_runs, cells, store, measured=measured)
    measured |= read_study(table_runs, store)

    def write(draft: Path) -> None:
        (draft / PAGE).write_text(as_markdown(report), encoding="utf-8")
        if report.curves:
            draw_curves(report.curves, draft / view.CURVES)
        if report.study is not None and report.study.whole:
            draw_study(report.study, draft / view.STUDY)
        data = published_json(report, Costs(store).of(table_runs))
        (draft / REPORT).write_text(dumps(data), encoding="utf-8")
        write_scores(measured, draft / SCORES)

    place, stages = f"{report.profile.name}/{report.table.id}", _fingerprints(table_runs, store)
    return publish_folder(TABLE, place, results_dir, write, stages=stages, allow_fewer=allow_fewer)


def published_json(report: Report, costs: Sequence[RowCost]) -> dict[str, Any]:
    """Return everything a report says, and what its rows cost, as JSON data.

    Its schema is `schemas/published.json`.
    """
    table = report.table
    return {
        "table": table.id,
        "profile": report.profile.name,
        "scale": report.profile.scale,
        "seeds": list(report.seeds),
        "columns": [
            {
                "id": c.id,
                "score": c.reads,
                "unit": c.unit,
                "direction": c.direction,
                "by_construction": report.profile.by_construction(c.reads),
            }
            for c in table.columns
        ],
        "rows": [
            {
                "id": row.id,
                "label": row.label,
                "baseline": row.baseline,
                "runs": {column.id: row.run_id(column) for column in table.columns},
            }
            for row in report.rows
        ],
        "cells": [cell.as_json() for cell in report.cells],
        "summary": [summary.as_json() for summary in report.summaries],
        "distances": [distance.as_json() for distance in report.distances],
        "creation": [creation.as_json() for creation in report.creations],
        "online": [cost.as_json() for cost in report.online],
        "costs": [cost.as_json() for cost in costs],
        **({} if report.study is None else {"study": report.study.as_json()}),
        "failures": view.failures(report),
        "origin": report.origin.as_json(),
        "assumptions": [asdict(assumption) for assumption in report.assumptions],
        "notes": view.table_notes(report)[1],
    }


def write_scores(measured: Measured, path: Path) -> None:
    """Write per-prompt values as Parquet: run_id, seed, column, prompt_id, value.

    `column` is the score that a table's column reads. Rows are in order of the other columns.
    """
    runs, seeds, scores, prompts, values = list(zip(*flat(measured), strict=True)) or [()] * 5
    columns: dict[str, tuple[type, Column]] = {
        "run_id": (str, runs),
        "seed": (int, seeds),
        "column": (str, scores),
        "prompt_id": (str, prompts),
        "value": (float, values),
    }
    write_columns(path, columns)


def _fingerprints(table_runs: TableRuns, store: Store) -> dict[str, dict[str, str]]:
    """Return the fingerprints of each run's stages that are done: its judges' and trainings'."""
    read = {benchmark_of(table_runs.profile, c.reads) for c in table_runs.table.columns}
    found: dict[str, dict[str, str]] = {}
    for run in table_runs.runs.values():
        stages = {f"judge {name}": stage for name, stage in run.judged.items() if name in read}
        stages |= {f"train {i}": stage for i, stage in enumerate(run.training, start=1)}
        found[f"{run.run_id}/{run.profile}/seed{run.seed}"] = {
            name: stage.fingerprint
            for name, stage in stages.items()
            if store.status(stage.fingerprint) == "done"
        }
    study = [] if table_runs.study is None else table_runs.study.targets
    for stage in study:
        if store.status(stage.fingerprint) == "done":
            found.setdefault(OF_STUDY, {})[stage.label] = stage.fingerprint
    return found
