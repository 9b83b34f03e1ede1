"""The numbers of judgments that others published: verdicts, ratings, preferences and lengths.

No text of theirs is here. Questions stand under their numbers, an output as so many `x`, so that
the records have the form of the published files and give the published scores. The files are made
from the published ones, whose digests stand in `README.md`, by

    python tests/published/judgments.py FOLDER
"""

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BASELINE = "gpt-4-0314"

Records = list[dict[str, Any]]


def alpaca_eval(model: str) -> Records:
    """Return a model's 805 annotations; its outputs are only as long as they were."""
    return [
        {
            "instruction": f"instruction {row['item']}",
            "generator_1": "gpt4_1106_preview",
            "generator_2": model,
            "output_1": "x" * int(row["length_1"]),
            "output_2": "x" * int(row["length_2"]),
            "annotator": "weighted_alpaca_eval_gpt4_turbo",
            "preference": float(row["preference"]),
        }
        for row in _read("alpaca_eval")
        if row["model"] == model
    ]


def arena_hard() -> Records:
    """Return the battles of three models with the baseline, a strong verdict three times."""
    return [
        {
            "question_id": row["question"],
            "model_a": BASELINE,
            "model_b": row["model"],
            "winner": row["winner"],
        }
        for row in _read("arena_hard")
        for _ in range(int(row["times"]))
    ]


def mt_bench(model: str) -> Records:
    """Return the ratings of a model's 160 turns, with each question's category."""
    return [
        {
            "question_id": int(row["question"]),
            "category": row["category"],
            "model": model,
            "turn": int(row["turn"]),
            "score": float(row["rating"]),
        }
        for row in _read("mt_bench")
        if row["model"] == model
    ]


def _read(name: str) -> list[dict[str, str]]:
    with (HERE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _write(name: str, columns: str, rows: Iterable[Iterable[object]]) -> None:
    with (HERE / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns.split(), *rows])


def _lines(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def make(folder: Path) -> None:
    """Write the three files from a folder of the published ones."""
    annotations = sorted((folder / "alpaca_eval").glob("*/annotations.json"))
    _write(
        "alpaca_eval",
        "model item preference length_1 length_2",
        (
            (path.parent.name, i, it["preference"], len(it["output_1"]), len(it["output_2"]))
            for path in annotations
            for i, it in enumerate(json.loads(path.read_text("utf-8")))
        ),
    )
    battles = _lines(folder / "arena_hard" / "battles_gpt-4o-mini.jsonl")
    numbers = {name: i for i, name in enumerate(dict.fromkeys(b["question_id"] for b in battles))}
    counted = Counter((b["model_b"], numbers[b["question_id"]], b["winner"]) for b in battles)
    _write("arena_hard", "model question winner times", ((*key, n) for key, n in counted.items()))
    questions = _lines(folder / "mt_bench" / "question.jsonl")
    categories = {question["question_id"]: question["category"] for question in questions}
    judged = sorted((folder / "mt_bench").glob("judgment_*_single.jsonl"))
    _write(
        "mt_bench",
        "model question category turn rating",
        (
            (it["model"], it["question_id"], categories[it["question_id"]], it["turn"], it["score"])
            for path in judged
            for it in _lines(path)
        ),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
