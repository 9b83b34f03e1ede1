"""Builds the results of a table, from a store or what is published, and its report.

A column's summary compares signs of gains and the order of rows with the paper's, of the whole
column or nothing. Baseline rows are left out of the order: they stand apart, for us as in the
paper, so that any order would look like the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from harness.errors import HarnessError
from harness.evaluation.calibration import Calibration
from harness.evaluation.calibration import states as calibration_states
from harness.pipeline.runs import TableRuns, plan_table, runnable
from harness.project import calibrations_dir
from harness.registry.claims import Claim
from harness.registry.documents import read_document, sources
from harness.registry.profile import Profile, benchmark_of, lacking_rows, roles_of
from harness.registry.recipe import Online
from harness.registry.schema import Row, Table, TrainingKind
from harness.registry.training import like
from harness.report.cells import cells_of, declared_cell, trace_of
from harness.report.controls import (
    Controls,
    KnownControls,
    checked_runs,
    inadmissible,
    inadmissible_claims,
    seeds_asked,
)
from harness.report.facts import facts_of
from harness.report.league import leagues_of
from harness.report.model import (
    Assumption,
    Cell,
    ColumnSummary,
    Origin,
    Power,
    Report,
    ReportColumn,
    ReportRow,
    RowFacts,
    Verdict,
)
from harness.report.origin import origin_of
from harness.report.publication import read_published
from harness.report.results import Results
from harness.report.reward_study import study_of
from harness.report.scores import RunScores, read_scores
from harness.report.verdicts import judge_all
from harness.report.view import grouped, plain, state_words
from harness.statistics import rank_agreement, sign_agreement
from harness.words import setting_text

NOT_PUBLISHED = "not published at this profile"


def stored_results(runs: TableRuns, known: KnownControls) -> Results:
    table, profile, store = runs.table, runs.profile, known.store
    assert store is not None
    measured = read_scores(runs, store)
    scores = RunScores.of_table(table, runs.rows, runs.seeds, measured)
    read = [benchmark_of(profile, column.reads) for column in table.columns]
    origin = origin_of(runs, store, dict.fromkeys(name for name in read if name))
    cells = cells_of(runs, store, scores)
    return results_on(runs, known, scores, cells, origin, lambda: facts_of(runs, store))


def results_on(
    runs: TableRuns,
    known: KnownControls,
    scores: RunScores,
    cells: Sequence[Cell],
    origin: Origin,
    read_facts: Callable[[], Sequence[RowFacts]],
) -> Results:
    """Assemble the results of runs from their scores, cells and provenance."""
    table, profile, store, measured = runs.table, runs.profile, known.store, scores.measured
    assert store is not None
    absent = lacking_rows(table, profile)
    # The table of controls is judged by its own scores, other tables by known controls.
    controls = (
        checked_runs(table, profile, seeds_asked(cells), measured, absent, known.accuracies)
        if table.controls
        else known.applying_to(cells)
    )
    report = Report(
        **_declared(table, profile, runs.seeds, runs.rows),
        cells=tuple(cells),
        summary=tuple(summarise(cells, scores)),
        study=study_of(runs, store, measured),
        leagues=leagues_of(table, runs.row_ids, scores),
        **sensitivity(table, cells, controls),
        failures=tuple(_failures(cells)),
        origin=origin,
        assumptions=tuple(assumptions_of(runs)),
    )
    return _results(
        table,
        known,
        report,
        measured=measured,
        read_facts=read_facts,
        runs=(runs, store),
        absent=absent,
        calibrations=_calibrations(profile, origin),
    )


def _calibrations(profile: Profile, origin: Origin) -> dict[str, Calibration | None]:
    found = calibration_states(profile, calibrations_dir())
    return {name: held for name, held in found.items() if name in origin.judges}


def _results(table: Table, known: KnownControls, report: Report, **more: Any) -> Results:
    """Return results whose claims are judged subject to the controls.

    Verdicts read this report, without the rows that `with_all_rows` adds later.
    """

    def judge(claims: Sequence[Claim], place: str) -> Sequence[Verdict]:
        controls = known.applying_to(report.cells)
        return judge_all(results, claims, place, inadmissible_claims(table, claims, controls))

    results = Results(table, known.profile, report, judge, **more)
    return results


def results_of(table: Table, seeds: Sequence[int], known: KnownControls) -> Results:
    """Return a table's results from a store, with all rows, even those that cannot run."""
    runs, lacking = runnable(table, known.profile, seeds)
    if runs is None:
        return without_runs(table, known, lacking[table.rows[0].id], lacking)
    return with_all_rows(stored_results(runs, known))


