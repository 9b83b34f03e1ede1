"""Publishing a table: a report that stays, with the per-prompt scores it was computed from.

Read back, the cells are computed again from `scores.parquet` with the functions that computed them
first, so that a published table can be checked without a store, a model or the declarations. A
table of the embedded world has prompts and answers as well, in `examples.json`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.registry.profile import benchmark_of
from harness.registry.schema import Table
from harness.report import publication, scores
from harness.report.build import StoredTable, summarise
from harness.report.cells import judged_runs
from harness.report.controls import KnownControls, inadmissible_claims
from harness.report.league import found_again
from harness.report.model import Cell, Report, Summary, Verdict
from harness.report.page.examples import Examples, examples_of, write_examples
from harness.report.publication import PAGE, REPORT, SCORES, Extent, Kind
from harness.report.render import as_markdown, pictures
from harness.report.reward_study import read_study, recomputed
from harness.report.scores import Measured, Numbers, Priors, numbers
from harness.report.verdicts import Evidence, judge
from harness.runtime import Stage, Store
from harness.statistics import Scores

if TYPE_CHECKING:
    from harness.pipeline.runs import TableRuns


OF_STUDY = "study"
"""Where the digests name the stages of a table's study, beside those of its runs."""


def publish(stored: StoredTable, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/<table>/` and return it, as `Kind.publish` does."""
    table_runs, store = stored.runs, stored.store
    report = stored.report_with_costs
    measured = stored.measured | read_study(table_runs, store)
    # Prompts of real data sets and benchmarks are not ours to publish.
    own = report.profile.in_embedded_world
    examples = examples_of(table_runs, store) if own else Examples()
    read = {benchmark_of(table_runs.profile, c.reads) for c in table_runs.table.columns}
    stages = stages_behind(table_runs, store, read)
    study = [] if table_runs.study is None else table_runs.study.targets
    if done := _done({stage.label: stage for stage in study}, store):
        stages[OF_STUDY] = done
    return TABLE.publish(
        report,
        f"{report.profile.name}/{report.table.id}",
        results_dir,
        values=lambda path: scores.write_scores(measured, path),
        stages=stages,
        beside=lambda folder: write_examples(examples, folder),
        allow_fewer=allow_fewer,
    )


def judge_published(table: Table, published: Published, known: KnownControls) -> list[Verdict]:
    report = published.report
    certain = {c.id: c.by_construction for c in report.columns if c.by_construction}
    barred = inadmissible_claims(table, known.beside(judged_runs(report.cells)))
    return judge(Evidence(table, report.cells, published.measured, {}, certain, barred))


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


@dataclass(frozen=True)
class Published:
    """A published report: what it says, and the scores it rests on."""

    folder: Path
    report: Report
    measured: Measured

    def scores(self, cell: Cell) -> Scores | None:
        run = self.report.run_of(cell.row, cell.column)
        return scores.scores_of(self.measured, run, cell.seeds, self.report.score_of(cell.column))


def read_published(folder: Path) -> Published:
    """Read a published report, its digests verified.

    Raises:
        HarnessError: A file is missing, is not what was published, or was written in another form.
    """
    publication.check_files(folder, (PAGE, REPORT, SCORES), TABLE.name)
    return Published(folder, TABLE.read(folder), scores.read_score_file(folder / SCORES))


def difference(report: Report, folder: Path) -> str | None:
    published = Published(folder, report, scores.read_score_file(folder / SCORES))
    cells = recompute(published)
    for old, new in zip(report.cells, cells, strict=True):
        if name := publication.differing(old, new, (*Numbers.__dataclass_fields__, "state")):
            return f"{name} of `{old.row}` in `{old.column}`"
    for before, anew in zip(report.summary, summarise(cells, published.scores), strict=True):
        if name := publication.differing(before, anew, Summary.model_fields):
            return f"{name} in the summary of `{before.column}`"
    again = [league.as_json() for league in found_again(report, published.measured)]
    parts = list(_parts([league.as_json() for league in report.leagues], again, "leagues"))
    if report.study is not None:
        study = recomputed(report.study, published.measured)
        parts += _parts(report.study.as_json(), study.as_json())
    return next((what for old, new, what in parts if not publication.same(old, new)), None)


def _parts(before: Any, again: Any, where: str = "study") -> Iterator[tuple[Any, Any, str]]:
    """Yield the numbers and words of two JSON values side by side, with where they stand."""
    if isinstance(before, dict) and isinstance(again, dict) and before.keys() == again.keys():
        for key in before:
            yield from _parts(before[key], again[key], f"{key} in the {where}")
    elif isinstance(before, list) and isinstance(again, list) and len(before) == len(again):
        for one, other in zip(before, again, strict=True):
            yield from _parts(one, other, where)
    else:
        yield before, again, where


def recompute(published: Published) -> list[Cell]:
    report = published.report
    priors: dict[str, Priors] = {}
    for column in report.columns:
        runs = {row.id: row.runs[column.id] for row in report.rows}
        pairs = [(runs[r.id], runs[r.baseline]) for r in report.rows if r.baseline in runs]
        priors[column.id] = scores.gain_priors(
            published.measured, pairs, report.seeds, column.score
        )
    cells = []
    for cell in report.cells:
        run, base = report.run_of(cell.row, cell.column), cell.baseline_row
        baseline = None if base is None else report.run_of(base, cell.column)
        score, prior = report.score_of(cell.column), priors[cell.column]
        found = numbers(published.measured, run, baseline, cell.seeds, score, prior)
        # Whether a cell is whole follows from the scores; why another is not does not.
        whole = found != Numbers()
        state = "ok" if whole else cell.state if cell.state != "ok" else "not_run"
        cells.append(cell.model_copy(update={**vars(found), "state": state}))
    return cells


def table_extent(report: Report) -> Extent:
    states = [(f"{cell.row}/{cell.column}", cell.state) for cell in report.cells]
    models = () if report.study is None else report.study.models
    states += [(f"{model.row} in the study", model.state) for model in models]
    return Extent(
        rows=tuple(row.id for row in report.rows),
        seeds=report.seeds,
        counts={"numbers": sum(cell.mean is not None for cell in report.cells)},
        lacking=publication.without_numbers(states),
    )


def published_folders(results_dir: Path) -> list[Path]:
    """Return the folders of published tables, in order of profile and table.

    A table says that it has cells; figures and other pages have a `report.json` as well.

    Raises:
        HarnessError: One cannot be read.
    """
    paths = sorted(results_dir.glob(f"*/*/{REPORT}"))
    return [path.parent for path in paths if TABLE.mark in publication.read_json(path)]


TABLE = Kind(
    "table",
    "cells",
    Report,
    table_extent,
    page=as_markdown,
    pictures=pictures,
    values=lambda report: SCORES,
    difference=difference,
)
"""A table with the per-prompt scores its cells follow from."""
