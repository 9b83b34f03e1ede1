"""The judge of the downstream questions: an answer is right if it is the one right answer.

A score is a task's accuracy in percent, so that a right answer is worth 100 and any other 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.worlds.embedded.judge import Answers, Judgment
from harness.worlds.protocol import Item

EXACT_MATCH = "exact_match"
"""The judge's name in profiles."""


def judge_downstream(items: Sequence[Item], answers: Answers) -> list[Judgment]:
    """Compare each answer with the right one, word for word.

    Returns:
        The judgments: item, task, the reply, and its value (100 or 0).
    """
    return [
        {
            "prompt_id": item.item_id,
            "category": item.category,
            "reply": answers[item.item_id, 1].text,
            "value": 100.0 if answers[item.item_id, 1].text == item.reference else 0.0,
        }
        for item in items
    ]