def published_tables(
    tables: Iterable[Table], profile: Profile, results_dir: Path
) -> tuple[Results, ...]:
    """Return the published results of tables, with all rows."""
    known, found = KnownControls(profile, None, results_dir), []
    for table in tables:
        folder = results_dir / profile.name / table.id
        if folder.is_dir():
            found.append(with_all_rows(published_results(table, folder, known)))
        else:
            absent = {row.id: NOT_PUBLISHED for row in table.rows}
            found.append(without_runs(table, known, f"`{table.id}` is {NOT_PUBLISHED}", absent))
    return tuple(found)


def published_results(
    table: Table, folder: Path, known: KnownControls, *, renewed: bool = False
) -> Results:
    """Return a published table with its current wording.

    Controls and the sources of settings are as published or, if `renewed`, the current ones.

    Raises `HarnessError` if the table's rows or columns have changed since.
    """
    report, measured = read_published(folder)
    shown, known_rows = {row.id for row in report.rows}, {row.id for row in table.rows}
    columns = [column.id for column in table.columns]
    if not shown <= known_rows or [column.id for column in report.columns] != columns:
        raise HarnessError(f"{folder} has other rows or columns; publish the table again")
    report = as_declared(report, table, known.profile)
    if renewed:
        report = _sourced(with_controls(report, table, known), table, known.profile)
    return _results(
        table,
        known,
        report,
        measured=measured,
        folder=folder,
        calibrations=_calibrations(known.profile, report.origin),
        absent={row.id: NOT_PUBLISHED for row in table.rows if row.id not in shown},
    )


def without_runs(
    table: Table, known: KnownControls, reason: str, absent: Mapping[str, str]
) -> Results:
    """Return results with only the paper's values, and the reason for that."""
    profile = known.profile
    read = dict.fromkeys(benchmark_of(profile, column.reads) for column in table.columns)
    judges = {name: profile.benchmarks[name].judge for name in read if name is not None}
    empty = Report(
        **_declared(table, profile, (), ()), cells=(), summary=(), origin=Origin(judges=judges)
    )
    return with_all_rows(_results(table, known, empty, lacking=reason, absent=absent))


def with_all_rows(results: Results) -> Results:
    """Add the table's omitted rows, which have no numbers."""
    table, profile, report = results.table, results.profile, results.report
    known = {(cell.row, cell.column): cell for cell in report.cells}
    said = {summary.column: summary for summary in report.summary}
    states = {
        column.id: "not_run" if benchmark_of(profile, column.reads) else "not_available"
        for column in table.columns
    }
    cells = [
        known.get((row.id, column.id))
        or declared_cell(table, profile, report.seeds, row, column, state=states[column.id])
        for row in table.rows
        for column in table.columns
    ]
    # If the paper prints a value for an omitted row, its column lacks a number, and only a count
    # remains of its summary.
    summary = tuple(
        said[it.column] if it.column in said and it.rows == said[it.column].rows else it
        for it in summarise(cells)
    )
    rows = tuple(ReportRow.of(row, table) for row in table.rows)
    update = {"rows": rows, "cells": tuple(cells), "summary": summary}
    return replace(results, report=report.model_copy(update=update))


