"""`plan` counts what a run would compute, and changes nothing."""

from pathlib import Path
from typing import Any

import pytest
from running import on_a_bare_machine
from toy_world import planned

from harness.pipeline.runs import plan_table
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.runtime import Plan, Store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, list_prices: None) -> None:
    """A machine without models, benchmarks and prices of its own."""
    on_a_bare_machine(monkeypatch, tmp_path, keeping=("HARNESS_WORK", "HARNESS_WORLD"))


def test_a_plan_counts_each_distinct_stage_once(says: Any, folders: Path) -> None:
    """Table 4, one seed: one DPO policy and eight policies trained from it, 9 training stages.

    Its prompts, answers, rewards and pairs are stages of all nine rows, and so are the policy, the
    answers, rewards and pairs that the eight children start from, less in the row `dpo-1`: eight
    shared stages (the first policy is the baseline's and the children's).
    """
    plan = says("plan", "table4", "--seeds", "0")
    assert [kind["total"] for kind in plan["kinds"] if kind["kind"] == "train"] == [9]
    assert plan["runs"] == 9
    assert plan["shared"] == 8
    assert plan["stages"]["missing"] == plan["stages"]["total"]
    assert sum(kind["total"] for kind in plan["kinds"]) == plan["stages"]["total"]
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
    monkeypatch.setattr("harness.extensions._named", [])
    (tmp_path / "a plug.py").write_text('"""Adds nothing."""\n', encoding="utf-8")
    plug = str(tmp_path / "a plug.py")
    last = call("plan", "table4", "--seeds", "0", "--plugin", plug).stdout.splitlines()[-1]
    assert last == f"Compute it: harness run table4 --seeds 0 --plugin '{plug}'"
    assert call("plan", "table4").stdout.splitlines()[-1] == "Compute it: harness run table4"


def test_a_table_in_a_folder_with_a_space_is_named_so_that_a_shell_reads_it(
    call: Any, tmp_path: Path
) -> None:
    mine = tmp_path / "my tables" / "mine.yaml"
    mine.parent.mkdir()
    text = (ROOT / "ablations" / "table4.yaml").read_text(encoding="utf-8")
    unclaimed = text.partition("\nclaims:")[0]
    mine.write_text(unclaimed.replace("id: table4", "id: mine"), encoding="utf-8")
    last = call("plan", str(mine), "--seeds", "0").stdout.splitlines()[-1]
    assert last == f"Compute it: harness run '{mine}' --seeds 0"
    untrained = call("store", "path", str(mine), "dpo-1", code=2).stderr
    assert f"harness run '{mine}' --rows dpo-1 --seeds 0" in untrained


