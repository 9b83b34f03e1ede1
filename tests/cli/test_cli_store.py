"""`harness store`: what is there, whether it is whole, and what can go."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_gemma import build_tiny_gemma
from toy_world import planned
from transformers import AutoModelForCausalLM

from harness.runtime import Plan, Stage, Store


def strange(store: Store) -> str:
    """Store a stage that no declared run needs; return its fingerprint."""
    stage = Stage("train", 1, {"nobody": "asks"}, {}, "strange")
    with store.writing(stage) as output:
        (output / "model").write_bytes(bytes(1000))
    return stage.fingerprint


def test_a_damaged_file_is_named_and_the_command_fails(call: Any, folders: Path) -> None:
    store = Store(folders / "store")
    fingerprint = strange(store)
    assert "every file is as it was written" in call("store", "--verify").stdout
    assert json.loads(call("store", "--verify", "--json").stdout)["verified"] is True
    (store.path(fingerprint) / "model").write_bytes(bytes(999) + b"1")
    found = call("store", "--verify", code=1)
    assert "model has other content than was written" in found.stderr
    said = json.loads(call("store", "--verify", "--json", code=1).stdout)
    assert "model has other content than was written" in said["broken"]
    assert "verified" not in json.loads(call("store", "--json").stdout)


def test_pages_are_served_in_the_place_of_the_command(call: Any, monkeypatch: Any) -> None:
    served: list[Any] = []
    monkeypatch.setattr(
        "harness.cli.store.ui_command", lambda _, port=5000: (["mlflow", str(port)], {"A": "1"})
    )
    monkeypatch.setattr("os.execve", lambda *told: served.append(told))
    said = call("ui", "--port", "5003").stdout
    assert "http://127.0.0.1:5003/#/experiments?" in said
    assert served == [("mlflow", ["mlflow", "5003"], {"A": "1"})]


@pytest.fixture
def trained(folders: Path) -> Path:
    """Store a tiny policy as that of row `dpo-1`, seed 0; return its folder."""
    (run,) = planned("table4", "micro", (0,), ["dpo-1"]).runs.values()
    store = Store(folders / "store")
    for stage in Plan([run.training[-1]]):
        with store.writing(stage) as output:
            if stage.kind == "train":
                build_tiny_gemma(output / "model", seed=3)
    return store.path(run.training[-1].fingerprint) / "model"


@pytest.mark.parametrize("row", ["dpo-1", "dpo-h1"])
def test_the_folder_of_a_policy_is_named_and_transformers_loads_it(
    call: Any, says: Any, trained: Path, row: str
) -> None:
    """The row's id or the run's, `dpo-h1`, both name it."""
    assert call("store", "path", "table4", row).stdout == f"{trained}\n"
    found = says("store", "path", "table4", row)
    assert (found["run"], found["seed"], found["path"]) == ("dpo-h1", 0, str(trained))
    assert AutoModelForCausalLM.from_pretrained(found["path"]).config.model_type == "gemma2"


def test_a_damaged_policy_is_not_named(call: Any, trained: Path) -> None:
    weights = trained / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    result = call("store", "path", "table4", "dpo-1", code=1)
    assert result.stdout == ""
    assert "is broken" in result.stderr


def test_the_policy_of_another_seed_is_another_folder(call: Any) -> None:
    said = call("store", "path", "table4", "dpo-1", "--seed", "3", code=2).stderr
    assert "not trained yet; type `harness run table4 --rows dpo-1 --seeds 3`" in said


def test_the_store_is_summed_by_kind_the_largest_first(says: Any, folders: Path) -> None:
    store = Store(folders / "store")
    for kind, seed, size in (("pair", 0, 10), ("train", 0, 100), ("train", 1, 1000)):
        with store.writing(Stage(kind, 1, {"seed": seed}, {})) as output:
            (output / "a").write_bytes(bytes(size - 1))
            (output / "b").write_bytes(bytes(1))
    found = says("store")
    assert found["kinds"] == [
        {"kind": "train", "stages": 2, "size": 1100},
        {"kind": "pair", "stages": 1, "size": 10},
    ]
    assert (found["size"], found["place"]) == (1110, str(store.root))


def test_a_sync_is_of_the_profile_and_of_whole_tables_where_a_group_is_named(
    call: Any, monkeypatch: Any
) -> None:
    asked: list[Any] = []

    def states(tables: Any, profile: Any, store: Any, *, whole: bool) -> list[Any]:
        asked.append(([it.id for it in tables][:1], profile.name, whole))
        return []

    monkeypatch.setattr("harness.selection.stored.stored_states", states)
    call("sync", "table5", "--profile", "laptop")
    call("sync")
    assert asked == [(["table5"], "laptop", False), (["table1"], "micro", True)]
