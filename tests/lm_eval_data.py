"""Data sets of a few items, in folders with the names and columns that lm-eval's tasks expect."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ITEMS = {"musr_ta": 5, "tqa_gen": 4, "wmdp": 15, "gsm8k": 4, "gsm_plus": 7, "mmlu_pro": 6}
"""Items behind each column of table 9."""

Splits = Mapping[str, Iterable[Mapping[str, Any]]]


def write_sets(folder: Path) -> None:
    """Write the six sets below a folder, which must be the working folder when they are read."""
    train = [{"question": f"q{i}", "answer": f"a #### {i}"} for i in range(6)]
    _write(folder / "openai/gsm8k", {"main": {"train": train, "test": train[:4]}})
    plus = [{"question": f"q{i}", "solution": f"a #### {i}"} for i in range(7)]
    _write(folder / "qintongli/GSM-Plus", {"default": {"test": plus, "testmini": plus}})
    _write(
        folder / "cais/wmdp",
        {
            f"wmdp-{part}": {
                "test": [
                    {"question": f"{part} {i}", "choices": list("wxyz"), "answer": i % 4}
                    for i in range(5)
                ]
            }
            for part in ("bio", "chem", "cyber")
        },
    )
    truth = [
        {
            "type": "A", "category": "c", "question": f"q{i}?", "best_answer": "yes",
            "correct_answers": ["yes it is"], "incorrect_answers": ["no"], "source": "s",
        }
        for i in range(4)
    ]  # fmt: skip
    _write(folder / "truthfulqa/truthful_qa", {"generation": {"validation": truth}})
    musr = [
        {
            "narrative": "n", "question": f"q{i}", "choices": "['a', 'b', 'c']",
            "answer_index": i % 3, "answer_choice": "abc"[i % 3],
        }
        for i in range(5)
    ]  # fmt: skip
    _write(folder / "TAUR-Lab/MuSR", {"default": {"team_allocation": musr}})
    pro = [
        {
            "question_id": i, "question": f"q{i}", "options": list("abcdefghij"),
            "answer": "ABCDEFGHIJ"[i], "answer_index": i, "cot_content": "A: x",
            "category": "math", "src": "s",
        }
        for i in range(6)
    ]  # fmt: skip
    _write(folder / "TIGER-Lab/MMLU-Pro", {"default": {"test": pro, "validation": pro[:5]}})


def _write(folder: Path, configurations: Mapping[str, Splits]) -> None:
    folder.mkdir(parents=True)
    listed = []
    for name, splits in configurations.items():
        files = []
        for split, rows in splits.items():
            file = f"{name}-{split}.jsonl"
            (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
            files.append({"split": split, "path": file})
        listed.append({"config_name": name, "data_files": files})
    head = json.dumps({"configs": listed})
    (folder / "README.md").write_text(f"---\n{head}\n---\n")
