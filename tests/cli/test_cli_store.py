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
    command = (["mlflow"], {"A": "1"})
    monkeypatch.setattr("harness.cli.store.ui_command", lambda *_, **__: command)
    monkeypatch.setattr("os.execve", lambda *told: served.append(told))
    said = call("ui", "--port", "5003").stdout
    assert "http://127.0.0.1:5003/#/experiments?" in said
    assert served == [("mlflow", ["mlflow"], {"A": "1"})]


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
