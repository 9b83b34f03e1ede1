"""`prompts` says how large a pool is, what it repeats, and what of a benchmark is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUESTIONS = [{"turns": ["What is Atlantis?", "Who sought it?"]}, {"turns": ["Why?"]}]


def write(folder: Path, texts: list[str]) -> tuple[str, str]:
    pool, asked = folder / "pool.jsonl", folder / "question.jsonl"
    pool.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    asked.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return str(pool), str(asked)


def test_a_file_is_counted_and_compared(
    says: Callable[..., Any], call: Callable[..., Any], tmp_path: Path
) -> None:
    """Of 2,320 prompts for six pieces of 400: one is a question, one repeats its words."""
    texts = [f"What is the number {i} good for?" for i in range(2318)]
    pool, asked = write(tmp_path, [*texts, "what is atlantis", "What is ATLANTIS?!"])
    arguments = ("prompts", "--profile", "micro", "--source", pool, "--against", f"mt={asked}")
    found = says("prompts", *arguments)
    assert (found["prompts"], found["same_text"], found["same_words"]) == (2320, 0, 1)
    assert sorted(found["pieces"]) == [386] * 2 + [387] * 4
    assert found["problem"] is None
    assert found["overlap"] == {
        "mt": {
            "questions": 3, "whole": 2, "in_part": 0, "questions_met": 1, "examples": [2318, 2319]
        }
    }  # fmt: skip
    text = call(*arguments).stdout
    assert "2320 prompts" in text
    assert "6 pieces of 386 to 387 for the profile micro" in text


def test_a_pool_that_is_too_small_is_counted_all_the_same(
    says: Callable[..., Any], call: Callable[..., Any], tmp_path: Path
) -> None:
    pool, _ = write(tmp_path, ["Why?", "Why?"])
    found = says("prompts", "prompts", "--source", pool)
    assert (found["prompts"], found["same_text"], found["pieces"]) == (2, 1, [])
    assert "2 prompts are too few for 6 pieces of 10000" in found["problem"]
    assert "Not for the profile paper" in call("prompts", "--source", pool).stdout
