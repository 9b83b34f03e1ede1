"""Every form of a report shows the same numbers, from the same cells."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from page_reader import numbers_of
from toy_page import page_of
from toy_tables import DECLARATION, judge_of, stored, toy_runs, write_scores, write_whole

from harness.pipeline.runs import TableRuns, plan_table
from harness.project import results_dir
from harness.registry.declared import all_tables
from harness.registry.profile import load_profiles, table_at
from harness.registry.schema import Table
from harness.report.blocks import column_blocks, fact_blocks, summary_blocks
from harness.report.build import published_results, published_tables, results_of, without_runs
from harness.report.controls import KnownControls
from harness.report.model import Cell
from harness.report.page.page import run_block
from harness.report.publication import read_published
from harness.report.publish import publish
from harness.report.render import as_markdown, as_text
from harness.report.results import Results
from harness.report.view import facts
from harness.runtime import Store
from harness.selection.reporting import Reports
from harness.tracking.tables import TableState, state_records
from harness.worlds.embedded.files import VERSION


@pytest.fixture
def runs(store: Store) -> TableRuns:
    planned = toy_runs()
    write_whole(store, planned)
    return planned


@pytest.fixture
def report(runs: TableRuns, store: Store) -> Results:
    return stored(runs, store)


def figures(report: Results) -> dict[tuple[str, str], list[str]]:
    """Return the texts of each cell, by column and row."""
    return {
        (column.id, row.id): list(texts[1:])
        for column, block in zip(report.table.columns, column_blocks(report), strict=True)
        for row, texts in zip(report.report.rows, block.rows, strict=True)
    }


def make_holes(runs: TableRuns, store: Store) -> None:
    """Let one cell have failed, one lack a seed, and one have not run."""
    failed, lacking = (judge_of(runs, run, 0, "ah_wr") for run in ("base", "dpo-eva-uniform"))
    unrun = [judge_of(runs, "base", seed, "mt_avg") for seed in (0, 1)]
    for stage in (failed, lacking, *unrun):
        shutil.rmtree(store.path(stage.fingerprint))
    store.record_failure(failed, "the judge broke", "")


@pytest.mark.parametrize("holes", [False, True])
def test_terminal_markdown_and_page_show_the_same_texts(
    report: Results, runs: TableRuns, store: Store, holes: bool
) -> None:
    """Each as it is read back from its own form: columns of blanks, pipes, elements."""
    if holes:
        make_holes(runs, store)
        report = stored(runs, store)
    expected = list(figures(report).values())
    assert expected[3][1] == "+4.5 ±0.0"
    if holes:
        assert [expected[at][0] for at in (0, 2, 4)] == ["failed", "1/2 seeds", "not run"]
    lines = [re.split(r" {2,}", line.strip()) for line in as_text(report, width=120).splitlines()]
    assert [line[1:] for line in lines if len(line) == 5 and "row" not in line[0]][:12] == expected
    pipes = [line.strip("|").split("|") for line in as_markdown(report).splitlines()]
    table_rows = [[part.strip() for part in line[1:]] for line in pipes if len(line) == 5]
    shown = [row for row in table_rows if not row[0].startswith(("ours", "--"))]
    assert shown[: len(expected)] == expected
    assert list(numbers_of(page_of(runs, store)).values()) == expected


MADE_BY = {
    "base": ((), ()),
    "dpo-1": (("rm_pointwise",), ()),
    "eva-uniform": (("rm_pointwise",), ("evol_instruct",)),
    "eva-pairwise": (("rm_pairwise", "rm_pointwise"), ("evol_instruct",)),
    "eva-quality": (("rm_pointwise",), ("evol_quality",)),
}
"""Reward models and creators of each row."""


def differing(table: str, *names: str) -> dict[str, Any]:
    """Return a table of some rows, which share the run of `dpo-1` with other tables."""
    recipes: dict[str, Any] = {
        "base": {"algorithm": None},
        "dpo-1": {"chain": ["human"]},
        "eva-uniform": {"creator": {"metric": "uniform"}},
        "eva-pairwise": {"reward_model": "pairwise"},
        "eva-quality": {"creator": {"method": "evol_quality"}},
    }
    columns = DECLARATION["columns"][:2]
    rows = [
        {"id": name, "label": name, "run": f"run-{name}", "recipe": recipes[name],
         "baseline": None if name == "dpo-1" else "dpo-1"}
        for name in ("dpo-1", *names)
    ]  # fmt: skip
    source = DECLARATION["source"] | {"table": int(table.removeprefix("table"))}
    return DECLARATION | {"id": table, "source": source, "columns": columns, "rows": rows}


def made_by(models: Iterable[str]) -> tuple[str, ...]:
    """Return models without the world they are of and their digests."""
    return tuple(sorted(re.sub(r"^[^/]*/|@.*", "", name) for name in models))


def listed(text: str) -> tuple[str, ...]:
    return () if text in ("none", "–") else made_by(text.split(", "))


def test_of_a_table_that_is_not_published_nothing_is_made_up(tmp_path: Path) -> None:
    """What evolves its rows is not known; its seeds and models are not said to be none."""
    (found,) = published_tables([all_tables()["table4"]], load_profiles()["micro"], tmp_path)
    said = dict(facts(found))
    assert all(said.values())
    assert said["Judge"]
    assert not {"Seeds", "Policy", "Creator", "Reward model"} & said.keys()


def test_every_surface_names_exactly_what_made_each_cell(store: Store, tmp_path: Path) -> None:
    """Two tables share a run and its models, and no row has those of another row."""
    profile, results = load_profiles()["micro"], tmp_path / "results"
    declared = [
        differing("table90", "base", "eva-uniform", "eva-quality"),
        differing("table91", "eva-pairwise"),
    ]
    tables = [Table.model_validate(table) for table in declared]
    planned = [plan_table(table, profile, (0, 1)) for table in tables]
    for runs in planned:
        for run_id, seed in runs.runs:
            scores = {"p0": 50.0 + seed, "p1": 52.0}
            write_scores(store, runs, run_id, seed, ah_wr=scores, mt_avg=scores)
        publish(stored(runs, store), results)
    pages = {
        "store": [results_of(it, (0, 1), KnownControls(profile, store)) for it in tables],
        "results": published_tables(tables, profile, results),
    }
    for runs in planned:
        found = stored(runs, store)
        cells = found.report.cells
        found_in = state_records(TableState(runs, found), store)
        records = {record.name: record for record in found_in}
        folder = results / "micro" / runs.table.id
        published = read_published(folder)[0].cells
        for cell, said, kept in zip(cells, Reports((found,)).data, published, strict=True):
            expected = MADE_BY[cell.row]
            assert kept == Cell.model_validate(said)
            assert (made_by(said["reward_models"]), made_by(said["creators"])) == expected
            named = []
            for name in (cell.row, f"run-{cell.row}-seed0"):
                tags = records[name].tags
                named.append((tags["reward_model"], tags["creator"], tags["judge"]))
            for models, creators, judge in named:
                assert (listed(models), listed(creators)) == expected
                assert judge == said["judge"] == f"{VERSION}/oracle"
    for shown in pages.values():
        for run, _, _, models, creators, _ in run_block(shown).rows:
            expected = MADE_BY[run.removeprefix("run-")]
            assert (listed(models), listed(creators)) == expected


def test_what_is_published_is_the_same_report_again(
    report: Results, runs: TableRuns, store: Store, tmp_path: Path
) -> None:
    folder = publish(stored(runs, store), tmp_path / "results")
    again = published_results(runs.table, folder, KnownControls(runs.profile, None))
    assert figures(again) == figures(report)
    assert facts(again) == facts(report)
    assert summary_blocks(again)[0] == summary_blocks(report)[0]
    assert fact_blocks(again) == fact_blocks(report)
    assert again.report.assumptions == report.report.assumptions
    assert again.report.cells == tuple(
        Cell.model_validate(cell.as_json()) for cell in report.report.cells
    )


def test_a_profile_with_columns_of_its_own_has_the_signs_of_the_papers_gains_and_no_value() -> None:
    """Base lies 10.3 below the paper's baseline, uniform 5.9 and A_min 8.5 above it."""
    laptop = load_profiles()["laptop"]
    table = table_at(Table.model_validate(DECLARATION), laptop)
    assert {row.id: row.paper_sign for row in table.rows} == {
        "base": -1, "dpo-1": None, "eva-uniform": 1, "eva-a_min": 1
    }  # fmt: skip
    assert not table.paper_values
    table9 = table_at(all_tables()["table9"], laptop)
    assert table9.row("dpo-eva").paper_sign == 1, "of its main column, and not of its first"
    shown = published_results(
        table_at(all_tables()["table4"], laptop),
        results_dir() / "laptop" / "table4",
        KnownControls(laptop, None),
    )
    first, *others = column_blocks(shown)
    assert first.head == ("row", "ours\n± 95%", "gain\n± 95%", "paper's\nsign")
    assert [row[-1] for row in first.rows] == ["–", *8 * ["+"]]
    assert dict(facts(shown))["Columns"].endswith("since its benchmarks cannot run here")
    assert {block.head for block in others} == {("row", "ours\n± 95%", "gain\n± 95%")}
    for name, printed in (("table8", "n_new = 4"), ("selectors", "1/4")):
        table = table_at(all_tables()[name], laptop)
        column = table.columns[0]
        assert column.metric == laptop.columns[0].metric
        assert printed in column.printed
        empty = without_runs(table, KnownControls(laptop, None), "no", {})
        assert dict(facts(empty))["Columns"] == dict(facts(shown))["Columns"]
        assert "\nIntervals 95%" in as_text(empty, full=False)
    cells = Reports((shown,)).data
    signs = {cell["column"] for cell in cells if "paper_sign" in cell}
    assert signs == {"if_soft"}
