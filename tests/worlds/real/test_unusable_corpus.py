"""How often the rules are wrong on published prompts, and how many published answers they find.

The prompts of three benchmarks are ordinary prompts: each should pass as a rewrite of another. The
answers of four models to them are what a creator writes that answers instead of rewriting. The
rules were written with these very prompts in view, so the figures flatter them; they are bounds
that must not get worse.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.worlds.real.creator import OWN_TEMPLATES, PROMPT, read_templates
from harness.worlds.real.prompts import read_questions
from harness.worlds.real.unusable import LIMITS, Limits, why_unusable

ANY_LENGTH = Limits(times=1e9, share=0.0, fewest=0)

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
    files = (
        "alpaca_eval/reference_gpt4_1106_preview_outputs.json",
        "arena_hard/question.jsonl",
        "mt_bench/question.jsonl",
    )
    found = [text for file in files for text in read_questions(benchmarks / file)]
    assert len(found) == 805 + 500 + 160
    return found


def records(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    lines = [text] if text.startswith("[") else text.splitlines()
    found = [json.loads(line) for line in lines]
    return found[0] if isinstance(found[0], list) else found


@pytest.fixture(scope="module")
def answers(benchmarks: Path) -> dict[str, list[tuple[str, str]]]:
    """Each model's answers, as (prompt, answer)."""
    alpaca, arena, mt = (benchmarks / name for name in ("alpaca_eval", "arena_hard", "mt_bench"))
    asked = {r["uid"]: r["prompt"] for r in records(arena / "question.jsonl")}
    turns = {r["question_id"]: r["turns"][0] for r in records(mt / "question.jsonl")}
    found = {
        name: [(r["instruction"], r["output"]) for r in records(alpaca / file)]
        for name, file in (
            ("gpt-4-1106-preview", "reference_gpt4_1106_preview_outputs.json"),
            ("gemma-7b-it", "gemma-7b-it/model_outputs.json"),
        )
    }
    found["gpt-4-0314"] = [
        (asked[r["uid"]], _said(r["messages"][-1]["content"]))
        for r in records(arena / "answer_gpt-4-0314.jsonl")
    ]
    found["gemma-2-9b-it"] = [
        (turns[r["question_id"]], _said(r["choices"][0]["turns"][0]))
        for r in records(mt / "answer_gemma-2-9b-it-sppo-iter-1.jsonl")
    ]
    return found


def _said(content: Any) -> str:
    return str(content["answer"] if isinstance(content, dict) else content)


def test_ordinary_prompts_pass_whatever_they_are_made_from(prompts: list[str]) -> None:
    """Of 1,465 prompts 13 are rejected with a random parent.

    11 as answers, for they paste a text or tell a situation and leave the request unsaid; one as a
    leftover, which holds `{prompt}` in its code; and one that MT-Bench asks twice. Nothing is taken
    for a refusal or another language.
    """
    parents = prompts[:]
    random.Random(0).shuffle(parents)
    reasons = Counter(
        why_unusable(text, parent, TOLD, ANY_LENGTH)
        for text, parent in zip(prompts, parents, strict=True)
    )
    assert reasons[None] >= 0.985 * len(prompts)
    assert reasons["answer"] <= 0.01 * len(prompts)
    assert reasons["refusal"] == reasons["language"] == reasons["empty"] == 0
    assert reasons["leftover"] <= 1


def test_prompts_made_from_prompts_of_their_length_pass(prompts: list[str]) -> None:
    """With the limits on length: each prompt, made from the next shorter one."""
    by_length = sorted(prompts, key=len)
    pairs = zip(by_length[1:], by_length, strict=False)
    reasons = Counter(why_unusable(text, parent, TOLD) for text, parent in pairs)
    assert reasons["too long"] == reasons["too short"] == 0
    assert reasons[None] >= 0.985 * len(prompts)


@pytest.fixture(scope="module")
def verdicts(answers: dict[str, list[tuple[str, str]]]) -> dict[str, list[tuple[str, str | None]]]:
    """What the rules say of each model's answers whatever their length, as (answer, reason)."""
    return {
        model: [
            (answer, why_unusable(answer, prompt, TOLD, ANY_LENGTH)) for prompt, answer in given
        ]
        for model, given in answers.items()
    }


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("gpt-4-1106-preview", 0.75),
        ("gemma-7b-it", 0.70),
        ("gpt-4-0314", 0.68),
        ("gemma-2-9b-it", 0.58),
    ],
)
def test_most_answers_are_no_rewrites(
    answers: dict[str, list[tuple[str, str]]],
    verdicts: dict[str, list[tuple[str, str | None]]],
    model: str,
    least: float,
) -> None:
    """Measured: 78%, 72%, 70% and 60% are rejected; of these 42% to 79% are too long."""
    found = sum(
        reason is not None or len(answer) > LIMITS.times * len(prompt) + LIMITS.more
        for (prompt, answer), (_, reason) in zip(answers[model], verdicts[model], strict=True)
    )
    assert found >= least * len(answers[model])


def test_half_of_all_answers_are_found_whatever_their_length(
    verdicts: dict[str, list[tuple[str, str | None]]],
) -> None:
    reasons = [reason for given in verdicts.values() for _, reason in given]
    assert len(reasons) == 805 + 805 + 500 + 80
    assert reasons.count(None) <= 0.5 * len(reasons)


def test_refusals_among_answers_are_refusals(
    verdicts: dict[str, list[tuple[str, str | None]]],
) -> None:
    """Every one that is found names the model or its inability in its first words."""
    told = [a for given in verdicts.values() for a, reason in given if reason == "refusal"]
    assert len(told) >= 20
    heads = [answer[:60].casefold() for answer in told]
    signs = ("sorry", "language model", "as an ai", "artificial intelligence")
    assert all(any(sign in head for sign in signs) for head in heads)
