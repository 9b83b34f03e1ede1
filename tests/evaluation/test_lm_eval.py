"""Table 9's tasks: read from lm-eval's results, and run through the package or its stand-in."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lm_eval_data import ITEMS, stood_in, write_sets

from harness.errors import HarnessError, UserError
from harness.evaluation.benchmarks.lm_eval import (
    TASKS,
    evaluate_results,
    installed,
    keep_results,
    measure,
    read_results,
)
from harness.registry.declared import load_tables

INSTALLED = importlib.util.find_spec("lm_eval") is not None


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    yield from stood_in(monkeypatch)


def results(**change: Any) -> dict[str, Any]:
    """Return results as lm-eval 0.4.13 writes them, of two of the tasks; WMDP is a group."""
    return {
        "results": {
            "gsm8k": {
                "alias": "gsm8k",
                "exact_match,strict-match": 0.5,
                "exact_match_stderr,strict-match": 0.05,
                "exact_match,flexible-extract": 0.9,
            },
            "wmdp_bio": {"acc,none": 1.0},
        },
        "groups": {"wmdp": {"acc,none": 0.6, "acc_stderr,none": 0.1}},
        "group_subtasks": {"wmdp": ["wmdp_bio", "wmdp_chem"]},
        "versions": {"gsm8k": 3.0, "wmdp": 1},
        "n-shot": {"gsm8k": 5, "wmdp_bio": 0, "wmdp_chem": 0},
        "n-samples": {
            "gsm8k": {"original": 1319, "effective": 100},
            "wmdp_bio": {"original": 10, "effective": 10},
            "wmdp_chem": {"original": 20, "effective": 20},
        },
        "config": {"model": "hf", "model_args": "pretrained=org/model,dtype=bfloat16"},
        "lm_eval_version": "0.4.13",
        **change,
    }


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


def test_scores_are_percent_with_their_intervals_versions_and_shots() -> None:
    """Derivation: 50 ± 1.96 x 5, and 60 ± 1.96 x 10; the group's shots are its parts'."""
    found = evaluate_results(results())
    assert found.scores["gsm8k"] == 50.0
    assert found.scores["wmdp"] == 60.0
    assert found.intervals["gsm8k"] == pytest.approx((50 - 9.79982, 50 + 9.79982), abs=1e-4)
    assert found.tasks["gsm8k"] == {
        "task": "gsm8k", "metric": "exact_match,strict-match", "version": 3.0, "shots": 5,
        "documents": 100,
    }  # fmt: skip
    assert (found.tasks["wmdp"]["shots"], found.tasks["wmdp"]["documents"]) == ("0", 30)
    assert (found.model, found.judge) == ("org/model", "lm-evaluation-harness 0.4.13")
    assert found.columns["gsm8k"] == "gsm8k"
    assert found.summary.tasks["wmdp"]["version"] == 1


def test_what_was_not_run_is_missing_and_not_zero() -> None:
    """Derivation: 1,219 of GSM8K were left out, and four sets were not run at all."""
    found = evaluate_results(results())
    absent = [task for task in TASKS if task.column not in ("gsm8k", "wmdp")]
    assert all(found.scores[task.column] is None for task in absent)
    assert all(found.intervals[task.column] is None for task in absent)
    assert found.n == 130
    assert found.n_missing == 1219 + sum(task.documents for task in absent)
    assert found.notes["tqa_gen"] == "not_available: truthfulqa_gen was not run"


def test_results_without_counts_or_versions_are_read() -> None:
    found = evaluate_results({"results": {"gsm8k": {"exact_match,strict-match": 0.5}}})
    assert (found.n, found.tasks["gsm8k"]["version"]) == (1319, None)
    assert found.judge == "lm-evaluation-harness of unknown version"
    assert found.intervals["gsm8k"] is None
    assert found.model == "not said"


@pytest.mark.parametrize(
    "change",
    [
        {"results": {}, "groups": {}},
        {"results": {"gsm8k": {"exact_match,strict-match": 24.64}}},
        {"results": {"gsm8k": {"exact_match,strict-match": "N/A"}}},
        {"results": {"gsm8k": {"exact_match,strict-match": float("nan")}}},
    ],
)
def test_results_of_another_form_are_one_sentence(change: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        evaluate_results(results(**change))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"results": []}'])
def test_a_file_that_holds_no_results_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(UserError, match=r"r\.json"):
        read_results(tmp_path / "r.json")


def test_a_local_model_is_asked_as_the_authors_script_does(package: Any) -> None:
    model = {"pretrained": "org/model", "dtype": "bfloat16"}
    found = measure("hf", model)
    assert [
        {
            "model": "hf", "model_args": model, "tasks": [task.name for task in TASKS],
            "batch_size": "4", "device": None, "log_samples": True, "apply_chat_template": False,
        }
    ] == package.CALLS  # fmt: skip
    evaluation = evaluate_results(found, "mine")
    assert set(evaluation.scores.values()) == {25.0}
    assert (evaluation.n, evaluation.n_missing) == (6 * 100, 0)


def test_what_cannot_be_loaded_is_one_sentence(package: Any) -> None:
    package.FAILS.append(ConnectionError("cannot reach\nthe hub"))
    with pytest.raises(HarnessError, match=r"cannot reach the hub.*HF_HUB_OFFLINE=0"):
        measure("hf", {"pretrained": "m"})
    package.FAILS.append(ModuleNotFoundError("No module named 'vllm'"))
    with pytest.raises(UserError, match="lacks a package"):
        measure("hf", {"pretrained": "m"})


@pytest.mark.skipif(INSTALLED, reason="the extra `lm-eval` is installed")
def test_without_the_package_there_is_one_sentence() -> None:
    assert not installed()
    with pytest.raises(UserError, match="install the extra `lm-eval`"):
        measure("hf", {"pretrained": "m"})


def test_results_and_samples_are_kept_as_they_came(package: Any, tmp_path: Path) -> None:
    found = measure("hf", {"pretrained": "m"})
    keep_results(found, tmp_path)
    kept = read_results(tmp_path / "results.json")
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
    keep_results(measure("dummy", {"pretrained": "none"}), tmp_path / "out")
    found = evaluate_results(read_results(tmp_path / "out" / "results.json"), "none")
    assert None not in found.scores.values()
    assert {c: facts["documents"] for c, facts in found.tasks.items()} == ITEMS
    shots = {c: int(facts["shots"]) for c, facts in found.tasks.items()}
    assert shots == {
        "musr_ta": 0, "tqa_gen": 0, "wmdp": 0, "gsm8k": 5, "gsm_plus": 5, "mmlu_pro": 5
    }  # fmt: skip
    assert all(facts["version"] is not None for facts in found.tasks.values())
    assert len((tmp_path / "out" / "samples_gsm8k.jsonl").read_text().splitlines()) >= 4
