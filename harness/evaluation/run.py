"""Running a benchmark with a judge: price, answers, judgments, scores.

Everything that costs money goes through the client, whose replies are kept; so the same run goes on
where it was interrupted, and done again it costs nothing and writes the same.

Each benchmark has its own sampling: MT-Bench a temperature for each category, Arena-Hard none,
AlpacaEval 0.7 with top-p 0.9. A second turn is asked with the first and its answer before it.

Source: FastChat `gen_model_answer.py`; Arena-Hard-Auto `gen_answer.py`; the paper's appendix A.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.endpoint.client import Client, Done, Estimate, estimate, work_through
from harness.endpoint.request import ChatRequest, Message
from harness.errors import HarnessError, UserError
from harness.evaluation import archive
from harness.evaluation.archive import folder_of
from harness.evaluation.benchmark import Benchmark, Judge
from harness.evaluation.files import Answer, Answers, Question, write_whole
from harness.evaluation.scores import Evaluation
from harness.runtime.stage import Json

EXPECTED_ANSWER_TOKENS = 400
"""Tokens of an answer on average, for an estimate before there are answers."""

Progress = Callable[[str, int, int], None]
"""Told what is done (`answers`, `judgments`), how many are there, and how many there will be."""

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


def estimates(
    benchmark: Benchmark, answers: Answers | None, answerer: Answerer | None, judge: Judge
) -> list[Estimate]:
    """Return what a run will ask for and what that costs; nothing is sent.

    Args:
        benchmark: The benchmark.
        answers: The model's answers, or None where `answerer` gives them.
        answerer: The model; None where the answers are there.
        judge: The judge.
    """
    found = []
    model = answers.model if answers is not None else ""
    if answers is None and answerer is not None:
        model = answerer.model
        stand_in = ["word" * EXPECTED_ANSWER_TOKENS]
        asked = [
            answerer.request(question, stand_in * turn)
            for question in benchmark.questions
            for turn in range(len(question.turns))
        ]
        found.append(estimate("answers", model, asked, answerer.client, EXPECTED_ANSWER_TOKENS))
    shown = answers or placeholders(model, benchmark.questions, EXPECTED_ANSWER_TOKENS)
    judged = [item.request for item in benchmark.requests(shown, judge)]
    found.append(estimate("judgments", judge.model, judged, judge.client, benchmark.reply_tokens))
    return found


def run(
    benchmark: Benchmark,
    answers: Answers | None,
    answerer: Answerer | None,
    judge: Judge,
    concurrency: int,
    output: Path,
    progress: Progress = lambda what, count, total: None,
) -> Evaluation:
    """Answer where needed, judge, score, and keep all of it in the evaluation's folder.

    Args:
        benchmark: The benchmark.
        answers: The model's answers, or None where `answerer` gives them.
        answerer: The model; None where the answers are there.
        judge: The judge.
        concurrency: Most requests at once.
        output: The folder of all evaluations.
        progress: Told how far it is.

    Raises:
        HarnessError: An endpoint failed or the budget is used up; the same run goes on from there.
    """
    if answers is None:
        if answerer is None:
            raise UserError("There are neither answers nor a model that gives them")
        answers = answerer.answer_all(
            benchmark.questions, concurrency, partial(progress, "answers")
        )
    judged = benchmark.judge(answers, judge, concurrency, partial(progress, "judgments"))
    folder = folder_of(
        output, benchmark.name, answers.model, benchmark.filed_judge(judge.model, judge.annotator)
    )
    written = benchmark.answer_records(answers)
    archive.write_lines(folder / archive.ANSWERS, written)
    archive.write_lines(folder / archive.JUDGMENTS, judged.records)
    asked = [judge.client] if answerer is None else [judge.client, answerer.client]
    write_whole(folder / archive.REPLIES, _addresses(asked).encode())
    source = {"kind": "judged", "data": benchmark.digest, "answers": _sha256(written)}
    archive.keep(folder, judged.evaluation, source, _cost(asked))
    return judged.evaluation


def _addresses(clients: Sequence[Client]) -> str:
    """Return where the replies behind an evaluation are kept, as JSON."""
    found = [
        {
            "endpoint": client.endpoint.address,
            "cache": str(client.cache.root),
            "addresses": list(client.receipt.addresses),
        }
        for client in clients
    ]
    return json.dumps(found, indent=1) + "\n"


def _cost(clients: Sequence[Client]) -> dict[str, float | None]:
    """Return tokens and dollars of the replies behind an evaluation, whenever they were paid."""
    receipts = [client.receipt for client in clients]
    dollars = [receipt.usd for receipt in receipts]
    return {
        "replies": sum(len(receipt.addresses) for receipt in receipts),
        "prompt_tokens": sum(receipt.prompt_tokens for receipt in receipts),
        "completion_tokens": sum(receipt.completion_tokens for receipt in receipts),
        "usd": None if None in dollars else sum(usd for usd in dollars if usd is not None),
    }


def _sha256(records: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest()
