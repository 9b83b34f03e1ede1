"""MT-Bench: single-answer ratings from 1 to 10 over two turns, averaged.

The score of a model is the mean of its valid ratings over both turns; the turns have their own
means, and so have the categories. A reply without a rating (-1 in the published files) is counted
and left out: it is never a zero. With one rating missing the average is therefore not the mean of
the two turns' means, exactly as in the benchmark's own code.

Source: FastChat, `fastchat/llm_judge/common.py` (rating patterns) and `show_result.py` (means).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import UserError
from harness.evaluation.scores import BenchmarkScore, FloatArray, prompt_order, ratio_values

TURNS = (1, 2)

_RATING = re.compile(r"\[\[(\d+(?:\.\d*)?)\]\]")
_RATING_FALLBACK = re.compile(r"\[(\d+(?:\.\d*)?)\]")


@dataclass(frozen=True)
class Rating:
    """A judge's rating of one turn of one answer.

    Attributes:
        prompt_id: The question.
        turn: 1 or 2.
        rating: The rating, or None where the judge's reply holds none.
    """

    prompt_id: str
    turn: int
    rating: float | None


def parse_rating(text: str) -> float | None:
    """Read the first `[[rating]]` of a judge's text, else the first `[rating]`, else None.

    A number of hundreds of digits is no rating.
    """
    match = _RATING.search(text) or _RATING_FALLBACK.search(text)
    rating = float(match.group(1)) if match else None
    return rating if rating is not None and math.isfinite(rating) else None


def score_ratings(
    ratings: Iterable[Rating],
    model: str,
    prompts: Sequence[str] | None = None,
    categories: Mapping[str, str] | None = None,
) -> BenchmarkScore:
    """Score one model's ratings.

    Args:
        ratings: Its ratings. Several of the same turn all count, as in the benchmark.
        model: The judged model's name.
        prompts: The benchmark's prompt ids; None takes those that were judged.
        categories: Prompt id to category; where given, `per_category` holds their means over
            both turns.

    Returns:
        Columns `average`, `turn_1`, `turn_2`, on the judge's scale of 1 to 10. A turn without any
        valid rating has no score. A turn of a prompt that was never judged counts as missing.

    Raises:
        UserError: A turn is not 1 or 2, or a prompt is not the benchmark's or has no category.
        HarnessError: There is no valid rating.
    """
    ratings = list(ratings)
    order = prompt_order([rating.prompt_id for rating in ratings], prompts)
    total, count, n_unrated = _sums(ratings, order)
    values: dict[str, FloatArray] = {"average": ratio_values(total.sum(axis=1), count.sum(axis=1))}
    notes = {}
    for turn in TURNS:
        if count[:, turn - 1].any():
            values[f"turn_{turn}"] = ratio_values(total[:, turn - 1], count[:, turn - 1])
        else:
            notes[f"turn_{turn}"] = "no valid rating of this turn"
    expected = {(prompt, turn) for prompt in order for turn in TURNS}
    absent = expected - {(rating.prompt_id, rating.turn) for rating in ratings}
    columns = ("average", *(f"turn_{turn}" for turn in TURNS))
    return BenchmarkScore(
        benchmark="mt-bench",
        model=model,
        scores={c: float(values[c].mean()) if c in values else None for c in columns},
        n=int(count.any(axis=1).sum()),
        n_missing=n_unrated + len(absent),
        prompts=order,
        values=values,
        per_category={} if categories is None else _category_means(total, count, order, categories),
        notes=notes,
    )


def _sums(ratings: Sequence[Rating], order: Sequence[str]) -> tuple[FloatArray, FloatArray, int]:
    """Return sums and counts of valid ratings, shape (prompts, 2), and how many are unrated."""
    position = {prompt: i for i, prompt in enumerate(order)}
    total, count = np.zeros((len(order), 2)), np.zeros((len(order), 2))
    unrated = 0
    for rating in ratings:
        if rating.turn not in TURNS:
            raise UserError(
                f"A rating of prompt {rating.prompt_id} is of turn {rating.turn}; MT-Bench has "
                "turns 1 and 2."
            )
        if rating.rating is None:
            unrated += 1
            continue
        total[position[rating.prompt_id], rating.turn - 1] += rating.rating
        count[position[rating.prompt_id], rating.turn - 1] += 1.0
    return total, count, unrated


def _category_means(
    total: FloatArray, count: FloatArray, order: Sequence[str], categories: Mapping[str, str]
) -> dict[str, float | None]:
    unknown = [prompt for prompt in order if prompt not in categories]
    if unknown:
        raise UserError(
            f"{len(unknown)} rated prompts have no category (first: {unknown[0]}); use the "
            "questions the ratings were made with."
        )
    means: dict[str, float | None] = {}
    for category in dict.fromkeys(categories[prompt] for prompt in order):
        inside = np.array([categories[prompt] == category for prompt in order])
        weight = float(count[inside].sum())
        means[category] = float(total[inside].sum()) / weight if weight else None
    return means