def with_controls(report: Report, table: Table, known: KnownControls) -> Report:
    """Update a report by the controls that apply to its runs, if any."""
    controls = known.applying_to(report.cells)
    if controls is None:
        return report
    return report.model_copy(update=sensitivity(table, report.cells, controls))


def sensitivity(table: Table, cells: Sequence[Cell], controls: Controls | None) -> dict[str, Any]:
    """Return the report fields about what the table could detect: controls and power."""
    why = inadmissible(table, controls)
    of_choosing: list[str | None] = []
    if controls is not None and any(map(table.is_about_choosing, table.claims)):
        of_choosing = [controls.why_not_choosing(training) for training in table.about_prompts]
    rests = (*table.about_prompts, *(control.training for control in table.controls))
    checked = () if controls is None else controls.checked
    return {
        "inadmissible": "; ".join(dict.fromkeys(why.values())) or None,
        "inadmissible_choosing": "; ".join(dict.fromkeys(filter(None, of_choosing))) or None,
        "controls": tuple(control for control in checked if control.training in rests),
        "power": tuple(_power(table, cells, controls)),
    }


def _power(table: Table, cells: Iterable[Cell], controls: Controls | None) -> Iterator[Power]:
    """Yield the detectable gain in the main column for each kind of training."""
    main = table.main_column
    found: dict[TrainingKind, list[tuple[float, int]]] = {}
    for cell in cells:
        row = table.row(cell.row)
        trainings, least = table.training_of(row), cell.gain_detectable
        of_policy = row.kind == "policy" and len(trainings) == 1
        if of_policy and cell.column == main.id and least is not None:
            found.setdefault(trainings[0], []).append((least, len(cell.seeds)))
    for training, every in found.items():
        dose = None if controls is None else controls.tripled.get((training, main.reads))
        gains, seeds = zip(*every, strict=True)
        least = median(gains)
        yield Power(
            column=main.id, training=training, seeds=min(seeds), detectable=least, dose=dose
        )


def _declared(
    table: Table, profile: Profile, seeds: Sequence[int], rows: Iterable[Row]
) -> dict[str, Any]:
    return {
        "table": table.id,
        "profile": profile.name,
        "scale": profile.scale,
        "seeds": tuple(seeds),
        "columns": tuple(ReportColumn.of(column) for column in table.columns),
        "rows": tuple(ReportRow.of(row, table) for row in rows),
        "notes": tuple(plain(note) for note in table.notes),
    }


def as_declared(report: Report, table: Table, profile: Profile) -> Report:
    """Return a report with the current wording of its rows, columns and notes."""
    shown = {row.id for row in report.rows}
    rows = [row for row in table.rows if row.id in shown]
    return report.model_copy(update=_declared(table, profile, report.seeds, rows))


def _sourced(report: Report, table: Table, profile: Profile) -> Report:
    """Return a report with the current sources of its settings, if its runs are unchanged."""
    runs = plan_table(table, profile, report.seeds, [row.id for row in report.rows])
    now = {trace_of(run, name) for run in runs.runs.values() for name in run.judged}
    if not now.issuperset(trace for cell in report.cells for trace in cell.runs):
        return report
    return report.model_copy(update={"assumptions": tuple(assumptions_of(runs))})


def _failures(cells: Iterable[Cell]) -> list[str]:
    """Return each reason why cells failed or are not available, with its rows."""
    stopped = grouped(((it.state, it.reason), it.row) for it in cells if it.reason is not None)
    return [
        plain(f"{state_words(name, 0, 0)}: {', '.join(rows)}: {reason}")
        for (name, reason), rows in stopped.items()
    ]


def summarise(cells: Sequence[Cell], scores: RunScores | None = None) -> list[ColumnSummary]:
    """Summarize each column; without scores, row rankings are left out."""
    columns = dict.fromkeys(cell.column for cell in cells)
    return [_summary([it for it in cells if it.column == column], scores) for column in columns]