def test_a_profile_of_ones_own_is_named_from_where_the_command_is_typed(
    call: Any, mini: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.registry.documents.project_root", lambda: mini.parent)
    below = mini.parent / "below"
    below.mkdir()
    for folder, name in ((mini.parent, "mini.yaml"), (below, str(mini))):
        monkeypatch.chdir(folder)
        asked = ("plan", "table4", "--rows", "dpo-1", "--profile", str(mini))
        last = call(*asked).stdout.splitlines()[-1]
        assert last == f"Compute it: harness run table4 --profile {name} --rows dpo-1"


def test_another_value_of_a_setting_is_a_profile_of_its_own(says: Any, folders: Path) -> None:
    """The training, and what follows it, is new; the prompts and their answers are not."""
    told = ("--rows", "dpo-1", "--seeds", "0", "--set", "profile.training.dpo.beta=0.5")
    found = says("plan", "table4", *told)
    (file,) = (folders / "profiles").iterdir()
    assert found["profile"] == file.stem
    profiles = (load_profiles()["micro"], load_profiles(file)[file.stem])
    assert [it.training.of("dpo").beta for it in profiles] == [2.0, 0.5]  # type: ignore[union-attr]
    plans = [plan_table(load_tables()["table4"], it, [0], ["dpo-1"]).targets for it in profiles]
    one, other = ({s.fingerprint: s.kind for s in Plan(targets)} for targets in plans)
    assert {one[name] for name in one.keys() - other.keys()} == {"train", "answer", "judge"}


def test_the_time_at_a_profile_of_ones_own_is_that_of_its_stages_in_the_store(
    call: Any, says: Any, mini: Path, folders: Path
) -> None:
    """Seed 0 was computed, in no time; so the others are estimated from it."""
    asked = ("plan", "table4", "--rows", "dpo-1", "--profile", str(mini), "--seeds")
    said = " ".join(call(*asked, "0").stdout.split())
    assert "no estimate of the time before each kind of stage has run once at mini" in said
    assert "train" in says(*asked, "0")["untimed"]
    store, table = Store(folders / "store"), load_tables()["table4"]
    profile = load_profiles(mini)["mini"]
    for stage in Plan(plan_table(table, profile, [0], ["dpo-1"]).targets):
        with store.writing(stage):
            pass
    found = says(*asked, "1")
    assert found["untimed"] == []
    assert 0.0 <= found["estimated_s"] < 10.0
    assert says(*asked, "0")["estimated_s"] == 0.0


def test_a_plan_lists_the_requests_to_paid_models(
    says: Any, call: Any, folders: Path, bare: None
) -> None:
    """Table 4, one seed: nine policies, each judged 1,000 + 805 + 160 times, and eight creators."""
    asked = ("table4", "--profile", "paper", "--seeds", "0")
    found = says("plan", *asked)["requests"]
    assert {(it["role"], it["model"]): it["requests"] for it in found} == {
        ("judge", "gpt-4-1106-preview"): 9 * 1805,
        ("judge", "gpt-4"): 9 * 160,
        ("creator", "gemini-1.5-pro"): 8 * 11_000,
    }
    assert all(it["usd"] > 0 for it in found)
    text = " ".join(call("plan", *asked).stdout.split())
    for part in ("$ per M in, out", "10, 30", "prices of 20", "no estimate of the time"):
        assert part in text
    assert says("plan", "table4", "--seeds", "0")["requests"] == []
    lines = call("plan", "all", "--profile", "paper").stdout.splitlines()
    assert len(lines) <= 16
    assert "Left out: choosing, reward-models, selectors." in lines
    everything = says("plan", "all", "--profile", "paper", "--seeds", "0")
    left_out = list(everything["left_out"])
    assert left_out == ["choosing", "reward-models", "selectors"]
    assert len([line for line in everything["tables"] if line["table"][5:].isdigit()]) == 15
    assert not folders.exists()


def test_tables_of_a_group_whose_sizes_do_not_fit_are_left_out(says: Any, bare: None) -> None:
    """Online, 300 prompts are no whole number of mini-batches; offline there are none."""
    found = says("plan", "all", "--set", "profile.x=300", "--seeds", "0")
    assert "300 prompts make no whole number" in found["left_out"]["table8"]
    assert "table4" in [table["table"] for table in found["tables"]]


def test_a_budget_needs_every_price(
    call: Any, monkeypatch: pytest.MonkeyPatch, folders: Path, bare: None
) -> None:
    """Where the user names who rewrites, only he knows the price."""
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:8000/v1")
    asked = ("run", "table4", "--profile", "single-gpu", "--seeds", "0", "--budget-usd")
    assert "HARNESS_CREATOR_PRICE" in call(*asked, "5", code=2).stderr
    monkeypatch.setenv("HARNESS_CREATOR_PRICE", "0,0")
    assert "nothing was started" in call(*asked, "5", code=2).stderr
    assert not (folders / "store" / "stages").exists()


def test_a_failed_stage_is_named_with_its_reason(says: Any, call: Any, folders: Path) -> None:
    runs = planned("table4", "micro", (0,), ["dpo-1"])
    stage = Plan(runs.targets).stages[0]
    Store(folders / "store").record_failure(stage, "the toy is broken", "Traceback ...")
    asked = ("plan", "table4", "--rows", "dpo-1", "--seeds", "0")
    plan = says(*asked)
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


def test_the_time_left_is_the_work_of_the_workers_or_the_longest_chain(
    says: Any, monkeypatch: Any
) -> None:
    """Ten seconds a stage, of which seven are a chain, from prompts to judge."""
    monkeypatch.setattr("harness.pipeline.estimate.Timings.seconds", lambda self, stage: 10.0)
    asked = ("plan", "table4", "--seeds", "0", "--rows", "dpo-1", "--jobs")
    one, two, many = (says(*asked, jobs) for jobs in ("1", "2", "100"))
    total = one["stages"]["total"]
    assert one["estimated_s"] == 10.0 * total
    assert two["estimated_s"] == max(5.0 * total, 70.0)
    assert many["estimated_s"] == 70.0
