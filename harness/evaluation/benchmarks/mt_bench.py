"""MT-Bench: two turns of each answer, rated from 1 to 10 by a judge that sees one answer.

The second turn is judged with the first before it; math, reasoning and coding against a reference
answer. The score is the mean of the valid ratings over both turns. A reply without a rating from 1
to 10 (-1 in published files) is counted and left out, never a zero; with one missing the average is
therefore not the mean of the two turns' means, exactly as in the benchmark's own code. That code
takes a rating of any size.

Source: FastChat, `fastchat/llm_judge/gen_judgment.py` (requests), `common.py` (which prompt for
which question, reference categories, temperatures, limits, rating patterns), `show_result.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.endpoint.request import ChatRequest, Message
from harness.errors import UserError
from harness.evaluation import files
from harness.evaluation.benchmark import (
    Benchmark,
    Better,
    Item,
    Questions,
    Records,
    Replied,
)
from harness.evaluation.scores import Evaluation, FloatArray, prompt_order, ratio_values
from harness.runtime.stage import Json

if TYPE_CHECKING:
    from harness.endpoint.client import ServedModel

REFERENCE_CATEGORIES = frozenset({"math", "reasoning", "coding"})
TEMPERATURES = {
    "writing": 0.7,
    "roleplay": 0.7,
    "extraction": 0.0,
    "math": 0.0,
    "coding": 0.0,
    "reasoning": 0.0,
    "stem": 0.1,
    "humanities": 0.1,
}
OTHER_TEMPERATURE = 0.7
ANSWER_TOKENS = 1024
JUDGE_SETTINGS = {"temperature": 0, "max_tokens": 2048}

PROMPTS = {
    (1, False): "single-v1",
    (1, True): "single-math-v1",
    (2, False): "single-v1-multi-turn",
    (2, True): "single-math-v1-multi-turn",
}
"""Name of the judge's prompt by turn and whether there is a reference."""

UNRATED = -1
SCALE = (1.0, 10.0)
TURNS = (1, 2)

_RATING = re.compile(r"\[\[(\d+(?:\.\d*)?)\]\]")
_RATING_FALLBACK = re.compile(r"\[(\d+(?:\.\d*)?)\]")
_FASTCHAT = (
    "https://raw.githubusercontent.com/lm-sys/FastChat/"
    "587d5cfa1609a43d192cedb8441cac3c17db105d/fastchat/llm_judge/data"
)


@dataclass(frozen=True)
class Inputs:
    """The benchmark's files: questions, references by question id, judge prompts by name."""

    questions: tuple[files.Question, ...]
    references: Mapping[str, files.Answer]
    prompts: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Rating:
    """A judge's rating of one turn of one answer; None where its reply holds none."""

    prompt_id: str
    turn: int
    rating: float | None


class MtBench(Benchmark):
    """MT-Bench: rate two turns of answers to 80 questions, or score a file of ratings."""

    name = "mt_bench"
    own_judge = "gpt-4"
    columns: ClassVar[Mapping[str, str]] = {
        "average": "mt_avg",
        "turn_1": "mt_t1",
        "turn_2": "mt_t2",
    }
    turns = verdicts = len(TURNS)
    reply_tokens = 200  # about what gpt-4's replies have
    homes = (
        files.HomeFile(
            "question.jsonl",
            f"{_FASTCHAT}/mt_bench/question.jsonl",
            "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
        ),
        files.HomeFile(
            "reference_answer_gpt-4.jsonl",
            f"{_FASTCHAT}/mt_bench/reference_answer/gpt-4.jsonl",
            "f957a5bc977badb66885ec970e6cd08527845780313f0995764260e5777b9b3f",
        ),
        files.HomeFile(
            "judge_prompts.jsonl",
            f"{_FASTCHAT}/judge_prompts.jsonl",
            "fd283293406d024f44c174b094ef48031d0687a4682fd3a56b29b138f80281b6",
        ),
    )
    inputs: Inputs

    @classmethod
    def read_files(cls, data: Path) -> Inputs:
        questions = cls.read_questions(data)
        path = files.locate(data, "reference_answer_gpt-4.jsonl", "MT-Bench's references")
        references = files.read_answers(path).by_prompt
        path = files.locate(data, "judge_prompts.jsonl", "MT-Bench's judge prompts")
        prompts = {
            str(r.get("name")): (str(r.get("system_prompt")), str(r.get("prompt_template")))
            for r in files.read_records(path)
        }
        absent = [name for name in PROMPTS.values() if name not in prompts]
        if absent:
            raise UserError(f"{path} has no prompt {absent[0]}; use the benchmark's own file")
        guided = [q for q in questions if q.category in REFERENCE_CATEGORIES]
        files.Answers("the reference", references).to(guided)
        return Inputs(questions, references, prompts)

    def sampling(self, question: files.Question) -> dict[str, Json]:
        temperature = TEMPERATURES.get(question.category, OTHER_TEMPERATURE)
        return {"temperature": temperature, "max_tokens": ANSWER_TOKENS}

    def requests(self, answers: files.Answers, judge: ServedModel) -> list[Item]:
        found = []
        own = answers.to(self.questions)
        for question, answer in zip(self.questions, own, strict=True):
            reference = None
            if question.category in REFERENCE_CATEGORIES:
                reference = self.inputs.references[question.prompt_id]
            for turn in TURNS:
                name = PROMPTS[turn, reference is not None]
                system, template = self.inputs.prompts[name]
                user = files.fill(template, _fields(question, answer, reference, turn))
                request = ChatRequest(
                    label=f"question {question.prompt_id}, turn {turn}",
                    model=judge.model,
                    messages=(Message("system", system), Message("user", user)),
                    settings=JUDGE_SETTINGS,
                )
                found.append(Item(question.prompt_id, turn, request, shown=name))
        return found

    def records(
        self, answers: files.Answers, judge: ServedModel, replied: Replied
    ) -> list[dict[str, Any]]:
        records = []
        for item, outcome in replied:
            reply = "" if outcome.result is None else outcome.result[0].text
            rating = parse_rating(reply)
            record = {
                "question_id": item.prompt_id,
                "model": answers.model,
                "judge": [judge.model, item.shown],
                "user_prompt": item.request.messages[-1].content,
                "judgment": reply,
                "score": UNRATED if rating is None else rating,
                "turn": item.number,
            }
            records.append(record | ({"error": outcome.failure} if outcome.failure else {}))
        return records

    def comparison_records(
        self, answers: files.Answers, judge: str, better: Better
    ) -> list[dict[str, Any]]:
        """Return 10 for a turn that is better than the anchor's, 1 for a worse one, 5.5 else."""
        low, high = SCALE
        return [
            {
                "question_id": prompt_id,
                "model": answers.model,
                "judge": [judge, "comparison"],
                "judgment": "",
                "score": UNRATED if share is None else low + (high - low) * share,
                "turn": turn,
            }
            for (prompt_id, turn), share in better.items()
        ]

    @classmethod
    def scored(
        cls, records: Records, model: str, questions: Questions, data: Path | None
    ) -> Evaluation:
        ratings = ratings_from_judgments(records)
        if questions is None:
            return score_ratings(ratings, model)
        categories = {question.prompt_id: question.category for question in questions}
        return score_ratings(ratings, model, list(categories), categories)


