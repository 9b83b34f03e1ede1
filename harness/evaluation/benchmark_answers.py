"""A model's answers, asked for at an endpoint, and kept in the benchmarks' own form.

Each benchmark has its own sampling: MT-Bench a temperature for each category, Arena-Hard none,
AlpacaEval 0.7 with top-p 0.9. A second turn is asked with the first and its answer before it.

Source: FastChat `gen_model_answer.py`; Arena-Hard-Auto `gen_answer.py`; the paper's appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.endpoint.client import Client, Done, work_through
from harness.endpoint.request import ChatRequest, Message
from harness.errors import HarnessError
from harness.evaluation.benchmark_files import Answer, Answers, Question
from harness.runtime.stage import Json

Sampling = Callable[[Question], dict[str, Json]]
"""Returns the settings at which a question is answered: temperature, top_p, max_tokens."""


@dataclass(frozen=True)
class Answerer:
    """A model behind an endpoint, and how it samples."""

    client: Client
    model: str
    sampling: Sampling

    def request(self, question: Question, said: Sequence[str]) -> ChatRequest:
        """Return the request for the next turn, after the answers to the turns before it."""
        messages = []
        for user, assistant in zip(question.turns, said, strict=False):
            messages += [Message("user", user), Message("assistant", assistant)]
        messages.append(Message("user", question.turns[len(said)]))
        return ChatRequest(
            label=f"question {question.prompt_id}, turn {len(said) + 1}",
            model=self.model,
            messages=tuple(messages),
            settings=self.sampling(question),
        )

    def answer(self, question: Question) -> Answer:
        """Answer all turns of a question, one after the other."""
        said: list[str] = []
        for _ in question.turns:
            said.append(self.client.ask(self.request(question, said)).text)
        return Answer(tuple(said))

    def answer_all(
        self,
        questions: Sequence[Question],
        concurrency: int,
        done: Done = lambda count, total: None,
    ) -> Answers:
        """Answer all questions, so many at once.

        Raises:
            HarnessError: A question has no answer: the endpoint failed or refused it.
        """
        outcomes = work_through(questions, self.answer, self.client, concurrency, done)
        refused = [o.failure for o in outcomes if o.result is None]
        if refused:
            raise HarnessError(
                f"{len(refused)} of {len(questions)} questions were refused (first: {refused[0]}); "
                "give the model a longer context, or its answers with --answers"
            )
        answers = {q.prompt_id: o.result for q, o in zip(questions, outcomes, strict=True)}
        return Answers(self.model, {p: a for p, a in answers.items() if a is not None})


def placeholders(model: str, questions: Sequence[Question], tokens: int) -> Answers:
    """Return answers of a given length to all questions, for an estimate before there are any."""
    text = "word" * tokens
    return Answers(model, {q.prompt_id: Answer((text,) * len(q.turns)) for q in questions})


def mt_bench_records(answers: Answers) -> list[dict[str, Any]]:
    """Return answers in MT-Bench's form."""
    return [
        {
            "question_id": prompt_id,
            "model_id": answers.model,
            "choices": [{"index": 0, "turns": list(answer.turns)}],
        }
        for prompt_id, answer in answers.by_prompt.items()
    ]


def arena_hard_records(answers: Answers) -> list[dict[str, Any]]:
    """Return answers in Arena-Hard v0.1's form."""
    return [
        {
            "question_id": prompt_id,
            "model_id": answers.model,
            "choices": [{"index": 0, "turns": [{"content": text} for text in answer.turns]}],
        }
        for prompt_id, answer in answers.by_prompt.items()
    ]


def alpaca_eval_records(answers: Answers, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Return answers in AlpacaEval's form."""
    return [
        {
            "instruction": question.turns[0],
            "output": answer.turns[0],
            "generator": answers.model,
        }
        for question, answer in zip(questions, answers.to(questions), strict=True)
    ]
