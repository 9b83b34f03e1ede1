"""Several tables at once: what they share is computed once, and what cannot run is named first."""

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
from toy_world import planned

from harness.registry import declared
from harness.registry.declared import all_profiles, all_tables, members, trains_online
from harness.runtime import Plan

pytestmark = pytest.mark.usefixtures("declared_anew")

FEW = ("table4", "table5", "components")
"""Tables that need no online training, for a group that is quick to run."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups have three tables that `micro` can run, and one that it cannot."""

    def some(group: str, tables: Any) -> list[Any]:
        names = (*FEW, "table9") if group == "all" else FEW
        return [tables[name] for name in names]

    monkeypatch.setattr("harness.registry.declared.members", some)


def test_the_offline_tables_are_those_without_online_training() -> None:
    """Tables 1 and 8 and the selectors train online, and so do some rows of the controls."""
    tables = all_tables()
    offline = [table.id for table in members("all-offline", tables)]
    assert set(tables) - set(offline) == {"table1", "table8", "controls", "selectors"}
    assert [table.id for table in members("all", tables)] == list(tables)
    assert "components" in offline
    assert trains_online(tables["table1"])


def trainings(plan: dict[str, Any]) -> int:
    (number,) = (kind["total"] for kind in plan["kinds"] if kind["kind"] == "train")
    return int(number)


@pytest.mark.usefixtures("few")
def test_each_distinct_stage_is_planned_once(says: Any, folders: Path) -> None:
    plan = says("plan", "all-offline", "--seeds", "0,1")
    plans = [list(Plan(planned(name, "micro", (0, 1)).targets)) for name in FEW]
    distinct = {stage.fingerprint: stage.kind for stage in itertools.chain(*plans)}
    assert plan["stages"]["total"] == len(distinct)
    assert trainings(plan) == list(distinct.values()).count("train")
    assert [table["total"] for table in plan["tables"]] == list(map(len, plans))
    assert not folders.exists()


@pytest.mark.usefixtures("few")
def test_a_run_computes_everything_once_and_closes_with_a_line_for_each_table(
    says: Any, call: Any, tracker: Any
) -> None:
    """Of 9 + 5 + 12 = 26 policies of the tables, 9 + 3 + 8 = 20 are distinct.

    Table 5 shares dpo-1 and eva with table 4; the components share dpo-1, eva, uniform eva and
    select-sample with the two, and their own are the shuffled eva, the same prompts twice, new
    prompts, the random quarter, the matched steps, and uniform eva twice more.
    """
    result = call("run", "all-offline", "--seeds", "0,1", "--jobs", "1")
    assert tracker.calls.count("finished train") == 20 * 2
    assert (tracker.calls[0], tracker.calls[-1]) == ("follow", "finish")
    closing = result.stdout.rsplit("title", 1)[1]
    for name, cells in (("table4", 45), ("table5", 30), ("components", 60)):
        line = next(line for line in closing.splitlines() if line.startswith(name))
        assert f"{cells} of {cells}" in line
        assert "done" in line
    # Each table remembers its seeds, and is reported and synced as if it had been run alone.
    assert {cell["state"] for cell in says("report", "table5")} == {"ok"}
    assert {cell["seeds"] == [0, 1] for cell in says("report", "table5")} == {True}
    tracker.calls.clear()
    call("sync")
    assert sorted(tracker.calls) == sorted(f"sync {name} micro" for name in FEW)
    again = call("run", "all-offline", "--seeds", "0,1", "--jobs", "1")
    assert "All stages are done" in again.stdout
    plan = says("plan", "all-offline", "--seeds", "0,1")
    assert plan["stages"]["missing"] == 0


@pytest.mark.usefixtures("few")
def test_a_table_that_cannot_run_is_left_out_and_named(
    says: Any, call: Any, tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    micro = all_profiles()["micro"]
    known = micro.model_copy(update={"algorithms": ("dpo",)})
    everyone = {**all_profiles(), "micro": known}
    monkeypatch.setattr(declared, "all_profiles", functools.cache(lambda: everyone))
    result = call("run", "all", "--seeds", "0", "--jobs", "1")
    assert result.stdout.count("left out: table9: `micro` has no algorithm `sppo`") == 2
    plan = says("plan", "all", "--seeds", "0")
    assert list(plan["left_out"]) == ["table9"]
    cells = [c for c in says("report", "all") if c["table"] == "table9"]
    assert {c["state"] for c in cells} == {"not_run"}


@pytest.mark.usefixtures("few")
def test_a_failure_costs_the_rows_it_stops_and_makes_the_exit_code_1(
    call: Any, tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`repeat` stands in one row of one table."""
    monkeypatch.setenv("TOY_FAILS", "repeat")
    result = call("run", "all-offline", "--seeds", "0", "--jobs", "1", code=1)
    assert "1 stage failed" in result.stderr
    lines = result.stdout.rsplit("title", 1)[1].splitlines()
    found = next(line for line in lines if line.startswith("components"))
    assert "55 of 60" in found
    assert "5 failed" in found
    assert any(line.startswith("table4") and "45 of 45" in line for line in lines)


def test_a_profile_that_can_run_nothing_says_why(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = all_profiles()["paper"].model_copy(update={"algorithms": ()})
    only = functools.cache(lambda: {"paper": bare})
    monkeypatch.setattr("harness.registry.declared.all_profiles", only)
    result = call("plan", "all-offline", "--profile", "paper", code=2)
    assert "`all-offline` cannot run on the profile `paper`:" in result.stderr
    assert "  table4: `paper` has no algorithm `dpo`" in result.stderr


def test_only_tables_that_were_run_are_published(
    call: Any, tracker: Any, monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    """Table 12 has two rows of table 5, which have numbers when only table 5 was run."""
    monkeypatch.setattr(
        "harness.registry.declared.members",
        lambda group, tables: [tables["table5"], tables["table12"]],
    )
    call("run", "table5", "--seeds", "0", "--jobs", "1")
    result = call("report", "all-offline", "--publish", "--seeds", "7")
    assert "table5 was not run" in result.stderr
    assert not results.exists()
    call("report", "all-offline", "--publish")
    assert [path.name for path in (results / "micro").iterdir()] == ["table5"]
    # A table that is refused does not stop the others, and the command says so at its end.
    asked = ("report", "all-offline", "--publish", "--seeds", "0,7")
    assert "table5" in call(*asked, code=1).stderr.splitlines()[-1]
    call(*asked, "--allow-fewer")


def test_a_table_of_ours_has_no_claims_of_the_papers(call: Any) -> None:
    assert call("claims", "components").stdout == "The paper claims nothing there.\n"
