"""`run` computes, tracks, reports, and says what failed; toy stages stand for real ones."""

import functools
import json
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from toy_world import planned

import harness
from harness.cli import run as live
from harness.cli.common import console
from harness.errors import UserError
from harness.registry import declared
from harness.runtime import Engine, EngineOptions, Plan, Store
from harness.runtime.plan import (
    StageElsewhere,
    StageFailed,
    StageFinished,
    StageProgress,
    StageStarted,
    Tally,
)

SMALL = ("run", "table4", "--rows", "eva-a_min", "--seeds", "0,2", "--jobs", "1")


def test_a_run_computes_tracks_and_reports_and_a_rerun_only_reports(
    says: Any, call: Any, tracker: Any, folders: Path
) -> None:
    cells = says(*SMALL)
    assert {cell["state"] for cell in cells} == {"ok"}
    assert [cell["row"] for cell in cells] == ["dpo-1"] * 5 + ["eva-a_min"] * 5
    assert all(cell["seeds"] == [0, 2] for cell in cells)
    # Two seeds of two rows: one first policy and one child each.
    assert tracker.calls.count("finished train") == 4
    assert tracker.calls[0] == "follow"
    assert tracker.calls[-1] == "finish"
    tracker.calls.clear()
    assert "All stages are done" in call(*SMALL).stdout
    assert tracker.calls == ["finish"]
    # A report speaks of the seeds there are, and rows never run have no numbers.
    reported = {(c["row"], c["column"]): c for c in says("report", "table4")}
    assert reported["eva-a_min", "ah_wr"]["mean"] == cells[5]["mean"]
    assert reported["eva-var", "ah_wr"]["state"] == "not_run"
    wider = {c["row"]: c for c in says("report", "table4", "--seeds", "0-2")}
    assert (wider["eva-a_min"]["state"], wider["eva-a_min"]["mean"]) == ("partial", None)
    assert says("plan", "table4", "--rows", "eva-a_min", "--seeds", "0,2")["stages"]["missing"] == 0
    # What was run is what is synced.
    tracker.calls.clear()
    call("sync", "table4")
    assert tracker.calls == ["sync table4 micro"]
    (synced,) = says("sync", "table4")
    assert synced["what"] == "table4/micro"


def test_python_runs_what_the_command_line_does(says: Any, tracker: Any) -> None:
    events: list[Any] = []
    table = harness.load("table4", rows="eva-a_min")
    report = table.run([0, 2], jobs=1, watch=nullcontext(events.append))
    assert sum(isinstance(it, StageFinished) and it.stage.kind == "train" for it in events) == 4
    cells = says(*SMALL)
    found = report.to_frame().to_dict("records")
    assert [(it["row"], it["column"], it["mean"]) for it in found] == [
        (cell["row"], cell["column"], cell["mean"]) for cell in cells
    ]
    assert tracker.calls.count("finished train") == 4


def test_controls_that_ran_here_count_in_the_reports_of_other_tables(
    call: Any, tracker: Any
) -> None:
    """In the toy world prompts change nothing, so the matched ones do not help."""
    assert ": failed" not in call("report", "table4").stdout
    asked = ("controls", "--rows", "dpo-1x,dpo-matched", "--seeds", "0-2", "--jobs", "1")
    call("run", *asked)
    said = " ".join(call("report", "table4").stdout.split())
    assert "no verdict on this table counts: offline controls failed: `positive-offline`" in said
    assert "controls 0 of 16 passed" in said


def test_a_run_of_a_few_rows_takes_nothing_away(says: Any, call: Any, tracker: Any) -> None:
    """Two rows have the seeds 0 and 2, one of them the seed 7 as well, which was asked for last."""
    call(*SMALL)
    before = says("report", "table4")
    verdicts = says("claims", "table4")
    call("run", "table4", "--rows", "dpo-1", "--seeds", "7")
    assert says("report", "table4") == before
    assert says("claims", "table4") == verdicts
    assert {cell["row"] for cell in before if cell["mean"] is not None} == {"dpo-1", "eva-a_min"}

    note = (
        "table4: shown are the most complete seeds, 0,2, with 2 of 9 runs done; left out, with how "
        "many are done: 7 (1); `--seeds` names others"
    )
    for command in (("report", "table4"), ("claims", "table4"), ("report", "--all")):
        assert note in " ".join(call(*command).stderr.split())
    assert "table4, seeds 0,2\n" in call("claims", "table4", "--full").stdout

    asked = says("report", "table4", "--seeds", "7")
    assert {cell["row"] for cell in asked if cell["mean"] is not None} == {"dpo-1"}
    result = call("report", "table4", "--rows", "dpo-1", "--format", "json")
    assert {tuple(cell["seeds"]) for cell in json.loads(result.stdout)["items"]} == {(0, 2, 7)}
    assert result.stderr == ""


