"""The embedded world's judges: oracle and exact match for answers, rules for prompts.

The oracle judge replies in a real judge's format, so the scorers that parse it cannot tell the
difference. Like real judges it slightly favors longer answers on the general benchmark, which is
what length control is meant to remove.

*Rules* compute a prompt's complexity and quality from its text alone. They stand in for the two
questions the paper asks a language model about each prompt (table 7), on the same scale of 1 to 5.
Most of the creator's methods add operations, so evolved prompts are more complex by construction.

Source: paper section 4.2.5, table 7 and appendix E.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any

from harness.evaluation.benchmarks import alpaca_eval, arena_hard, mt_bench
from harness.evaluation.files import Answer
from harness.evaluation.scores import Evaluation, Judgment
from harness.worlds import Item
from harness.worlds.embedded.language import parse, score
from harness.worlds.stage_io import Rows

JUDGE = "oracle"  # the judge's name in profiles

MODEL = "model"

TIE_WITHIN = 0.1  # largest difference in oracle score that counts as a tie
STRONG_BEYOND = 0.5  # difference in oracle score beyond which the verdict is strong
STEEPNESS = 6.0  # preference log-odds per unit of oracle score
LENGTH_TASTE = 0.4  # log-odds added for a much longer answer
LENGTH_SCALE = 2.0  # scale of the length bonus, in items


Answers = Mapping[str, Answer]
"""Answers by item id."""


def verdict(first: float, second: float) -> str:
    """Return the verdict on the oracle scores of answers A and B."""
    difference = first - second
    if abs(difference) <= TIE_WITHIN:
        label = "A=B"
    elif difference > 0:
        label = "A>>B" if difference > STRONG_BEYOND else "A>B"
    else:
        label = "B>>A" if -difference > STRONG_BEYOND else "B>A"
    return f"My final verdict is: [[{label}]]"


def preference(model: float, reference: float, length_difference: int) -> float:
    """Return a preference from 1 (reference) to 2 (model)."""
    taste = LENGTH_TASTE * math.tanh(length_difference / LENGTH_SCALE)
    return 1.0 + 1.0 / (1.0 + math.exp(-STEEPNESS * (model - reference) - taste))


def rating(value: float) -> str:
    """Return the rating for an oracle score, an integer from 1 to 10."""
    return f"Rating: [[{1 + round(9 * value)}]]"


Judged = tuple[Rows, Evaluation]


def judge_arena_hard(items: Sequence[Item], answers: Answers) -> Judged:
    judgments, games = [], []
    for item in items:
        ours = score(item.turn_1, answers[item.item_id].turns[0])
        theirs = score(item.turn_1, item.reference or "")
        texts = verdict(theirs, ours), verdict(ours, theirs)
        for number, text in enumerate(texts, start=1):
            label = arena_hard.label_in(text)
            games.append(arena_hard.game(item.item_id, number, label))
            judgments.append(_judgment(item, number, text, ours))
    ids = [item.item_id for item in items]
    found = arena_hard.score_games(games, MODEL, ids)
    return judgments, found.with_column("answer_tokens", [answers[key].tokens or 0 for key in ids])


def judge_alpaca_eval(items: Sequence[Item], answers: Answers) -> Judged:
    """Judge a general pairwise benchmark, with and without length control."""
    judgments, preferences, lengths = [], [], {}
    for item in items:
        answer, reference = answers[item.item_id].turns[0], item.reference or ""
        ours, theirs = score(item.turn_1, answer), score(item.turn_1, reference)
        longer = len(answer.split()) - len(reference.split())
        value = preference(ours, theirs, longer)
        preferences.append(alpaca_eval.preference(item.item_id, value))
        lengths[item.item_id] = float(longer)
        judgments.append(_judgment(item, 1, repr(value), ours))
    return judgments, alpaca_eval.score_preferences(preferences, MODEL, lengths)


def judge_mt_bench(items: Sequence[Item], answers: Answers) -> Judged:
    """Judge a two-turn benchmark; the second turn is scored given the model's first answer."""
    judgments, ratings = [], []
    for item in items:
        first, second = answers[item.item_id].turns
        marks = (score(item.turn_1, first), score(item.turn_2 or "", second, previous=first))
        for turn, mark in enumerate(marks, start=1):
            text = rating(mark)
            ratings.append(Judgment(item.item_id, mt_bench.parse_rating(text), turn))
            judgments.append(_judgment(item, turn, text, mark))
    return judgments, mt_bench.score_ratings(ratings, MODEL, [item.item_id for item in items])


