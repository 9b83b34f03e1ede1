"""`plan` counts what a run would compute, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_world import planned

from harness.pipeline.runs import plan_table
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.runtime import Plan, Store


def test_a_plan_counts_each_distinct_stage_once(says: Any, folders: Path) -> None:
    """Table 4, one seed: one DPO policy and eight policies trained from it, 9 training stages.

    Its prompts, answers, rewards and pairs are stages of all nine rows, and so are the policy, the
    answers, rewards and pairs that the eight children start from, less in the row `dpo-1`: eight
    shared stages (the first policy is the baseline's and the children's).
    """
    plan = says("plan", "plan", "table4", "--seeds", "0")
    assert [kind["total"] for kind in plan["kinds"] if kind["kind"] == "train"] == [9]
    assert plan["runs"] == 9
    assert plan["shared"] == 8
    assert plan["stages"]["missing"] == plan["stages"]["total"]
    assert sum(kind["total"] for kind in plan["kinds"]) == plan["stages"]["total"]
    assert not folders.exists()


def test_a_dry_run_is_the_plan(says: Any, folders: Path) -> None:
    asked = ("table4", "--rows", "eva-a_min", "--seeds", "0,2")
    plan = says("plan", "plan", *asked)
    assert says("plan", "run", *asked, "--dry-run") == plan
    assert plan["rows"] == ["dpo-1", "eva-a_min"]
    assert not folders.exists()


@pytest.mark.parametrize(
    ("asked", "again"),
    [
        ("table4", "table4"),
        ("table4 --rows eva-a_min --seeds 0", "table4 --rows dpo-1,eva-a_min --seeds 0"),
        ("figure10 --profile paper --seeds 0,2", "figure10 --profile paper --seeds 0,2"),
        ("all-offline --seeds 1-2", "all-offline --seeds 1-2"),
    ],
)
def test_a_plan_ends_with_the_command_that_computes_just_that(
    call: Any, asked: str, again: str
) -> None:
    last = call("plan", *asked.split()).stdout.splitlines()[-1]
    assert last == f"Compute it: harness run {again}"


def test_the_command_that_computes_it_names_the_plug_ins_that_were_named(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_PLUGINS", "")
    monkeypatch.setattr("harness.extensions._PLUGINS.named", [])
    (tmp_path / "a plug.py").write_text('"""Adds nothing."""\n', encoding="utf-8")
    plug = str(tmp_path / "a plug.py")
    last = call("plan", "table4", "--seeds", "0", "--plugin", plug).stdout.splitlines()[-1]
    assert last == f"Compute it: harness run table4 --seeds 0 --plugin '{plug}'"
    assert call("plan", "table4").stdout.splitlines()[-1] == "Compute it: harness run table4"


def test_another_value_of_a_setting_is_a_profile_of_its_own(says: Any, folders: Path) -> None:
    """The training, and what follows it, is new; the prompts and their answers are not."""
    told = ("--rows", "dpo-1", "--seeds", "0", "--set", "profile.training.dpo.beta=0.5")
    found = says("plan", "plan", "table4", *told)
    (file,) = (folders / "profiles").iterdir()
    assert found["profile"] == file.stem
    profiles = (load_profiles()["micro"], load_profiles(file)[file.stem])
    assert [it.training.of("dpo").beta for it in profiles] == [2.0, 0.5]  # type: ignore[union-attr]
    plans = [plan_table(load_tables()["table4"], it, [0], ["dpo-1"]).targets for it in profiles]
    one, other = ({s.fingerprint: s.kind for s in Plan(targets)} for targets in plans)
    assert {one[name] for name in one.keys() - other.keys()} == {"train", "answer", "judge"}


def test_the_time_at_a_profile_of_ones_own_is_unknown_until_something_was_timed(
    call: Any, mini: Path
) -> None:
    said = call("plan", "table4", "--profile", str(mini)).stdout
    assert "nothing was timed at mini yet" in said
    assert "about" not in said


def test_a_failed_stage_is_named_with_its_reason(says: Any, call: Any, folders: Path) -> None:
    runs = planned("table4", "micro", (0,), ["dpo-1"])
    stage = Plan(runs.targets).stages[0]
    Store(folders / "store").record_failure(stage, "the toy is broken", "Traceback ...")
    asked = ("plan", "table4", "--rows", "dpo-1", "--seeds", "0")
    plan = says("plan", *asked)
    assert plan["stages"]["failed"] == 1
    assert plan["failures"] == [
        {
            "stage": stage.label,
            "kind": "prompts",
            "fingerprint": stage.fingerprint,
            "reason": "the toy is broken",
        }
    ]
    assert "the toy is broken" in call(*asked).stdout
