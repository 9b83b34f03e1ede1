"""`why` names the setting that makes a stage new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_world import planned

from harness.runtime import Plan, Stage, Store, collect_provenance
from harness.selection.why import ABSENT, Cause, causes, nearest_stage


def _chain(beta: float = 0.1, seed: int = 0) -> Stage:
    prompts = Stage("prompts", 1, {"seed": seed}, {}, "prompts")
    train = Stage("train", 1, {"beta": beta, "seed": seed}, {"pairs": prompts}, "train")
    return Stage("judge", 1, {}, {"policy": train}, "judge")


def test_equal_stages_have_no_causes() -> None:
    assert causes(_chain(), _chain()) == ()


def test_a_difference_is_charged_to_the_stage_that_has_the_setting() -> None:
    """The judges differ because the policies were trained with another beta."""
    assert causes(_chain(beta=0.2), _chain()) == (Cause("beta", 0.2, 0.1, ("train",)),)


def test_a_version_and_a_missing_setting_are_causes() -> None:
    here = Stage("judge", 2, {"judge": "oracle"}, {})
    there = Stage("judge", 1, {}, {})
    assert causes(here, there) == (
        Cause("version", 2, 1, ("judge",)),
        Cause("judge", "oracle", ABSENT, ("judge",)),
    )


def test_an_input_against_a_setting_of_that_name_is_one_cause() -> None:
    """A trained policy is an input, the base policy a setting."""
    trained = Stage("answer", 1, {}, {"policy": Stage("train", 1, {}, {}, "train 1")})
    base = Stage("answer", 1, {"policy": "theta0"}, {})
    assert causes(trained, base) == (Cause("policy", "output of train 1", "theta0", ("answer",)),)


def test_the_nearest_stage_has_the_fewest_causes() -> None:
    far, near = _chain(beta=0.3, seed=5), _chain(seed=5)
    assert nearest_stage(_chain(), [far, near]) is near


def test_rows_that_differ_in_the_metric_part_at_the_selection(says: Any) -> None:
    why = says("why", "why", "table4/eva-a_min")
    (run,) = why["runs"]
    assert {stage["label"].split(" · ")[1] for stage in run["stages"]} == {run["run"]}
    first_new = next(stage for stage in run["stages"] if not stage["shared_with"])
    assert first_new["kind"] == "select"
    for stage in run["stages"]:
        if stage["shared_with"]:
            assert stage["new_among_rows"] is None
        else:
            causes = stage["new_among_rows"]["causes"]
            assert [(c["key"], c["here"], c["kinds"]) for c in causes] == [
                ("metric", "a_min", ["select"])
            ]


def test_what_is_stored_is_told_from_what_is_missing(says: Any, call: Any, folders: Path) -> None:
    store = Store(folders / "store")
    for target in planned("table4", "micro", (0,), ["dpo-1"]).targets:
        _store(store, target)
    stages = says("why", "why", "table4/dpo-1")["runs"][0]["stages"]
    assert {stage["state"] for stage in stages} == {"done"}
    assert "All of its stages are in the store" in call("why", "table4/dpo-1").stdout
    other = call("why", "table4/dpo-1", "--seed", "1").stdout
    assert f"Not in the store: {len(stages)} stages." in " ".join(other.split())


def _store(store: Store, target: Stage) -> None:
    provenance = collect_provenance()
    for stage in Plan([target]):
        if store.status(stage.fingerprint) != "done":
            with store.writing(stage, provenance):
                pass


def test_each_stage_has_one_line_of_80_columns(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = [line.rstrip() for line in call("why", "table4/eva-a_min").stdout.splitlines()]
    assert "1 · prompts            missing   shared: dpo-1, eva-uniform, 6 more" in said
    assert "2 · select             missing   select: metric a_min instead of uniform" in said


def test_a_row_of_a_table_of_ones_own_is_named_by_the_file(
    call: Any, says: Any, mine: Path
) -> None:
    explained = says("why", "why", f"{mine}/eva-scratch")
    assert (explained["table"], explained["row"]) == ("mine", "eva-scratch")
    refused = call("why", str(mine))
    assert refused.exit_code == 2
    assert f"`{mine}` is no row of a table; write `table4/ROW`" in refused.stderr