def _judgment(item: Item, number: int, reply: str, oracle: float) -> dict[str, Any]:
    return {
        "prompt_id": item.item_id,
        "category": item.category,
        "number": number,
        "reply": reply,
        "oracle": oracle,
    }


JUDGES = {
    "arena_hard": judge_arena_hard,
    "alpaca_eval": judge_alpaca_eval,
    "mt_bench": judge_mt_bench,
    "validation": judge_arena_hard,
}

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "arena_hard": arena_hard.ArenaHard.columns,
    "alpaca_eval": alpaca_eval.AlpacaEval.columns,
    "mt_bench": mt_bench.MtBench.columns,
    "validation": {"win_rate": "val_wr", "answer_tokens": "val_len"},
}
"""The registry column for each benchmark's scores."""


ORACLE_COLUMNS: Mapping[str, Mapping[str, Callable[[float], float]]] = {
    "arena_hard": {"ah_exact": lambda mark: 100.0 * (mark == 1.0)},
    "validation": {"val_score": float, "val_exact": lambda mark: float(mark == 1.0)},
}
"""Columns computed from the oracle's scores, by benchmark: whether an answer is exactly correct,
and on the validation set, used for tuning, the score itself."""


EXACT_MATCH = "exact_match"  # the judge's name in profiles


def score_downstream(items: Sequence[Item], answers: Answers) -> tuple[Rows, Rows, dict[str, Any]]:
    """Score each answer by exact match: judgments, values (100 or 0), and the summary."""
    judgments: Rows = [
        {
            "prompt_id": item.item_id,
            "category": item.category,
            "reply": answers[item.item_id].turns[0],
            "value": 100.0 * (answers[item.item_id].turns[0] == item.reference),
        }
        for item in items
    ]
    scores = [
        {"prompt_id": j["prompt_id"], "column": j["category"], "value": j["value"]}
        for j in judgments
    ]
    tasks = dict.fromkeys(item.category for item in items)
    means = {t: fmean(j["value"] for j in scores if j["column"] == t) for t in tasks}
    return judgments, scores, {"scores": means, "n": len(scores), "n_missing": 0}


def score_by_oracle(
    name: str, items: Sequence[Item], answers: Answers
) -> tuple[Rows, Rows, dict[str, Any]]:
    """Judge a benchmark by name; return the judgments, the values by column, and the summary."""
    judgments, found = JUDGES[name](items, answers)
    columns = COLUMNS[name]
    scores = found.rows(columns)
    marks = {judgment["prompt_id"]: judgment["oracle"] for judgment in judgments}
    for column, told in ORACLE_COLUMNS.get(name, {}).items():
        scores += [
            {"prompt_id": key, "column": column, "value": told(mark)} for key, mark in marks.items()
        ]
    return judgments, scores, found.by_column(columns)


RULES = "rules"  # the judge's name in profiles
LONG_LIST = 6  # list length from which a task counts as more complex


def complexity(prompt: str) -> float:
    """Return a prompt's complexity, from 1 to 5; 1 if it cannot be parsed."""
    task = parse(prompt)
    if task is None:
        return 1.0
    return float(min(5, len(task.operations) + (len(task.items or ()) >= LONG_LIST)))


def quality(prompt: str) -> float:
    """Return a prompt's quality as a question, from 1 to 5; 1 if it cannot be parsed."""
    task = parse(prompt)
    if task is None or task.items is None:
        return 1.0
    steps = list(accumulate(task.operations, lambda s, o: o.apply(s), initial=task.items))
    return 2.0 + sum(
        (
            all(before != after for before, after in pairwise(steps)),
            all(first is not second for first, second in pairwise(task.operations)),
            bool(steps[-1]) and steps[-1] != task.items,
        )
    )


SCORERS: Mapping[str, Callable[[str], float]] = {"complexity": complexity, "quality": quality}
"""The scorer for each column of the catalog."""
