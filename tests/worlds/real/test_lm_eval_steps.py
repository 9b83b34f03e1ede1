"""Laws of table 9's tasks as stages: documents give the score; without the package there is none.

The package is stood in for by results in its form, as `simple_evaluate` returns them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from staging import read_json, run_stage, scores_in

from harness.evaluation.benchmarks import lm_eval
from harness.pipeline.runs import plan_table
from harness.pipeline.steps import answer_stage, judge_stage
from harness.registry.declared import load_tables
from harness.registry.profile import Profile
from harness.runtime import Plan
from harness.worlds.stage_io import read_rows


def run(tmp_path: Path, version: str = "0.4.13", engine: str = "hf") -> tuple[Path, Path]:
    """Run both stages; return the folders of answers and scores."""
    settings = {
        "benchmark": f"lm-eval@{version}", "engine": engine, "batch_size": "4", "dtype": "bfloat16"
    }  # fmt: skip
    policy = {"policy": tmp_path / "trained"}
    answers = run_stage(answer_stage, tmp_path / "answers", settings, policy)
    judge = {**settings, "judge": f"lm-evaluation-harness {version}"}
    return answers, run_stage(judge_stage, tmp_path / "scored", judge, {"answers": answers})


def sample(doc: int, metric: str, value: float, filtered: str = "none") -> dict[str, Any]:
    return {
        "doc_id": doc,
        "arguments": [(f"question {doc}", " choice")],
        "filtered_resps": [(-1.5, False)] if metric.startswith("acc") else [f"answer {doc}"],
        "filter": filtered,
        metric: value,
    }


def results() -> dict[str, Any]:
    """A group of two tasks, 2 of 3 right, and GSM8K, 1 of 4 by the strict filter."""
    gsm8k = [sample(doc, "exact_match", float(doc == 2), "strict-match") for doc in range(4)]
    loose = [sample(doc, "exact_match", 1.0, "flexible-extract") for doc in range(4)]
    return {
        "results": {
            "wmdp": {"acc,none": 2 / 3, "acc_stderr,none": 0.1},
            "gsm8k": {"exact_match,strict-match": 0.25, "exact_match,flexible-extract": 1.0},
        },
        "group_subtasks": {"wmdp": ["wmdp_bio", "wmdp_cyber"]},
        "n-samples": {
            "wmdp_bio": {"original": 2, "effective": 2},
            "wmdp_cyber": {"original": 1, "effective": 1},
            "gsm8k": {"original": 4, "effective": 4},
        },
        "samples": {
            "wmdp_bio": [sample(0, "acc", 1.0), sample(1, "acc", 0.0)],
            "wmdp_cyber": [sample(0, "acc", 1.0)],
            "gsm8k": [row for pair in zip(gsm8k, loose, strict=True) for row in pair],
        },
        "lm_eval_version": "0.4.13",
    }


def test_the_documents_of_a_task_give_its_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def measure(*what: Any, **how: Any) -> dict[str, Any]:
        asked.append((*what, how))
        return results()

    monkeypatch.setattr(lm_eval, "measure", measure)
    monkeypatch.setattr("harness.models.loading.fastest_device", lambda: "cpu")
    answers, scored = run(tmp_path)
    assert scores_in(scored) == {
        ("wmdp_bio/0", "wmdp"): 100.0, ("wmdp_bio/1", "wmdp"): 0.0, ("wmdp_cyber/0", "wmdp"): 100.0,
        ("gsm8k/0", "gsm8k"): 0.0, ("gsm8k/1", "gsm8k"): 0.0,
        ("gsm8k/2", "gsm8k"): 100.0, ("gsm8k/3", "gsm8k"): 0.0,
    }  # fmt: skip
    summary = read_json(scored / "summary.json")
    assert summary["scores"]["gsm8k"] == pytest.approx(25.0)
    assert summary["scores"]["wmdp"] == pytest.approx(200 / 3)
    assert set(summary["not_available"]) == {"musr_ta", "tqa_gen", "gsm_plus", "mmlu_pro"}
    assert summary["n"] == 7
    assert summary["not_available"]["tqa_gen"] == "truthfulqa_gen was not run"
    model = {"pretrained": str(tmp_path / "trained" / "model"), "dtype": "bfloat16"}
    assert asked == [("hf", model, {"batch_size": "4", "device": "cpu"})]
    (first, *_) = read_rows(answers / "answers.parquet")
    assert json.loads(first["conversation"])[0]["content"] == "question 0"


def test_without_the_package_no_score_is_there_and_the_reason_is(tmp_path: Path) -> None:
    answers, scored = run(tmp_path, "not-installed")
    assert read_rows(answers / "answers.parquet") == []
    assert scores_in(scored) == {}
    summary = read_json(scored / "summary.json")
    assert "extra `lm-eval`" in summary["not_available"]["mmlu_pro"]


def test_the_version_that_scores_is_the_one_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, paper: Profile
) -> None:
    table = load_tables()["table9"]
    judges = {}
    for version in ("0.4.13", "not-installed"):
        monkeypatch.setattr("harness.evaluation.benchmark.version_of", {"lm_eval": version}.get)
        plan = Plan(plan_table(table, paper, [0]).targets)
        judges[version] = {str(s.settings["judge"]) for s in plan if s.kind == "judge"}
        assert {s.settings["dtype"] for s in plan if s.kind == "answer"} == {"bfloat16"}
    assert judges == {version: {f"lm-evaluation-harness {version}"} for version in judges}
