"""Published results in MLflow, for a clone in which nothing was run: `harness sync --published`.

    <table>/<profile>/published          rows, as of a table that was run here, scores by seed, and
                                         of two rows some answers with what the judge said
    tables/<profile>/published           each table, with the published files as its artifacts
    sweeps/<name>/<profile>/published    each trial

They stand apart from what was run here. Everything is read from the published files: there are
scores, but neither training curves nor data nor policies. All seeds of a row are one MLflow run,
its scores a curve over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.registry.declared import all_profiles
from harness.report.answer import finding
from harness.report.controls import KnownControls
from harness.report.page.examples import FILE as EXAMPLES
from harness.report.page.examples import Examples, Turn, read_examples
from harness.report.publication import REPORT, check_files
from harness.report.publish import Published, judge_published, published_folders, read_published
from harness.report.sweep import SWEEP, SweepReport
from harness.tracking.projection import StudyName, trial_record
from harness.tracking.record import Files, Record, join, metric_name, milliseconds, sha256
from harness.tracking.tables import Details, TableContent

if TYPE_CHECKING:
    from harness.report.model import ReportRow

SUFFIX = "/published"


def published_records(results_dir: Path) -> list[Record]:
    """Return the records of all published tables and sweeps.

    Raises:
        HarnessError: A published file is missing, was changed, or fits no declaration.
    """
    tables = [read_published(folder) for folder in published_folders(results_dir)]
    profiles = {published.report.profile.name: published.report.profile for published in tables}
    known = {name: KnownControls(it, None, results_dir) for name, it in profiles.items()}
    rows = {
        record.identity: record
        for published in tables
        for record in _table(published, known[published.report.profile.name])
    }
    return [*rows.values(), *_sweeps(results_dir)]


def _judgments(examples: Examples | None, row: str) -> Files | None:
    """Return the published examples of what a row answered, and what the judge said, as a table."""
    lines = [
        [turn.asked, turn.answer, _said(turn), it.reference or "", it.benchmark, it.item]
        for it in (examples.judged if examples else ())
        for turn in (it.after if it.row == row else it.before if it.baseline == row else ())
    ]
    if not lines:
        return None
    # MLflow's page groups by the first column and compares the second.
    heads = ("prompt", "answer", "verdict", "reference", "benchmark", "item")
    columns = dict(zip(heads, zip(*lines, strict=True), strict=True))
    return Files(sha256(lines), lambda: {"judgments.json": columns})


def _said(turn: Turn) -> str:
    return "; ".join(f"{name}: {text}" for name, text in turn.replies)


def _behind(found: Published, row: ReportRow, examples: Examples | None) -> Record:
    """Return what a published table says of the runs behind one of its rows."""
    report, origin = found.report, found.report.origin
    if origin.finished is None:
        raise HarnessError("a published table names no finished stage; publish it again")
    end = milliseconds(origin.finished)
    seeds: dict[str, dict[int, float]] = {}
    for (run, seed, score), values in found.measured.items():
        if run in row.runs.values():
            mean = sum(values.values()) / len(values)
            seeds.setdefault(f"seeds/{metric_name(score)}", {})[seed] = mean
    costs: dict[str, float] = {}
    for cost in report.costs or ():
        if cost.run in row.runs.values():
            named = {"wall_s": cost.seconds, "rollouts": cost.rollouts, "tokens": cost.tokens,
                     "gradient_steps": cost.gradient_steps,
                     "creator_calls": cost.creator_calls}  # fmt: skip
            costs = {f"cost/{name}": value for name, value in named.items() if value is not None}
    tags = {
        "policy": join(origin.policies),
        "reward_model": join(origin.reward_models),
        "creator": join(origin.creators),
        "judge": join(origin.judges.values()),
        "commit": join(origin.commits),
        "mlflow.source.git.commit": join(origin.commits[-1:]),
    }
    return Record(
        "", "", "", row.id, "FINISHED", end, end, {}, tags, costs=costs, by_step=seeds,
        files=_judgments(examples, row.id),
    )  # fmt: skip


def _table(found: Published, known: KnownControls) -> list[Record]:
    report = found.report
    table, profile = report.table, report.profile
    examples = read_examples(found.folder / EXAMPLES)

    @cache
    def details() -> Details:
        verdicts = judge_published(table, found, known)
        files = {path.name: path.read_bytes() for path in sorted(found.folder.iterdir())}
        return Details(finding(report, verdicts), verdicts, lambda: files)

    return TableContent(
        table=table,
        profile=profile,
        seeds=report.seeds,
        rows=[table.row(row.id) for row in report.rows],
        cells=report.cells,
        behind={row.id: [_behind(found, row, examples)] for row in report.rows},
        source=f"results/{profile.name}/{table.id}",
        suffix=SUFFIX,
        details=details,
    ).records()


def published_sweep(results_dir: Path, profile: str, name: str) -> SweepReport | None:
    """Return a published sweep; None where there is none.

    Raises:
        HarnessError: A published file is missing or was changed.
    """
    folder = results_dir / profile / "sweeps" / name
    if not (folder / REPORT).is_file():
        return None
    check_files(folder, (REPORT,), "sweep")
    return SWEEP.read(folder)


def _sweeps(results_dir: Path) -> Iterator[Record]:
    for path in sorted(results_dir.glob(f"*/sweeps/*/{REPORT}")):
        profile, name = path.parts[-4], path.parts[-2]
        report = published_sweep(results_dir, profile, name)
        if report is None or profile not in all_profiles():
            continue
        best = report.objectives[0].direction == "maximize"
        names = tuple(objective.name for objective in report.objectives)
        study = StudyName(name, profile, report.study, names, best_is_greatest=best)
        source = f"results/{profile}/sweeps/{name}"
        for trial in report.trials:
            yield trial_record(study, trial, source, suffix=SUFFIX)
