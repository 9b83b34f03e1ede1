"""`report` in its formats, as a command."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.project import results_dir
from harness.registry.declared import all_tables
from harness.report.publication import read_published

TABLE = r'<section class="table" id="([^"]+)" aria-labelledby="\1-title">\n<h3'
"""The beginning of a table's section on a page."""


def test_the_page_of_all_tables_is_written_where_runs_write(call: Any, folders: Path) -> None:
    result = call("report", "--all", "--format", "html")
    assert result.stdout == ""
    file = folders / "report-all-micro.html"
    assert str(file) in result.stderr
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert re.findall(TABLE, page) == list(all_tables())
    assert page.count('<tr class="claim ') == 146
    assert "None: no run that evolves prompts is complete." in page
    assert list(folders.iterdir()) == [file]


def test_figures_of_columns_that_a_profile_lacks_are_left_out(call: Any, folders: Path) -> None:
    call("report", "--all", "--profile", "laptop", "--seeds", "0", "--format", "html")
    assert "if_soft" in (folders / "report-all-laptop.html").read_text(encoding="utf-8")


def test_each_page_has_a_name_of_its_own(call: Any, folders: Path) -> None:
    """The same page replaces itself, and none another one."""
    for asked in (("table12",), ("table12", "--published"), ("table12", "--seeds", "0,2")):
        call("report", *asked, "--format", "html")
    assert sorted(path.name for path in folders.iterdir()) == [
        "report-table12-micro-published.html",
        "report-table12-micro.html",
    ]


def test_what_is_published_is_printed_without_a_store(call: Any) -> None:
    """Table 4 as published, and all tables with the answer that stands in their findings."""
    published = read_published(results_dir() / "micro" / "table4")[0]
    found = json.loads(call("report", "table4", "--published", "--json").stdout)
    assert list(found) == ["schema_version", "answer", "facts", "items"]
    assert found["items"] == [cell.model_dump(mode="json") for cell in published.cells]
    assert {fact["table"] for fact in found["facts"]} == {"table4"}
    printed = " ".join(call("report", "--all", "--published").stdout.split())
    findings = (results_dir() / "README.md").read_text(encoding="utf-8")
    lines = [line for line in findings.splitlines() if line.startswith("- ")][:5]
    assert all(" ".join(line.replace("\\", "").split()) in printed for line in lines)


def test_all_tables_as_json_are_one_list_of_cells(call: Any) -> None:
    """The tables that can run, whose cells are all there without a number."""
    result = call("report", "--all", "--json", "--seeds", "0")
    cells = json.loads(result.stdout)["items"]
    left_out = [line for line in result.stderr.splitlines() if "is left out" in line]
    tables = {name: len(t.rows) * len(t.columns) for name, t in all_tables().items()}
    shown = {cell["table"] for cell in cells}
    assert len(shown) == len(tables) - len(left_out)
    assert len(cells) == sum(tables[name] for name in shown)
    assert {cell["state"] for cell in cells} == {"not_run"}
    assert {cell["mean"] for cell in cells} == {None}


@pytest.mark.parametrize(
    ("form", "words"),
    [("markdown", "# Table 4"), ("json", '"table": "table4"'), ("terminal", "Table 4")],
)
def test_a_report_goes_to_a_file(call: Any, tmp_path: Path, form: str, words: str) -> None:
    file = tmp_path / "report"
    result = call("report", "table4", "--seeds", "0", "--format", form, "--output", str(file))
    assert result.stdout == ""
    text = file.read_text(encoding="utf-8")
    assert words in text
    if form == "json":
        assert call("report", "table4", "--seeds", "0", "--json").stdout == text
