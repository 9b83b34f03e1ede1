"""What a policy of the embedded world can do: by operation and by depth, from six answers each.

Measured when a world is built and written in the base policy's card, so that "competence is
uneven across skills and falls with depth" is a figure and not a hope.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.worlds.embedded.demonstrations import word
from harness.worlds.embedded.language import MAX_DEPTH, Task, draw_items
from harness.worlds.embedded.operations import NAMES
from harness.worlds.embedded.oracle import score

PROMPTS = 100
"""Prompts for each operation and for each depth."""

ANSWERS = 6
"""Answers sampled to each prompt, at temperature 1."""

Competence = dict[str, dict[str, dict[str, float]]]


def measure(policy: Path, seed: int) -> Competence:
    """Measure a policy.

    Args:
        policy: its folder.
        seed: seed of the prompts and of the answers.

    Returns:
        `operation` (single operations) and `depth` (1 to 4, operations drawn evenly), each with
        `exact` (share of answers that are wholly right), `score` (mean oracle score) and
        `best_of_6` (mean over prompts of the best score).
    """
    rng = random.Random(f"{seed}/competence")
    groups: dict[tuple[str, str], list[Task]] = {
        ("operation", name): [Task(draw_items(rng, 4, 8), (name,)) for _ in range(PROMPTS)]
        for name in NAMES
    }
    for depth in range(1, MAX_DEPTH + 1):
        groups["depth", str(depth)] = [
            Task(draw_items(rng, 4, 8), tuple(rng.choices(NAMES, k=depth))) for _ in range(PROMPTS)
        ]
    prompts = [word(task, rng) for tasks in groups.values() for task in tasks]
    scores = _oracle_scores(policy, prompts, seed).reshape(len(groups), PROMPTS, ANSWERS)
    found: Competence = {"operation": {}, "depth": {}}
    for (kind, name), block in zip(groups, scores, strict=True):
        found[kind][name] = {
            "exact": round(float((block == 1.0).mean()), 3),
            "score": round(float(block.mean()), 3),
            "best_of_6": round(float(block.max(axis=1).mean()), 3),
        }
    return found


def _oracle_scores(policy: Path, prompts: list[str], seed: int) -> NDArray[np.float64]:
    """Return the oracle scores of six answers to each prompt, shape (prompts, answers)."""
    from harness.models.policy import generate

    answers = generate(
        policy,
        [[{"role": "user", "content": prompt}] for prompt in prompts],
        n=ANSWERS,
        temperature=1.0,
        top_p=1.0,
        max_new_tokens=14,
        batch_size=256,
        seed=seed,
    )
    return np.array(
        [
            [score(prompt, answer.text) for answer in several]
            for prompt, several in zip(prompts, answers, strict=True)
        ]
    )


def as_lines(competence: Competence) -> str:
    """Return the figures as Markdown tables, for a model card."""
    lines: list[str] = []
    for kind, rows in competence.items():
        lines += [f"| {kind} | exact | score | best of 6 |", "|---|---:|---:|---:|"]
        lines += [
            f"| {name} | {row['exact']:.2f} | {row['score']:.2f} | {row['best_of_6']:.2f} |"
            for name, row in rows.items()
        ]
        lines.append("")
    return "\n".join(lines)
