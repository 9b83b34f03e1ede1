"""Publishing a table: its report with the per-prompt scores it was computed from.

To check a published table, its cells are recomputed from `scores.parquet` with the same functions,
without a store, a model, or the declarations. A table of the embedded world also has prompts and
answers, in `examples.json`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.registry.claims import Claim
from harness.registry.profile import benchmark_of
from harness.registry.schema import Table
from harness.report import reward_study
from harness.report.build import StoredTable, summarise
from harness.report.cells import judged_runs
from harness.report.controls import KnownControls
from harness.report.league import found_again
from harness.report.model import Report, Verdict
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
from harness.report.verdicts import Evidence, judge_all
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns


OF_STUDY = "study"
"""Key of the study's stages in the digests."""

NOT_PUBLISHED = "not published at this profile"


def publish(stored: StoredTable, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/<table>/` and return its path; see `Publication.publish`."""
    table_runs, store = stored.runs, stored.store
    report = stored.report_with_costs
    measured = stored.measured | reward_study.read_study(table_runs, store)
    # We may not redistribute prompts of real datasets and benchmarks.
    own = report.profile.has_own_prompts
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
    """Return fingerprints of finished judging and training stages, by run and step.

    `benchmarks` limits the judging stages.
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
    """Return a published report with its declarations, and verdicts judged from its scores.

    Raises:
        HarnessError: A file is missing or changed, or the report does not match the declarations.
    """
    report, measured = read_published(folder)
    shown = {row.id for row in report.rows}

    def judge(claims: Sequence[Claim], place: str) -> Sequence[Verdict]:
        controls = known.beside(judged_runs(report.cells))
        evidence = Evidence.of(found, _scores(report, measured), controls, claims)
        return judge_all(evidence, claims, place)

    found = report.beside(
        table,
        known.profile,
        absent={row.id: NOT_PUBLISHED for row in table.rows if row.id not in shown},
        judge=judge,
        scores=lambda: measured,
    )
    return found


def recomputed(report: Report, folder: Path) -> Report:
    """Return a published report with all numbers recomputed from its per-prompt scores."""
    scores = _scores(report, read_score_file(folder / SCORES))
    cells = []
    for cell in report.cells:
        found = scores.numbers(cell.row, cell.column)
        # The scores tell whether a cell is complete, but not why one is incomplete.
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
"""A table with the per-prompt scores behind its cells."""
