"""Publishing a table: its report with the per-prompt scores from which it is recomputed.

A table on prompts of our own also has prompts and answers, in `examples.json`.
"""

from __future__ import annotations

from pathlib import Path

from harness.pipeline.runs import TableRuns
from harness.registry.declared import all_profiles, all_tables
from harness.registry.profile import benchmark_of, lacking_rows, table_at
from harness.report import reward_study
from harness.report.build import as_declared, sensitivity, summarise
from harness.report.cells import measured_cell
from harness.report.controls import checked_runs, seeds_asked
from harness.report.league import league_pictures, leagues_of
from harness.report.model import Report
from harness.report.page.examples import FILE, Examples, examples_of, read_examples, write_examples
from harness.report.publication import (
    SCORES,
    ByStep,
    IndexEntry,
    Publication,
    read_digests,
    without_numbers,
)
from harness.report.render import as_markdown
from harness.report.results import Results
from harness.report.scores import RunScores, read_score_file, write_scores
from harness.runtime import Stage, Store

ANSWERS = "answers.parquet"


def publish(
    results: Results, results_dir: Path, *, allow_fewer: bool = False, joined: Path | None = None
) -> Path:
    """Write `results/<profile>/<table>/` and return its path.

    Digests and examples of the publication that it is `joined` with are kept.
    """
    report, measured = results.whole_report, results.measured
    stages: ByStep = {}
    outputs: ByStep = {}
    examples = Examples()
    if results.runs is not None:
        measured = measured | reward_study.read_study(*results.runs)
        stages, outputs = stages_behind(*results.runs), outputs_behind(*results.runs)
        # We may not redistribute prompts of real datasets and benchmarks.
        if results.profile.has_own_prompts and joined is None:
            examples = examples_of(*results.runs)
    if joined is not None:
        before = read_digests(joined)
        stages = _merged(stages, before.stages or {})
        outputs = _merged(outputs, before.outputs or {})
        examples = read_examples(joined / FILE) or examples

    def write(folder: Path) -> None:
        write_scores(measured, folder / SCORES)
        write_examples(examples, folder)
        for picture in league_pictures(results):
            (folder / picture.file).write_bytes(picture.svg())

    return TABLE.publish(
        report,
        as_markdown(results),
        f"{report.profile}/{report.table}",
        results_dir,
        write,
        stages=stages,
        outputs=outputs,
        allow_fewer=allow_fewer,
    )


def _merged(own: ByStep, before: ByStep) -> ByStep:
    return {run: {**own.get(run, {}), **before.get(run, {})} for run in {**own, **before}}


def stages_behind(table_runs: TableRuns, store: Store) -> ByStep:
    """Return fingerprints of finished stages that train, judge a column, or study, by run."""
    return {
        run: {
            name: stage.fingerprint
            for name, stage in stages.items()
            if store.status(stage.fingerprint) == "done"
        }
        for run, stages in steps_of(table_runs).items()
    }


def steps_of(table_runs: TableRuns) -> dict[str, dict[str, Stage]]:
    """Return the stages that train, judge a column, or study, by run."""
    read = {benchmark_of(table_runs.profile, c.reads) for c in table_runs.table.columns}
    steps = {}
    for run in table_runs.runs.values():
        stages = {f"judge {name}": stage for name, stage in run.judged.items() if name in read}
        stages |= {f"train {i}": stage for i, stage in enumerate(run.training, start=1)}
        steps[run.name] = stages
    if table_runs.study is not None:
        steps["study"] = {stage.label: stage for stage in table_runs.study.targets}
    return steps


def outputs_behind(table_runs: TableRuns, store: Store) -> ByStep:
    """Return the sha256 of each run's weights and answers, by step."""
    found: ByStep = {}
    for run in table_runs.runs.values():
        stages = {f"train {i}": stage for i, stage in enumerate(run.training, start=1)}
        judged = run.judged.items()
        stages |= {
            f"answer {n}": it.inputs["answers"] for n, it in judged if "answers" in it.inputs
        }
        found[run.name] = {
            name if file.endswith(ANSWERS) else f"{name} {file}": entry["sha256"]
            for name, stage in stages.items()
            if store.status(stage.fingerprint) == "done"
            for file, entry in store.manifest(stage.fingerprint)["files"].items()
            if file.endswith((ANSWERS, ".safetensors"))
        }
    return found


def recomputed(report: Report, folder: Path) -> Report:
    """Return a published report with all numbers recomputed from its per-prompt scores."""
    measured = read_score_file(folder / SCORES)
    scores = RunScores(measured, report.seeds, report.rows, report.columns)
    cells = [measured_cell(cell, scores) for cell in report.cells]
    study, table = report.study, all_tables().get(report.table)
    rows = [row.id for row in report.rows]
    again = {
        "seeds": tuple(sorted({seed for cell in cells for seed in cell.seeds})),
        "cells": tuple(cells),
        "summary": tuple(summarise(cells, scores)),
        "leagues": leagues_of(table, rows, scores) if table and report.leagues else report.leagues,
        "study": None if study is None else reward_study.recomputed(study, measured),
    }
    profile = all_profiles().get(report.profile)
    if table is not None and profile is not None and {*rows} <= {row.id for row in table.rows}:
        table = table_at(table, profile)
        report = as_declared(report, table, profile)
        controls = None
        if table.controls:
            absent = lacking_rows(table, profile)
            controls = checked_runs(table, profile, seeds_asked(report.cells), measured, absent)
        found = sensitivity(table, cells, controls)
        if controls is None:  # what they said is not in this folder
            doses = {power.training: power.dose for power in report.power}
            power = (
                it.model_copy(update={"dose": doses.get(it.training)}) for it in found["power"]
            )
            found = {"power": tuple(power)}
        again |= found
    return report.model_copy(update=again)


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


TABLE = Publication("table", Report, table_extent, recomputed)
"""A table with the per-prompt scores behind its cells; `publish` writes its pictures."""