def _summary(cells: Sequence[Cell], scores: RunScores | None) -> ColumnSummary:
    first, printed = cells[0], [cell for cell in cells if cell.paper is not None]
    done = [cell for cell in printed if cell.mean is not None]
    said: dict[str, Any] = {"rows": len(printed), "done": len(done)}
    if printed and len(done) == len(printed) and len(first.seeds) > 1:
        gains = [
            (cell.gain, cell.paper_gain)
            for cell in printed
            if cell.gain is not None and cell.paper_gain is not None
        ]
        ours, papers = zip(*gains, strict=True) if gains else ((), ())
        said["signs_agree"], said["signs"] = sign_agreement(ours, papers)
        said |= {} if scores is None else _order(cells, scores)
    return ColumnSummary(column=first.column, scale=first.scale, **said)


def _order(cells: Sequence[Cell], scores: RunScores) -> dict[str, float]:
    """Return the rank agreement of a column's non-baseline rows with the paper's."""
    baselines = {cell.baseline_row for cell in cells}
    ranked = [
        (own, cell.paper)
        for cell in cells
        if cell.row not in baselines and cell.paper is not None
        if (own := scores.of(cell.row, cell.column)) is not None
    ]
    rank = rank_agreement([ours for ours, _ in ranked], [paper for _, paper in ranked])
    names = ("spearman", "spearman_low", "spearman_high")
    return {"ranked": len(ranked), **({} if rank is None else dict(zip(names, rank, strict=True)))}


_OFFERS = ("algorithms", "arms", "train_modes", "rewriter")
"""Settings that list what a profile can run; they do not affect results."""


def assumptions_of(table_runs: TableRuns) -> list[Assumption]:
    found = sources(read_document(table_runs.profile.file).data)
    irrelevant = _irrelevant(table_runs)
    return online_settings(table_runs) + [
        Assumption(name=name, value=setting_text(value), **_attributed(source))
        for name, value, source in found
        if source and not f"{name}.".startswith(irrelevant)
    ]


def online_settings(table_runs: TableRuns) -> list[Assumption]:
    """Return the settings of a table's online recipes, all values if rows differ in one."""
    recipes = [run.recipe for run in table_runs.runs.values()]
    blocks = [recipe.online for recipe in recipes if recipe.online is not None]
    kept = [block.canonical() for block in blocks]
    found = []
    for name, declared in Online.model_fields.items():
        if name == "league":  # mappings, which the rows say in words
            continue
        values = list(dict.fromkeys(setting_text(block[name]) for block in kept if name in block))
        text = " ".join((declared.description or "").split())
        _, ours, why = text.partition("Ours: ")
        paper = text.rpartition("Paper ")[2]
        group, source = ("ours", why) if ours else ("paper", paper)
        if values:
            said = {"value": ", ".join(values), "group": group, "source": source}
            found.append(Assumption(name=f"online.{name}", **said))
    return found


def _irrelevant(table_runs: TableRuns) -> tuple[str, ...]:
    profile, table = table_runs.profile, table_runs.table
    used = {like(str(run.recipe.algorithm)) for run in table_runs.runs.values()}
    roles = {role for run in table_runs.runs.values() for role in roles_of(run.recipe)}
    read = {benchmark_of(profile, column.reads) for column in table.columns}
    others = {*profile.reward_models, *profile.trained_reward_models} - roles
    return (
        *_OFFERS,
        *(f"{what}reward_models.{role}." for what in ("", "trained_") for role in others),
        *(f"training.{name}." for name in type(profile.training).model_fields if name not in used),
        *(f"benchmarks.{name}." for name in profile.benchmarks if name not in read),
        *(f"benchmarks.{name}.columns" for name in profile.benchmarks),
    )


def _attributed(source: str) -> dict[str, str]:
    if source.startswith("paper"):
        return {"group": "paper", "source": source.removeprefix("paper").strip() or "the paper"}
    if source.startswith("authors"):
        return {"group": "code", "source": source}
    return {"group": "ours", "source": source.removeprefix("ours:").strip()}