def _fields(
    question: files.Question, answer: files.Answer, reference: files.Answer | None, turn: int
) -> dict[str, str]:
    said = {} if reference is None else {"ref_answer": reference.turns}
    if turn == 1:
        fields = {"question": question.turns[0], "answer": answer.turns[0]}
    else:
        fields, said = {}, {**said, "question": question.turns, "answer": answer.turns}
    return fields | {
        f"{name}_{i}": text for name, texts in said.items() for i, text in enumerate(texts, 1)
    }


def ratings_from_judgments(records: Records) -> list[Rating]:
    """Read the ratings in judgments of the benchmark's form.

    The rating is the file's `score`, -1 where there is none, and none where it is not on the scale;
    a judgment without that field has its text parsed.
    """
    ratings = []
    for index, record in enumerate(records):
        if "score" in record:
            rating = _on_scale(files.number_of(record["score"], index, "score"))
        else:
            rating = parse_rating(str(files.field_of(record, index, "judgment")))
        turn = files.field_of(record, index, "turn")
        if turn not in TURNS:
            raise UserError(f"Judgment {index + 1} has the turn {turn!r}; it must be 1 or 2.")
        prompt_id = str(files.field_of(record, index, "question_id"))
        ratings.append(Rating(prompt_id, int(turn), rating))
    return ratings


def parse_rating(text: str) -> float | None:
    """Read the first `[[rating]]` of a judge's text, else the first `[rating]`, else None.

    A number that is not on the scale is no rating.
    """
    match = _RATING.search(text) or _RATING_FALLBACK.search(text)
    return _on_scale(float(match.group(1))) if match else None


def _on_scale(rating: float | None) -> float | None:
    return rating if rating is not None and SCALE[0] <= rating <= SCALE[1] else None


def score_ratings(
    ratings: Iterable[Rating],
    model: str,
    prompts: Sequence[str] | None = None,
    categories: Mapping[str, str] | None = None,
) -> Evaluation:
    """Score one model's ratings.

    Several ratings of one turn all count, as in the benchmark. Where categories are given by
    prompt id, `per_category` holds their means over both turns.

    Returns:
        Columns `average`, `turn_1`, `turn_2`, on the judge's scale of 1 to 10. A turn without any
        valid rating has no score. A turn of a prompt that was never judged counts as missing.
    """
    ratings = list(ratings)
    order = prompt_order([rating.prompt_id for rating in ratings], prompts)
    position = {prompt: i for i, prompt in enumerate(order)}
    total, count = np.zeros((len(order), 2)), np.zeros((len(order), 2))
    for rating in ratings:
        if rating.rating is not None:
            total[position[rating.prompt_id], rating.turn - 1] += rating.rating
            count[position[rating.prompt_id], rating.turn - 1] += 1.0
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
    return Evaluation(
        benchmark=MtBench.name,
        model=model,
        scores={c: float(values[c].mean()) if c in values else None for c in columns},
        n=int(count.any(axis=1).sum()),
        n_missing=sum(rating.rating is None for rating in ratings) + len(absent),
        prompts=order,
        values=values,
        per_category={} if categories is None else _category_means(total, count, order, categories),
        notes=notes,
    )


def _category_means(
    total: FloatArray, count: FloatArray, order: Sequence[str], categories: Mapping[str, str]
) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for category in dict.fromkeys(categories[prompt] for prompt in order):
        inside = np.array([categories[prompt] == category for prompt in order])
        weight = float(count[inside].sum())
        means[category] = float(total[inside].sum()) / weight if weight else None
    return means
