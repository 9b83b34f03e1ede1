"""The public Python API: small, light to import, and the same as the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import copy_published
from mlflow import MlflowClient

import harness
from harness.selection.reporting import Reports
from harness.tracking.connection import default_uri

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    return tmp_path


def test_the_public_names_are_listed_once_and_documented() -> None:
    assert len(harness.__all__) == len(set(harness.__all__)) == 17
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


def test_every_listed_name_can_be_loaded() -> None:
    assert {"table4", "figure10", "all"} <= set(harness.list_tables())
    for name in harness.list_tables():
        assert harness.load(name).id == name
    for profile in harness.list_profiles():
        assert repr(harness.load("table4", profile)) == f"<table4 on {profile}>"


def test_published_judgments_are_scored_and_kept_in_mlflow(folder: Path) -> None:
    """Ratings 4 and 8 of one prompt's two turns: 6 in the mean."""
    ratings = [
        {"question_id": 1, "model": "m", "judge": ["gpt-4", "j"], "turn": turn, "score": score}
        for turn, score in ((1, 4), (2, 8))
    ]
    file = folder / "ratings.jsonl"
    file.write_text("\n".join(map(json.dumps, ratings)), encoding="utf-8")
    (found,) = harness.evaluate("mt_bench", judgments=file)
    assert found.scores["average"] == 6.0
    client = MlflowClient(default_uri(folder / "work"))
    (experiment,) = client.search_experiments(filter_string="name LIKE 'evaluations/%'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["average"] == 6.0


def test_published_results_are_verified(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    copy_published("micro/table5", folder)
    monkeypatch.setattr("harness.project.results_dir", lambda: folder)
    assert harness.verify().tables == ("micro/table5",)
    (folder / "micro" / "table5" / "report.md").write_text("forged", encoding="utf-8")
    with pytest.raises(harness.HarnessError, match=r"report\.md is not what was published"):
        harness.verify()


def test_a_table_is_planned_and_shows_itself() -> None:
    """Table 4: nine rows, and 9 runs a seed."""
    table = harness.load("table4", seeds=range(2))
    assert isinstance(table, harness.Experiment)
    plan = table.plan(jobs=3)
    assert (plan.summary.runs, plan.summary.jobs) == (18, 3)
    assert plan.summary.stages.missing == len(plan.stages) > 0
    assert repr(plan.summary) == plan.summary.headline
    assert repr(table) == "<table4 on micro, seeds 0-1>"
    assert table.plan(seeds="0").summary.seeds == [0]
    with pytest.raises(harness.UserError, match="jobs is 0"):
        table.run(jobs=0)


def test_what_is_done_is_counted_anew_and_plans_keep_what_they_are_not_given(
    folder: Path,
) -> None:
    plan = harness.load("table4", rows=["dpo-1"]).plan(seeds=0, jobs=2, budget_usd=5)
    first, *others = plan.pending
    assert plan.summary.stages.done == 0
    with plan.store.writing(first):
        pass
    assert plan.summary.stages.done == 1
    assert plan.pending == (*others,)
    again = plan.plan(seeds=[1])
    assert (again.jobs, repr(again.budget_usd)) == (2, "5.0")
    assert repr(again.plan(budget_usd=np.float64(2.0)).budget_usd) == "2.0"


def test_some_rows_a_figure_and_a_group_are_planned_alike() -> None:
    rows: Any = harness.load("table4", rows=["eva-a_min"], seeds=0).plan()
    assert rows.summary.rows == ["dpo-1", "eva-a_min"]
    seed: Any = np.int64(0)
    figure: Any = harness.load("figure10", seeds=seed).plan()
    assert figure.summary.table == "figure10"
    group: Any = harness.load("all-offline", seeds=0).plan()
    assert group.summary.table == "all-offline"
    assert len(group.stages) < sum(t.total for t in group.summary.tables)


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


def test_a_report_is_written_in_every_format_by_its_name(folder: Path) -> None:
    report = harness.load("table4", rows="dpo-1").report(seeds=0)
    texts: Any = {form: report.text(form) for form in harness.Format if form != harness.Format.html}
    assert texts["json"] == report.text("json")
    assert len(set(texts.values())) == len(texts)
    for ending, beginning in (
        ("txt", "Table 4"),
        ("md", "# Table 4"),
        ("json", '{\n  "schema_version": 1,\n  "answer"'),
        ("html", "<!DOCTYPE html>"),
    ):
        file = report.save(folder / f"x.{ending}")
        assert file.read_text(encoding="utf-8").startswith(beginning)
    for call, words in (
        (lambda: report.text("nonsense"), "there is no format `nonsense`"),
        (lambda: report.text("markdwon"), "did you mean `markdown`"),
        (lambda: report.save("x.docx"), "has no ending of a report"),
        (lambda: harness.load("figure10").report(seeds=0).text("html"), "not as html"),
    ):
        with pytest.raises(harness.UserError, match=words):
            call()


def test_a_frame_says_what_its_cells_are() -> None:
    """The first cell of table 4 is DPO's win rate, in percent; `micro` has a stand-in to win on."""
    frame = harness.load("table4", rows="dpo-1").report(seeds=0).to_frame()
    first = frame.iloc[0]
    assert first["label"].endswith(": DPO")
    assert (first["benchmark"], first["unit"]) == ("stand-in A (hard lists)", "%")
    figure = harness.load("figure10").report(seeds=0)
    assert figure.pictures == []
    points = figure.to_frame()
    assert set(points["state"]) == {"not_run"}
    assert points["value"].isna().all()


def test_mistakes_are_errors_of_the_harness() -> None:
    one: Any = [1]
    for call, words in (
        (lambda: harness.load("./none.yaml"), "there is no file"),
        (lambda: harness.load("table4", rows=one).plan(), "no row `1`"),
        (lambda: harness.load("table4", seeds=[]), "no seed is given"),
        (lambda: harness.load("table4", seeds=[1, 1]), "names seed 1 twice"),
        (lambda: harness.evaluate("mt_bench"), "There is nothing to evaluate"),
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
