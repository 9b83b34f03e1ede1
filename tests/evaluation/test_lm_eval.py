"""Table 9's tasks, run through the package or its stand-in."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lm_eval_data import ITEMS, write_sets

from harness.errors import HarnessError, UserError
from harness.evaluation.benchmarks.lm_eval import TASKS, keep_results, measure
from harness.registry.declared import load_tables
from harness.worlds.real.benchmarks import documents_of

INSTALLED = importlib.util.find_spec("lm_eval") is not None


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parent / "lm_eval_stand_in")
    monkeypatch.setitem(sys.modules, "lm_eval", None)  # so that it is as before when this ends
    del sys.modules["lm_eval"]
    return importlib.import_module("lm_eval")


def test_every_printed_value_is_a_share_of_whole_items() -> None:
    """If a set had another size, or a metric were no share, some value would be no multiple.

    The paper rounds to two decimals; a share of 250 to 12,032 items is further from the next
    than that in all sets but the largest.
    """
    by_column, table = {task.column: task for task in TASKS}, load_tables()["table9"]
    assert list(by_column) == [column.id for column in table.columns]
    for row in table.rows:
        for column, printed in row.values.items():
            items = by_column[column].documents
            right = round(float(printed.value) / 100 * items)
            assert abs(100 * right / items - float(printed.value)) <= 0.00501, (row.id, column)


def test_a_local_model_is_asked_as_the_authors_script_does(package: Any) -> None:
    model = {"pretrained": "org/model", "dtype": "bfloat16"}
    measure("hf", model)
    assert [
        {
            "model": "hf", "model_args": model, "tasks": [task.name for task in TASKS],
            "batch_size": "4", "device": None, "log_samples": True, "apply_chat_template": False,
        }
    ] == package.CALLS  # fmt: skip


def test_what_cannot_be_loaded_is_one_sentence(package: Any) -> None:
    package.FAILS.append(ConnectionError("cannot reach\nthe hub"))
    with pytest.raises(HarnessError, match=r"cannot reach the hub.*HF_HUB_OFFLINE=0"):
        measure("hf", {"pretrained": "m"})
    package.FAILS.append(ModuleNotFoundError("No module named 'vllm'"))
    with pytest.raises(UserError, match="lacks a package"):
        measure("hf", {"pretrained": "m"})


@pytest.mark.skipif(INSTALLED, reason="the extra `lm-eval` is installed")
def test_without_the_package_there_is_one_sentence() -> None:
    with pytest.raises(UserError, match="install the extra `lm-eval`"):
        measure("hf", {"pretrained": "m"})


def test_results_and_samples_are_kept_as_they_came(package: Any, tmp_path: Path) -> None:
    found = measure("hf", {"pretrained": "m"})
    keep_results(found, tmp_path)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept == {name: value for name, value in found.items() if name != "samples"}
    (line,) = (tmp_path / "samples_gsm8k.jsonl").read_text().splitlines()
    assert json.loads(line)["resps"] == [["r"]]


@pytest.mark.skipif(not INSTALLED, reason="the extra `lm-eval` is not installed")
def test_the_package_runs_all_six_tasks_on_sets_of_a_few_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's own tasks, read from folders that have the data sets' names; no model."""
    write_sets(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    results = measure("dummy", {"pretrained": "none"})
    keep_results(results, tmp_path / "out")
    documents = {task.column: list(documents_of(task, results)) for task in TASKS}
    assert {column: len(rows) for column, rows in documents.items()} == ITEMS
    assert all(0.0 <= row["value"] <= 1.0 for rows in documents.values() for row in rows)
    shots = {
        task.column: int(results["n-shot"][name])
        for task in TASKS
        for name in (results["group_subtasks"].get(task.name) or [task.name])
    }
    assert shots == {
        "musr_ta": 0, "tqa_gen": 0, "wmdp": 0, "gsm8k": 5, "gsm_plus": 5, "mmlu_pro": 5
    }  # fmt: skip
    assert len((tmp_path / "out" / "samples_gsm8k.jsonl").read_text().splitlines()) >= 4
