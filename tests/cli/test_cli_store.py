"""`harness store`: what is there, whether it is whole, and what can go."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_gemma import build_tiny_gemma
from toy_world import planned
from transformers import AutoModelForCausalLM

from harness.runtime import Plan, Stage, Store
from harness.selection import stored

RUN = ("run", "table4", "--rows", "dpo-1", "--seeds", "0", "--jobs", "1")


def strange(store: Store) -> str:
    """Store a stage that no declared run needs; return its fingerprint."""
    stage = Stage("train", 1, {"nobody": "asks"}, {}, "strange")
    with store.writing(stage) as output:
        (output / "model").write_bytes(bytes(1000))
    return stage.fingerprint


def test_what_no_run_needs_goes_when_that_is_confirmed(
    says: Any, call: Any, tracker: Any, folders: Path
) -> None:
    assert call(*RUN).exit_code == 0
    before = says("report", "report", "table4")
    store = Store(folders / "store")
    fingerprint = strange(store)
    left = store.unfinished("0" * 64)
    left.mkdir(parents=True)
    (left / "half").write_bytes(bytes(500))
    found = says("store", "store", "--prune", "--verify")
    assert (found["prunable"], found["pruned"], found["broken"]) == (1500, False, [])
    kinds = {row["kind"]: row for row in found["kinds"]}
    assert (kinds["train"]["unneeded"], kinds["train"]["unneeded_size"]) == (1, 1000)
    assert kinds["train"]["stages"] == 2
    assert found["size"] == sum(row["size"] for row in found["kinds"])
    assert store.status(fingerprint) == "done"
    text = call("store", "--prune").stdout
    assert "1.5 kB can be freed: `harness store --prune --yes`" in text
    assert "1.5 kB were freed" in call("store", "--prune", "--yes").stdout
    assert Store(folders / "store").status(fingerprint) == "missing"
    assert not left.exists()
    assert says("store", "store")["prunable"] == 0
    assert says("report", "report", "table4") == before
    planned = says("plan", "plan", "table4", "--rows", "dpo-1", "--seeds", "0")
    assert planned["stages"]["missing"] == 0


def test_what_files_of_ones_own_declare_is_kept(
    says: Any, call: Any, tracker: Any, folders: Path, mine: Path, mini: Path
) -> None:
    """A table and a profile, each named by its path, are as good as declared once they have run."""
    result = call("run", str(mine), "--profile", str(mini), *RUN[2:])
    assert result.exit_code == 0, result.stderr
    found = says("store", "store", "--prune")
    assert found["size"] > 0
    assert found["prunable"] == 0
    mine.unlink()
    result = call("store", "--prune", "--yes")
    assert result.exit_code != 0
    assert "`mine` was run at `mini` from a file of your own that cannot be read" in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(list(Store(folders / "store").fingerprints())) > 0


def test_a_work_folder_that_has_run_nothing_empties_no_store(call: Any, folders: Path) -> None:
    """Whoever else shares the store may need all of it."""
    store = Store(folders / "store")
    fingerprint = strange(store)
    result = call("store", "--prune", "--yes")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "prune from the work folder that ran it" in result.stderr
    assert store.status(fingerprint) == "done"
    assert call("store", "--prune").exit_code == 0


def test_a_damaged_file_is_named_and_the_command_fails(says: Any, call: Any, folders: Path) -> None:
    store = Store(folders / "store")
    fingerprint = strange(store)
    (store.path(fingerprint) / "model").write_bytes(bytes(999) + b"1")
    (sentence,) = says("store", "store", "--verify", code=1)["broken"]
    assert "model has other content than was written" in sentence
    assert "1 things in the store are broken" in call("store", "--verify").stderr
    assert call("store").exit_code == 0


def segments(store: Store) -> list[Stage]:
    """Store three segments of an online run and a score, each after the other."""
    made: list[Stage] = []
    for number in range(3):
        inputs = {"before": made[-1]} if made else {}
        made.append(Stage("online", 1, {"segment": number}, inputs, f"segment {number}"))
    made.append(Stage("answer", 1, {}, {"policy": made[2]}, "answer"))
    for stage in made:
        with store.writing(stage) as output:
            (output / "model").mkdir()
            (output / "model" / "weights").write_bytes(bytes(1000))
            (output / "optimizer.safetensors").write_bytes(bytes(2000))
            (output / "progress.jsonl").write_text('{"step": 1, "metrics": {"loss": 0.5}}\n')
    return made


def test_spent_segments_give_their_weights_back_and_keep_their_curves(
    says: Any, monkeypatch: Any, folders: Path
) -> None:
    store = Store(folders / "store")
    first, second, third, answer = segments(store)
    monkeypatch.setattr(stored, "_ever_run", lambda: [SimpleNamespace(targets=[answer])])
    found = says("store", "store", "--prune", "--yes")
    assert (found["prunable"], found["kinds"][0]["spent"]) == (6000, 2)
    for stage in (first, second):
        assert store.status(stage.fingerprint) == "done"
        assert store.progress(stage.fingerprint)[0].metrics == {"loss": 0.5}
        assert not (store.path(stage.fingerprint) / "model" / "weights").exists()
    assert (store.path(third.fingerprint) / "model" / "weights").exists()
    assert says("store", "store", "--verify")["broken"] == []
    assert says("store", "store")["prunable"] == 0
    # What turns out to be needed after all is computed again, with what it needs itself.
    plan = Plan([answer])
    plan.reclaim(store)
    assert [s.label for s in plan.pending(store)] == []
    store.discard(third.fingerprint)
    plan.reclaim(store)
    assert [s.label for s in plan.pending(store)] == ["segment 0", "segment 1", "segment 2"]


def test_what_is_published_can_be_written(says: Any, call: Any, monkeypatch: Any) -> None:
    changes = {"created": 2, "unchanged": 1}
    monkeypatch.setattr("harness.tracking.Mlflow.write", lambda self, records: changes)
    monkeypatch.setattr("harness.tracking.tables.published_records", lambda folder: [])
    (found,) = says("sync", "sync", "--published")
    assert found == {"what": "published results", "runs": 3, "changes": changes}
    assert call("sync", "--published").stdout == (
        "published results: 3 MLflow runs (2 created, 1 unchanged).\n"
    )


def test_pages_are_served_in_the_place_of_the_command(call: Any, monkeypatch: Any) -> None:
    served: list[Any] = []
    command = (["mlflow"], {"A": "1"})
    monkeypatch.setattr("harness.tracking.ui_command", lambda *_, **__: command)
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
    found = says("store path", "store", "path", "table4", row)
    assert (found["run"], found["seed"], found["path"]) == ("dpo-h1", 0, str(trained))
    assert AutoModelForCausalLM.from_pretrained(found["path"]).config.model_type == "gemma2"


def test_a_row_of_a_table_of_ones_own_has_a_folder_too(
    call: Any, mine: Path, trained: Path
) -> None:
    assert call("store", "path", str(mine), "dpo-1").stdout == f"{trained}\n"


def test_a_damaged_policy_is_not_named(call: Any, trained: Path) -> None:
    weights = trained / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    result = call("store", "path", "table4", "dpo-1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is broken" in result.stderr
