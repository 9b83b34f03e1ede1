"""How often the rules are wrong on published prompts: each should pass as a rewrite of another."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from harness.evaluation.files import read_records
from harness.worlds.real.creator import OWN_TEMPLATES, PROMPT, read_templates, why_unusable

TOLD = [
    message.replace(PROMPT, "\n")
    for message in read_templates(OWN_TEMPLATES)["appendix_f"].messages.values()
]


@pytest.fixture(scope="module")
def benchmarks(shared_dir: Path) -> Path:
    return shared_dir / "benchmarks"


@pytest.fixture(scope="module")
def prompts(benchmarks: Path) -> list[str]:
    """1,465 prompts, both turns of MT-Bench's among them."""
    alpaca, arena, mt_bench = (
        read_records(benchmarks / file)
        for file in (
            "alpaca_eval/reference_gpt4_1106_preview_outputs.json",
            "arena_hard/question.jsonl",
            "mt_bench/question.jsonl",
        )
    )
    found = [record["instruction"] for record in alpaca]
    found += [record["prompt"] for record in arena]
    found += [turn for record in mt_bench for turn in record["turns"]]
    assert len(found) == 805 + 500 + 160
    return found


def test_ordinary_prompts_pass_whatever_they_are_made_from(prompts: list[str]) -> None:
    """Of 1,465 prompts one, which holds `{prompt}` in its code, is a leftover with any parent."""
    parents = prompts[:]
    random.Random(0).shuffle(parents)
    pairs = zip(prompts, parents, strict=True)
    reasons = Counter(why_unusable(text, parent, TOLD) for text, parent in pairs)
    assert reasons["leftover"] <= 1
    assert reasons["empty"] == 0
    assert reasons[None] + reasons["too long"] >= 0.985 * len(prompts)


def test_prompts_made_from_prompts_of_their_length_pass(prompts: list[str]) -> None:
    """Each prompt, made from the next shorter one."""
    by_length = sorted(prompts, key=len)
    pairs = zip(by_length[1:], by_length, strict=False)
    reasons = Counter(why_unusable(text, parent, TOLD) for text, parent in pairs)
    assert reasons["too long"] == 0
    assert reasons[None] >= 0.985 * len(prompts)
