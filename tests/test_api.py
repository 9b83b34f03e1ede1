"""The public Python API: small, light to import, and the same as the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.selection.planning import RunPlan
from harness.selection.reporting import Reports

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    return tmp_path


def test_the_public_names_are_listed_once_and_documented() -> None:
    assert len(harness.__all__) == len(set(harness.__all__)) == 18
    for name in harness.__all__:
        assert getattr(harness, name).__doc__, name
    assert set(harness.__all__) <= set(dir(harness))
    assert (ROOT / "harness" / "py.typed").is_file()
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        _ = harness.nothing


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import sys, harness; print([n for n in sys.modules if n.startswith('harness.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_a_table_is_planned_and_shows_itself() -> None:
    """Table 4: nine rows, and 9 runs a seed."""
    table = harness.load("table4", seeds=range(2))
    assert isinstance(table, harness.Selection)
    plan = table.plan(jobs=3)
    assert isinstance(plan, RunPlan)
    assert (plan.summary.runs, plan.summary.jobs) == (18, 3)
    assert plan.summary.stages.missing == len(plan.stages) > 0
    assert repr(plan) == f"<plan: {plan.headline}>"
    assert repr(table) == "<table4 on micro, seeds 0-1>"
    assert table.plan(seeds="0").summary.seeds == [0]


def test_some_rows_a_figure_and_a_group_are_planned_alike() -> None:
    rows: Any = harness.load("table4", rows=["eva-a_min"], seeds=0).plan()
    assert rows.summary.rows == ["dpo-1", "eva-a_min"]
    figure: Any = harness.load("figure10", seeds=0).plan()
    assert figure.summary.table == "figure10"
    group: Any = harness.load("all-offline", seeds=0).plan()
    assert group.summary.table == "all-offline"
    assert len(group.stages) < sum(t.stages.total for t in group.summary.tables)


def test_a_report_of_nothing_has_no_numbers() -> None:
    """Nine rows by five columns; what was not run is missing, never zero."""
    report = harness.load("table4").report(seeds=[0])
    assert isinstance(report, Reports)
    frame = report.to_frame()
    assert len(frame) == 9 * 5
    assert set(frame["state"]) == {"not_run"}
    assert frame["mean"].isna().all()
    assert set(frame["paper"].notna()) == {True}
    assert "not run" in repr(report)
    html = report._repr_html_()
    assert "Arena-Hard" in html
    assert "not run" in html


def test_a_report_is_written_in_every_format_by_its_name(folder: Path) -> None:
    report = harness.load("table4", rows="dpo-1").report(seeds=0)
    texts: Any = {form: report.text(form) for form in harness.Format if form != harness.Format.html}
    assert texts["json"] == report.text("json")
    assert len(set(texts.values())) == len(texts)
    for ending, beginning in (
        ("txt", "Table 4"),
        ("md", "# Table 4"),
        ("json", "["),
        ("csv", "table,row,label"),
        ("tex", r"\documentclass"),
        ("html", "<!DOCTYPE html>"),
    ):
        file = report.save(folder / f"x.{ending}")
        assert file.read_text(encoding="utf-8").startswith(beginning)
    for call, words in (
        (lambda: report.text("nonsense"), "there is no format `nonsense`"),
        (lambda: report.text("markdwon"), "did you mean `markdown`"),
        (lambda: report.save("x.docx"), "has no ending of a report"),
        (lambda: harness.load("figure10").report(seeds=0).text("csv"), "not as csv"),
    ):
        with pytest.raises(harness.UserError, match=words):
            call()


def test_a_frame_says_what_its_cells_are() -> None:
    """The first cell of table 4 is DPO's win rate on Arena-Hard, in percent."""
    frame = harness.load("table4", rows="dpo-1").report(seeds=0).to_frame()
    first = frame.iloc[0]
    assert first["label"].endswith(": DPO")
    assert (first["benchmark"], first["unit"]) == ("Arena-Hard v0.1", "%")


def test_mistakes_are_errors_of_the_harness() -> None:
    for call, words in (
        (lambda: harness.load("tabel4"), "did you mean `table4`"),
        (lambda: harness.load("table4", "mikro"), "did you mean `micro`"),
        (lambda: harness.load("./none.yaml"), "there is no file"),
        (lambda: harness.load("table4", seeds=[]), "no seed is given"),
        (lambda: harness.load("table4", seeds=[1, 1]), "names seed 1 twice"),
        (lambda: harness.load("fig", rows=["a"]), "there is no figure"),
        (lambda: harness.load("table4", rows=["dpo"]).plan(), "dpo-1"),
        (lambda: harness.evaluate("arena"), "There is no benchmark"),
        (lambda: harness.evaluate("mt_bench", jugde="x"), "did you mean `judge`"),
    ):
        with pytest.raises(harness.UserError, match=words):
            call()


def test_a_profile_and_a_table_of_ones_own(folder: Path) -> None:
    """The same table with another profile's name is the same stages; a changed one is not."""
    shipped = (ROOT / "harness" / "profiles" / "micro.yaml").read_text(encoding="utf-8")
    mine = folder / "mine.yaml"
    mine.write_text(shipped.replace("name: micro\n", "name: mine\n", 1), encoding="utf-8")
    ours, theirs = (harness.load("table4", p, seeds=0).plan() for p in (str(mine), "micro"))
    assert [s.fingerprint for s in ours.stages] == [s.fingerprint for s in theirs.stages]
    assert ours.summary.profile == "mine"
    assert f"--profile {mine}" in ours.again
    changed = folder / "micro.yaml"
    changed.write_text(shipped.replace("\nx: {value: ", "\nx: {value: 1", 1), encoding="utf-8")
    with pytest.raises(harness.UserError, match="give yours a name of its own"):
        harness.load("table4", str(changed))
    copy = folder / "own.yaml"
    text = (ROOT / "ablations" / "table4.yaml").read_text(encoding="utf-8")
    copy.write_text(text.replace("id: table4\n", "id: own\n", 1), encoding="utf-8")
    with pytest.raises(harness.UserError, match="is already in"):
        harness.load(str(copy))
    assert harness.load(str(ROOT / "ablations" / "table4.yaml")).id == "table4"