def test_a_failed_stage_costs_its_row_and_not_the_report(
    says: Any, call: Any, tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FAILS", "evolve")
    asked = ("run", "table4", "--rows", "eva-a_min", "--seeds", "0", "--jobs", "1")
    result = call(*asked, "--json", code=1)
    states = {cell["row"]: cell["state"] for cell in json.loads(result.stdout)["items"]}
    assert states == {"dpo-1": "ok", "eva-a_min": "failed"}
    assert "1 stage failed" in result.stderr
    assert "the toy is broken: mend it" in result.stderr
    assert "skipped" in result.stderr
    assert "failed evolve" in tracker.calls
    monkeypatch.delenv("TOY_FAILS")
    assert {cell["state"] for cell in says(*asked)} == {"ok"}


@pytest.mark.parametrize(("asked", "told"), [(("--budget-usd", "2.5"), "2.5"), ((), "no budget")])
def test_the_budget_reaches_the_workers(
    call: Any, tracker: Any, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], told: str
) -> None:
    monkeypatch.delenv("HARNESS_BUDGET_USD", raising=False)
    monkeypatch.setenv("TOY_FAILS", "prompts")
    only = ("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1")
    assert f"mend it ({told})" in call(*only, *asked, code=1).stderr


@pytest.mark.usefixtures("tracker")
def test_an_engine_is_told_how_many_stages_to_compute_at_once_and_where(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Engine] = []

    def crew(engine: Engine) -> Any:
        asked.append(engine)
        raise UserError("nobody is there")

    monkeypatch.setattr(Engine, "crew", crew)
    for more in (("--jobs", "3"), ("--engine", "ray", "--ray-address", "there:1")):
        call("run", "table4", "--rows", "dpo-1", "--seeds", "0", *more, code=2)
    here, there = asked
    assert (here.jobs, here.where) == (3, EngineOptions())
    assert there.where == EngineOptions(engine="ray", ray_address="there:1")


