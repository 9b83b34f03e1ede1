"""Figures in `list`, `show`, `validate`, `plan`, `run` and `report`; toy stages stand for real."""

from pathlib import Path
from typing import Any

import pytest

from harness.registry.declared import all_figures
from harness.registry.profile import load_profiles

NAMES = [f"figure{n}" for n in (3, 4, 5, 6, 7, 9, 10, 12)]
SMALL = ("figure10", "--seeds", "0,2", "--jobs", "1")


def test_list_names_the_figures(says: Any, call: Any) -> None:
    figures = says("list")["figures"]
    assert [item["id"] for item in figures] == NAMES
    by_id = {item["id"]: item for item in figures}
    assert (by_id["figure10"]["drawn"], by_id["figure10"]["rows"]) == ("correlation", 1)
    assert "micro" in by_id["figure10"]["runnable"]
    assert "Reward advantage against reward variance" in call("list").stdout


@pytest.mark.parametrize("name", ["figure3", "figure12"])
def test_show_says_what_a_figure_is_drawn_from(says: Any, call: Any, name: str) -> None:
    figure = all_figures()[name]
    assert says("show", name)["figure"] == figure.model_dump(mode="json")
    text = call("show", name).stdout
    assert figure.question in text.replace("\n", " ")
    assert all(ref in text for ref in figure.rows)


def test_the_plan_of_a_figure_is_that_of_its_runs(says: Any) -> None:
    plan = says("plan", "figure10", "--seeds", "0,2")
    table = says("plan", "table4", "--rows", "eva-a_min", "--seeds", "0,2")
    assert plan["table"] == "figure10"
    assert plan["rows"] == ["table4/eva-a_min"]
    assert plan["stages"] == table["stages"]


def test_running_a_figure_computes_its_runs_and_a_rerun_only_reports(
    says: Any, call: Any, tracker: Any
) -> None:
    found = says("run", *SMALL)
    assert found["seeds"] == [0, 2]
    assert {point["state"] for point in found["points"]} == {"ok"}
    # Two seeds of two rows: one first policy and one child each, and nothing of the figure's own.
    assert tracker.calls.count("finished train") == 4
    assert (tracker.calls[0], tracker.calls[-1]) == ("follow", "finish")
    tracker.calls.clear()
    assert "All stages are done" in call("run", *SMALL).stdout
    assert tracker.calls == ["finish"]
    # The seeds in the store are shown, and what was run is what is synced.
    assert says("report", "figure10")["points"] == found["points"]
    tracker.calls.clear()
    call("sync", "table4")
    assert tracker.calls == ["sync table4 micro"]
    # Another figure of the same runs has what it needs.
    assert says("report", "figure9", "--seeds", "0,2")["points"][0]["state"] == "ok"


@pytest.mark.parametrize("name", ["figure3", "figure10"])
def test_a_figure_never_run_says_so_everywhere(says: Any, call: Any, name: str) -> None:
    found = says("report", name)
    assert {point["state"] for point in found["points"]} <= {"not_run", "not_available"}
    assert all(point["value"] is None for point in found["points"])
    for form in ("terminal", "markdown"):
        text = call("report", name, "--format", form).stdout
        assert "not run" in text
        assert found["figure"]["title"].split(":")[0] in text


def test_a_published_figure_is_reported_and_drawn_again(
    says: Any, call: Any, tracker: Any, results: Path
) -> None:
    refused = call("report", "figure10", "--published", code=2)
    assert "`figure10` is not published for the profile `micro`" in refused.stderr
    call("run", *SMALL)
    found = says("report", "figure10", "--publish")
    assert says("report", "figure10", "--published") == found
    assert "Spearman's ρ" in call("report", "figure10", "--published").stdout
    folder = results / "micro" / "figure10"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    call("report", "figure10", "--published", "--publish")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_figure_of_which_no_row_can_run_is_reported_and_not_run(
    says: Any, call: Any, monkeypatch: pytest.MonkeyPatch, declared_anew: None
) -> None:
    bare = load_profiles()["micro"].model_copy(update={"algorithms": ("rloo",)})
    monkeypatch.setattr("harness.registry.declared.load_profiles", lambda: {"micro": bare})
    result = call("run", "figure10", code=2)
    assert "`figure10` cannot run on the profile `micro`:\n" in result.stderr
    assert "`micro` has no algorithm `dpo`" in result.stderr
    found = says("report", "figure10")
    assert {point["state"] for point in found["points"]} == {"not_available"}
