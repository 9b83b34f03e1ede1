"""MT-Bench as it is run: two turns, each rated by a judge that sees one answer.

The first turn is judged alone; the second with the first before it. Questions of math, reasoning
and coding are judged against a reference answer. The judge's prompts, the questions and the
references are the benchmark's own files.

Source: FastChat, `fastchat/llm_judge/gen_judgment.py`, `common.py` (which prompt for which
question, reference categories, temperatures, limits).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.endpoint.client import Client, Outcome
from harness.endpoint.request import ChatRequest, Message
from harness.errors import UserError
from harness.evaluation.benchmark_files import (
    Answer,
    Answers,
    Question,
    fill,
    locate,
    read_answers,
    read_questions,
)
from harness.evaluation.mt_bench import TURNS, parse_rating
from harness.evaluation.published import read_records

BENCHMARK = "mt-bench"
OWN_JUDGE = "gpt-4"
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
EXPECTED_REPLY_TOKENS = 200
"""Tokens of a judge's reply on average, for the estimate: gpt-4's are about that long."""

PROMPTS = {
    (1, False): "single-v1",
    (1, True): "single-math-v1",
    (2, False): "single-v1-multi-turn",
    (2, True): "single-math-v1-multi-turn",
}
"""Name of the judge's prompt by turn and whether there is a reference."""

UNRATED = -1


@dataclass(frozen=True)
class Inputs:
    """The benchmark's files: questions, references by question id, judge prompts by name."""

    questions: tuple[Question, ...]
    references: Mapping[str, Answer]
    prompts: Mapping[str, tuple[str, str]]

    @property
    def categories(self) -> dict[str, str]:
        """Category by question id."""
        return {question.prompt_id: question.category for question in self.questions}


@dataclass(frozen=True)
class Judging:
    """One turn of one answer, and the request that judges it."""

    prompt_id: str
    turn: int
    prompt_name: str
    request: ChatRequest


_FOLDERS = ("", "mt_bench/", "data/mt_bench/")


def questions_in(data: Path) -> tuple[Question, ...]:
    """Read the questions from a folder of the benchmark's files.

    Raises:
        UserError: They are not there or have another form.
    """
    names = [f"{folder}question.jsonl" for folder in _FOLDERS]
    return read_questions(locate(data, "MT-Bench's questions", names), len(TURNS))


def read_inputs(data: Path) -> Inputs:
    """Read the benchmark's files from a folder.

    Raises:
        UserError: A file is absent or has another form, or a question lacks its reference.
    """
    questions = questions_in(data)
    names = ("reference_answer_gpt-4.jsonl", "reference_answer/gpt-4.jsonl")
    references = read_answers(
        locate(data, "MT-Bench's references", [f + name for f in _FOLDERS for name in names])
    ).by_prompt
    path = locate(
        data,
        "MT-Bench's judge prompts",
        [
            *(f"{f}judge_prompts.jsonl" for f in _FOLDERS),
            "data/judge_prompts.jsonl",
            "../judge_prompts.jsonl",
        ],
    )
    prompts = {
        str(r.get("name")): (str(r.get("system_prompt")), str(r.get("prompt_template")))
        for r in read_records(path)
    }
    absent = [name for name in PROMPTS.values() if name not in prompts]
    if absent:
        raise UserError(f"{path} has no prompt {absent[0]}; use the benchmark's own file")
    guided = [q for q in questions if q.category in REFERENCE_CATEGORIES]
    Answers("the reference", references).to(guided)
    return Inputs(questions, references, prompts)


def temperature(category: str) -> float:
    """Return the temperature at which questions of a category are answered."""
    return TEMPERATURES.get(category, OTHER_TEMPERATURE)


def requests(inputs: Inputs, answers: Answers, judge: str) -> list[Judging]:
    """Return the requests that judge a model's answers, a question's two turns together.

    Raises:
        UserError: A question has no answer.
    """
    found = []
    for question, answer in zip(inputs.questions, answers.to(inputs.questions), strict=True):
        reference = None
        if question.category in REFERENCE_CATEGORIES:
            reference = inputs.references[question.prompt_id]
        for turn in TURNS:
            name = PROMPTS[turn, reference is not None]
            system, template = inputs.prompts[name]
            user = fill(template, _fields(question, answer, reference, turn))
            request = ChatRequest(
                label=f"question {question.prompt_id}, turn {turn}",
                model=judge,
                messages=(Message("system", system), Message("user", user)),
                settings=JUDGE_SETTINGS,
            )
            found.append(Judging(question.prompt_id, turn, name, request))
    return found


def judge_text(client: Client, item: Judging) -> str:
    """Return the judge's reply to one item."""
    return client.ask(item.request).text


def judgments(
    items: Sequence[Judging], outcomes: Sequence[Outcome[str]], model: str, judge: str
) -> list[dict[str, Any]]:
    """Return judgments in the benchmark's own form; one without a rating has the score -1."""
    records = []
    for item, outcome in zip(items, outcomes, strict=True):
        rating = parse_rating(outcome.result or "")
        record = {
            "question_id": item.prompt_id,
            "model": model,
            "judge": [judge, item.prompt_name],
            "user_prompt": item.request.messages[-1].content,
            "judgment": outcome.result or "",
            "score": UNRATED if rating is None else rating,
            "turn": item.turn,
        }
        records.append(record if outcome.failure is None else {**record, "error": outcome.failure})
    return records


def _fields(
    question: Question, answer: Answer, reference: Answer | None, turn: int
) -> dict[str, str]:
    fields = {}
    if reference is not None:
        fields = {f"ref_answer_{i}": text for i, text in enumerate(reference.turns, start=1)}
    if turn == 1:
        return {"question": question.turns[0], "answer": answer.turns[0], **fields}
    fields |= {f"question_{i}": text for i, text in enumerate(question.turns, start=1)}
    return fields | {f"answer_{i}": text for i, text in enumerate(answer.turns, start=1)}
