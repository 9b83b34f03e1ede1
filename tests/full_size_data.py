"""The three benchmarks at their full size, made up: 805 instructions, 500 and 80 questions."""

import json
from pathlib import Path

from stand_in.build import (
    MT_BENCH_CATEGORIES,
    answered,
    lines,
    questioned,
    write_judge_prompts,
)

JUDGMENTS = {"alpaca_eval": 805, "arena_hard": 1000, "mt_bench": 160}
OWN = "made-up-model"


def write_data(folder: Path) -> dict[str, list[str]]:
    """Write all three, with a model's answers; return the options that name them."""
    options = {}
    for name, write in (
        ("alpaca_eval", _alpaca_eval), ("arena_hard", _arena_hard), ("mt_bench", _mt_bench)
    ):  # fmt: skip
        (folder / name).mkdir(parents=True)
        options[name] = ["--data", str(folder / name), "--answers", str(write(folder / name))]
    return options


def _alpaca_eval(folder: Path) -> Path:
    for model, file in (("gpt4_1106_preview", "reference_gpt4_1106_preview_outputs"), (OWN, "own")):
        outputs = [
            {
                "dataset": "made-up", "instruction": f"instruction {i}", "generator": model,
                "output": f"{model} says {i} " + "word " * (i % 50),
            }
            for i in range(805)
        ]  # fmt: skip
        (folder / f"{file}.json").write_text(json.dumps(outputs))
    return folder / "own.json"


def _arena_hard(folder: Path) -> Path:
    ids = [f"q{i}" for i in range(500)]
    turns = [[{"content": f"{i}?"}] for i in range(500)]
    lines(folder / "question.jsonl", questioned(ids, [""] * 500, turns))
    for model, file in (("gpt-4-0314", "answer_gpt-4-0314"), (OWN, "own")):
        said = [[{"content": f"{model} says {i}", "token_len": 3 + i}] for i in range(500)]
        lines(folder / f"{file}.jsonl", answered(ids, said, model))
    (folder / "judge_config.yaml").write_text(
        "system_prompt: Judge.\n"
        "prompt_template: ['One of [[A>>B]] ... {question_1} {answer_1} {answer_2}']\n"
    )
    return folder / "own.jsonl"


def _mt_bench(folder: Path) -> Path:
    categories = [MT_BENCH_CATEGORIES[i // 10] for i in range(80)]
    asked = [[f"{i}?", f"and {i}?"] for i in range(80)]
    lines(folder / "question.jsonl", questioned(range(80), categories, asked))
    for model, file in (("gpt-4", "reference_answer_gpt-4"), (OWN, "own")):
        said = [[f"{model} says {i}", f"{model} adds {i}"] for i in range(80)]
        lines(folder / f"{file}.jsonl", answered(range(80), said, model))
    write_judge_prompts(folder)
    return folder / "own.jsonl"
