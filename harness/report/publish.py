"""Publishing a table: a report that stays, with the per-prompt scores it was computed from.

Read back, the cells are computed again from `scores.parquet` with the functions that computed them
first, so that a published table can be checked without a store, a model or the declarations. A
table of the embedded world has prompts and answers as well, in `examples.json`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from harness.registry.profile import benchmark_of
from harness.registry.schema import Table
from harness.report import reward_study
from harness.report.build import StoredTable, summarise
from harness.report.cells import judged_runs
from harness.report.controls import KnownControls
from harness.report.league import found_again
from harness.report.model import ClaimVerdict, Report
from harness.report.page.examples import Examples, examples_of, write_examples
from harness.report.publication import (
    SCORES,
    IndexEntry,
    Publication,
    read_published,
    without_numbers,
)
from harness.report.render import as_markdown, pictures
from harness.report.scores import Measured, Numbers, TableScores, read_score_file, write_scores
from harness.report.verdicts import Evidence, judge
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns


OF_STUDY = "study"
"""Where the digests name the stages of a table's study, beside those of its runs."""

NOT_PUBLISHED = "not published at this profile"


def publish(stored: StoredTable, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/<table>/` and return it, as `Publication.publish` does."""
    table_runs, store = stored.runs, stored.store
    report = stored.report_with_costs
    measured = stored.measured | reward_study.read_study(table_runs, store)
    # Prompts of real data sets and benchmarks are not ours to publish.
    own = report.profile.in_embedded_world
    examples = examples_of(table_runs, store) if own else Examples()
    read = {benchmark_of(table_runs.profile, c.reads) for c in table_runs.table.columns}
    stages = stages_behind(table_runs, store, read)
    study = [] if table_runs.study is None else table_runs.study.targets
    if done := _done({stage.label: stage for stage in study}, store):
        stages[OF_STUDY] = done

    def write(folder: Path) -> None:
        write_scores(measured, folder / SCORES)
        write_examples(examples, folder)

    place = f"{report.profile.name}/{report.table.id}"
    return TABLE.publish(report, place, results_dir, write, stages=stages, allow_fewer=allow_fewer)


def stages_behind(
    table_runs: TableRuns, store: Store, benchmarks: Collection[str | None] | None = None
) -> dict[str, dict[str, str]]:
    """Return the fingerprints of judges and trainings that are done, by run and what they do.

    Of the judges only those of some benchmarks, where these are named.
    """
    found = {}
    for run in table_runs.runs.values():
        wanted = run.judged if benchmarks is None else benchmarks
        stages = {f"judge {name}": stage for name, stage in run.judged.items() if name in wanted}
        stages |= {f"train {i}": stage for i, stage in enumerate(run.training, start=1)}
        found[f"{run.run_id}/{run.profile}/seed{run.seed}"] = _done(stages, store)
    return found


def _done(stages: dict[str, Stage], store: Store) -> dict[str, str]:
    known = {name: stage.fingerprint for name, stage in stages.items()}
    return {name: stage for name, stage in known.items() if store.status(stage) == "done"}


def published_report(table: Table, folder: Path, known: KnownControls) -> Report:
    """Return a published report beside its declarations; verdicts follow from its scores.

    Raises:
        HarnessError: A file is missing or changed, or the report does not fit the declarations.
    """
    report, measured = read_published(folder)
    shown = {row.id for row in report.rows}

    def verdicts() -> list[ClaimVerdict]:
        controls = known.beside(judged_runs(report.cells))
        return judge(Evidence.of(found, _scores(report, measured), controls))

    found = report.beside(
        table,
        known.profile,
        absent={row.id: NOT_PUBLISHED for row in table.rows if row.id not in shown},
        judge=verdicts,
        scores=lambda: measured,
    )
    return found


def recomputed(report: Report, folder: Path) -> Report:
    """Return a published report with all numbers computed again from its per-prompt scores."""
    scores = _scores(report, read_score_file(folder / SCORES))
    cells = []
    for cell in report.cells:
        found = scores.numbers(cell.row, cell.column)
        # Whether a cell is whole follows from the scores; why another is not does not.
        whole = found != Numbers()
        state = "ok" if whole else cell.state if cell.state != "ok" else "not_run"
        cells.append(cell.model_copy(update={**vars(found), "state": state}))
    study = report.study
    again = {
        "cells": tuple(cells),
        "summary": tuple(summarise(cells, scores)),
        "leagues": tuple(found_again(report, scores)),
        "study": None if study is None else reward_study.recomputed(study, scores.measured),
    }
    return report.model_copy(update=again)


def _scores(report: Report, measured: Measured) -> TableScores:
    return TableScores(report.rows, report.columns, report.seeds, measured)


def table_extent(report: Report) -> IndexEntry:
    states = [(f"{cell.row}/{cell.column}", cell.state) for cell in report.cells]
    models = () if report.study is None else report.study.models
    states += [(f"{model.row} in the study", model.state) for model in models]
    return IndexEntry(
        rows=tuple(row.id for row in report.rows),
        seeds=report.seeds,
        counts={"numbers": sum(cell.mean is not None for cell in report.cells)},
        lacking=without_numbers(states),
    )


TABLE = Publication(
    "table",
    Report,
    table_extent,
    page=as_markdown,
    pictures=pictures,
    values=lambda report: SCORES,
    recomputed=recomputed,
)
"""A table with the per-prompt scores its cells follow from."""
