"""Every form of a report shows the same numbers, from the same cells."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path

import pytest
from page_reader import numbers_of
from toy_page import contents_of
from toy_tables import DECLARATION, toy_runs, write_all, write_prompts

from harness.report.cells import Cell, build_cells
from harness.report.csv import HEAD, as_csv
from harness.report.json import as_json
from harness.report.latex import as_latex, escape
from harness.report.markdown import as_markdown
from harness.report.page.page import as_html
from harness.report.publish import publish
from harness.report.published import read_published
from harness.report.report import Report, assemble
from harness.report.restored import restored
from harness.report.terminal import as_text
from harness.report.view import column_blocks, facts, summary_block
from harness.report.view_details import detail_blocks
from harness.store import Store
from harness.tracking.rows import table_records
from harness.trainer.table_runs import TableRuns


@pytest.fixture
def runs(store: Store) -> TableRuns:
    planned = toy_runs()
    write_all(store, planned)
    write_prompts(store, planned)
    return planned


@pytest.fixture
def report(runs: TableRuns, store: Store) -> Report:
    return assemble(runs, build_cells(runs, store), store)


def figures(report: Report) -> dict[tuple[str, str], list[str]]:
    """Return the texts of each cell, by column and row."""
    return {
        (column.id, row.id): list(texts[1:])
        for column, block in zip(report.table.columns, column_blocks(report), strict=True)
        for row, texts in zip(report.rows, block.rows, strict=True)
    }


def test_terminal_markdown_page_and_latex_show_the_same_texts(
    report: Report, runs: TableRuns, store: Store
) -> None:
    """Each as it is read back from its own form: columns of blanks, pipes, elements, ampersands."""
    expected = list(figures(report).values())
    assert expected[3][1] == "+4.5 ±0.0"
    lines = [re.split(r" {2,}", line.strip()) for line in as_text(report, width=120).splitlines()]
    assert [line[1:] for line in lines if len(line) == 5 and "row" not in line[0]][:12] == expected
    pipes = [line.strip("|").split("|") for line in as_markdown(report).splitlines()]
    assert [[part.strip() for part in line[1:]] for line in pipes if len(line) == 5][2:] != []
    table_rows = [[part.strip() for part in line[1:]] for line in pipes if len(line) == 5]
    shown = [row for row in table_rows if not row[0].startswith(("ours", "--"))]
    assert shown[: len(expected)] == expected
    assert list(numbers_of(as_html(contents_of(runs, store))).values()) == expected
    latex = as_latex([report]).replace("{-}", "-").replace(r"$\pm$", "±").replace("--", "–")
    body = [line.removesuffix(r" \\").split(" & ") for line in latex.splitlines() if " & " in line]
    rows = [line[1:] for line in body if len(line) == 5 and not line[1].startswith("ours")]
    assert rows[: len(expected)] == expected


def test_csv_and_json_hold_every_cell_with_all_digits(report: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv([report]))))
    cells = json.loads(as_json(report.cells))
    assert len(lines) == len(cells) == 12
    assert tuple(lines[0]) == HEAD
    for line, cell in zip(lines, cells, strict=True):
        assert (line["row"], line["column"], line["state"]) == (
            cell["row"], cell["column"], cell["state"],
        )  # fmt: skip
        for name in ("mean", "ci_low", "ci_high", "gain", "gain_ci_low", "gain_ci_high"):
            assert line[name] == ("NA" if cell[name] is None else repr(cell[name]))
        assert line["paper"] == (cell["paper_printed"] or "NA")
        assert line["runs"].split() == (cell["runs"] or ["NA"])
        assert line["seeds"] == "0 1"
        assert all(line.values())


def test_mlflow_gets_the_numbers_of_the_cells(
    report: Report, runs: TableRuns, store: Store
) -> None:
    records = table_records(runs, report.cells, store, {})
    by_row = {record.name: record.read_scores() for record in records}
    for cell in report.cells:
        metrics = by_row[cell.row]
        for suffix, value in (
            ("", cell.mean),
            (".ci_low", cell.ci_low),
            (".gain", cell.gain),
            (".gain_ci_high", cell.gain_ci_high),
            (".paper", cell.paper if cell.mean is not None else None),
        ):
            assert metrics.get(f"{cell.column}{suffix}") == value


def test_what_is_published_is_the_same_report_again(
    report: Report, runs: TableRuns, store: Store, tmp_path: Path
) -> None:
    folder = publish(runs, list(report.cells), store, tmp_path / "results")
    again = restored(read_published(folder), runs.table, runs.profile)
    assert figures(again) == figures(report)
    assert facts(again) == facts(report)
    assert summary_block(again) == summary_block(report)
    assert detail_blocks(again) == detail_blocks(report)
    assert again.assumptions == report.assumptions
    assert again.cells == tuple(Cell.from_json(cell.as_json()) for cell in report.cells)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b & 100% #1", r"a\_b \& 100\% \#1"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("$x$ ~ ^", r"\char36{}x\char36{} \textasciitilde{} \textasciicircum{}"),
        ("-1.6 ±0.2", r"{-}1.6 $\pm$0.2"),
        ("θ → 1\u0304", r"$\theta$ $\rightarrow$ $\bar{1}$"),
        ("café ß 🎉", "café [U+00DF] [U+1F389]"),
        ("a\nb\x1b", "a b[U+FFFD]"),
    ],
)
def test_latex_escapes(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_the_latex_document_compiles(report: Report, tmp_path: Path) -> None:
    """With a label that would break a document which did not escape it."""
    compiler = shutil.which("pdflatex")
    if compiler is None:
        pytest.skip("pdflatex is not installed")
    table = deepcopy(DECLARATION)
    table["rows"][1]["label"] = (
        "\\end{document} % $x$ #1 & {y} _z ~ ^ < > | \" ` ' θ_{0→1}: é 🎉 1\u0304"
    )
    planned = toy_runs(table=table)
    store = Store(tmp_path / "store")
    hostile = assemble(planned, build_cells(planned, store), store)
    (tmp_path / "report.tex").write_text(as_latex([report, hostile]), encoding="utf-8")
    command = [compiler, "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "report.pdf").stat().st_size > 1000