@pytest.mark.usefixtures("tracker")
def test_an_engine_that_is_not_installed_is_one_sentence(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.runtime.ray_engine.find_spec", lambda name: None)
    said = call("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--engine", "ray", code=2)
    told = "the engine `ray` is not installed: type `python -m pip install -e '.[ray]'`"
    assert told in " ".join(said.stderr.split())


@pytest.fixture
def every_role(monkeypatch: pytest.MonkeyPatch, declared_anew: None) -> None:
    """Let `micro` offer the paper's four reward models as well as the graded ones."""
    known = dict(declared.all_profiles())
    files: Any = dict.fromkeys(("pointwise_large", "pairwise", "pairwise_large"), "world")
    models = {**known["micro"].reward_models, **files}
    known["micro"] = known["micro"].model_copy(update={"reward_models": models})
    monkeypatch.setattr(declared, "all_profiles", functools.cache(lambda: known))


@pytest.mark.usefixtures("every_role")
def test_the_reward_models_are_run_studied_published_and_verified(
    call: Any, tracker: Any, folders: Path, results: Path
) -> None:
    """Ten reward models, six of them trained; two seeds of 10 + 1 policies, 20 best of six."""
    asked = ("reward-models", "--seeds", "0,1")
    result = call("run", *asked, "--jobs", "1")
    manifests = (folders / "store").glob("stages/??/*/stage.json")
    counted = Counter(json.loads(path.read_text(encoding="utf-8"))["kind"] for path in manifests)
    assert (counted["reward_model"], counted["held_out"], counted["best_of_n"]) == (6, 10, 20)
    assert counted["train"] == 20
    assert "accuracy and gain: ρ =" in result.stdout
    assert "not run" not in result.stdout
    call("report", *asked, "--publish")
    call("verify")
    folder = results / "micro" / "reward-models"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.rmtree(folders / "store")
    call("report", "reward-models", "--published", "--publish")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    refused = call("report", "table4", "--published", "--publish", code=2)
    assert "`table4` is not published for the profile `micro`" in refused.stderr
    refused = call("report", "table4", "--seeds", "0", "--publish", "--add", code=2)
    assert "`table4` is not published for the profile `micro`" in refused.stderr


def test_sync_without_any_run_writes_nothing(call: Any, tracker: Any) -> None:
    assert "The store has no complete table" in call("sync").stdout
    assert "The store has no run of table5" in call("sync", "table5").stdout
    assert "is a figure; sync the tables" in call("sync", "figure10", code=2).stderr
    assert tracker.calls == []


@pytest.fixture
def plan() -> Plan:
    return Plan(planned("table4", "micro", (0,), ["dpo-1"]).targets)


def test_where_nothing_can_be_redrawn_a_line_comes_every_few_seconds(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events at 0, 1, 2, ... 11 s: lines at 5 s and 10 s, and the last one when all is over."""
    tally = Tally(plan, Store(tmp_path), 1, lambda stage: 1.0)
    now = [0]
    with live.progress(console(), tally, clock=lambda: float(now[0])) as observe:
        for stage in plan.stages[:6]:
            for event in (StageStarted(stage), StageFinished(stage, 1.0)):
                observe(event)
                now[0] += 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith(f"6 of {len(plan)} stages done, about ")


def test_a_time_left_that_nothing_tells_is_unknown(plan: Plan, tmp_path: Path) -> None:
    now = [0.0]
    tally = Tally(plan, Store(tmp_path), 1, lambda _: 1.0, lambda _: False, lambda: now[0])
    now[0] = 200.0
    assert live.headline(tally) == f"0 of {len(plan)} stages done, time left unknown after 3 min"
    some = Tally(plan, Store(tmp_path), 1, lambda _: 90.0, lambda it: it.kind == "judge")
    least = f"at least {sum(it.kind == 'judge' for it in plan) * 1.5:.0f} min left after 0 s"
    assert live.headline(some) == f"0 of {len(plan)} stages done, {least}"


def test_a_run_that_only_waits_for_another_or_fails_says_so_at_once(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with live.progress(console(), Tally(plan, Store(tmp_path), 1, lambda stage: 1.0)) as observe:
        observe(StageElsewhere(plan.stages[0]))
        assert f"0 of {len(plan)} stages done, 1 in another run" in capsys.readouterr().out
        observe(StageFinished(plan.stages[0], 1.0))
        observe(StageFailed(plan.stages[1], "no memory [left]"))
    said = capsys.readouterr().out
    assert "in another run" not in said
    assert "no memory [left]" in said


def test_the_redrawn_display_shows_what_is_running(plan: Plan, tmp_path: Path) -> None:
    from rich.console import Console

    out = Console(force_terminal=True, record=True, width=100, file=(tmp_path / "t").open("w"))
    tally = Tally(plan, Store(tmp_path), 1, lambda stage: 1.0)
    with live.progress(out, tally) as observe:
        observe(StageStarted(plan.stages[0]))
        observe(StageProgress(plan.stages[0], 12, {"loss": 0.5}, 25))
        out.print(live.rendered(tally))
    text = out.export_text()
    assert f"{plan.stages[0].label} · step 12 of 25, loss 0.500" in text
    assert f"0 of {len(plan)} stages done, 1 running" in text


def test_seeds_are_added_to_those_that_are_published(
    call: Any, tracker: Any, results: Path
) -> None:
    rows = ("table4", "--rows", "dpo-1", "--seeds")
    for seed, more in (("0", ()), ("1", ("--add",))):
        call("run", *rows, seed, "--jobs", "1")
        call("report", *rows, seed, "--publish", "--allow-fewer", *more)
    report = json.loads((results / "micro" / "table4" / "report.json").read_text("utf-8"))
    digests = json.loads((results / "micro" / "table4" / "digests.json").read_text("utf-8"))
    assert report["seeds"] == [0, 1]
    assert {"dpo-h1/micro/seed0", "dpo-h1/micro/seed1"} <= set(digests["stages"])
