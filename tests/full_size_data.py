"""The three benchmarks at their full size, made up: 805 instructions, 500 and 80 questions.

Questions, references and judge prompts are this project's own; only their number, form and
categories are the benchmarks'.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

JUDGMENTS = {"alpaca_eval": 805, "arena_hard": 1000, "mt_bench": 160}
CATEGORIES = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"
)  # fmt: skip


def write_data(folder: Path) -> dict[str, list[str]]:
    """Write all three, with a model's answers; return the options that name them."""
    for part in ("alpaca_eval", "arena_hard", "mt_bench"):
        (folder / part).mkdir(parents=True)
    return {
        "alpaca_eval": _alpaca_eval(folder / "alpaca_eval"),
        "arena_hard": _arena_hard(folder / "arena_hard"),
        "mt_bench": _mt_bench(folder / "mt_bench"),
    }


def _alpaca_eval(folder: Path) -> list[str]:
    def outputs(generator: str) -> list[dict[str, str]]:
        return [
            {
                "dataset": "made-up",
                "instruction": f"instruction {i}",
                "output": f"{generator} says {i} " + "word " * (i % 50),
                "generator": generator,
            }
            for i in range(805)
        ]

    reference = folder / "reference_gpt4_1106_preview_outputs.json"
    reference.write_text(json.dumps(outputs("gpt4_1106_preview")))
    (folder / "own.json").write_text(json.dumps(outputs("made-up-model")))
    return ["--data", str(folder), "--answers", str(folder / "own.json")]


def _arena_hard(folder: Path) -> list[str]:
    def answers(model: str) -> list[dict[str, Any]]:
        return [
            {
                "question_id": f"q{i}",
                "model_id": model,
                "choices": [{"turns": [{"content": f"{model} says {i}", "token_len": 3 + i}]}],
            }
            for i in range(500)
        ]

    questions = [{"question_id": f"q{i}", "turns": [{"content": f"{i}?"}]} for i in range(500)]
    _lines(folder / "question.jsonl", questions)
    _lines(folder / "answer_gpt-4-0314.jsonl", answers("gpt-4-0314"))
    _lines(folder / "own.jsonl", answers("made-up-model"))
    (folder / "judge_config.yaml").write_text(
        "system_prompt: Judge.\n"
        "prompt_template: ['One of [[A>>B]] ... {question_1} {answer_1} {answer_2}']\n"
    )
    return ["--data", str(folder), "--answers", str(folder / "own.jsonl")]


def _mt_bench(folder: Path) -> list[str]:
    def answers(model: str) -> list[dict[str, Any]]:
        return [
            {
                "question_id": i,
                "model_id": model,
                "choices": [{"turns": [f"{model} says {i}", f"{model} adds {i}"]}],
            }
            for i in range(80)
        ]

    questions = [
        {"question_id": i, "category": CATEGORIES[i // 10], "turns": [f"{i}?", f"and {i}?"]}
        for i in range(80)
    ]
    _lines(folder / "question.jsonl", questions)
    _lines(folder / "reference_answer_gpt-4.jsonl", answers("gpt-4"))
    _lines(folder / "own.jsonl", answers("made-up-model"))
    asked = "Rate it as [[rating]]."
    prompts = {
        "single-v1": "{question} {answer}",
        "single-math-v1": "{question} {ref_answer_1} {answer}",
        "single-v1-multi-turn": "{question_1} {answer_1} {question_2} {answer_2}",
        "single-math-v1-multi-turn": "{question_1} {ref_answer_1} {question_2} {ref_answer_2} "
        "{answer_1} {answer_2}",
    }
    _lines(
        folder / "judge_prompts.jsonl",
        [
            {"name": name, "system_prompt": "Judge.", "prompt_template": f"{asked} {template}"}
            for name, template in prompts.items()
        ],
    )
    return ["--data", str(folder), "--answers", str(folder / "own.jsonl")]


def _lines(path: Path, records: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
