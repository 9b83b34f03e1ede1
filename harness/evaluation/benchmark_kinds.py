"""The three benchmarks in one form: their questions, their requests to a judge, their scores.

A benchmark is a set of functions on its own files (`benchmark_mt_bench`, `benchmark_arena_hard`,
`benchmark_alpaca_eval`). Judgments are written in the benchmark's own form and scored by the same
readers and scorers as published ones, so that a run and its file always say the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.endpoint.client import Client, Done, Outcome, work_through
from harness.endpoint.request import ChatRequest
from harness.errors import UserError
from harness.evaluation import (
    benchmark_alpaca_eval,
    benchmark_alpaca_judge,
    benchmark_answers,
    benchmark_arena_hard,
    benchmark_mt_bench,
)
from harness.evaluation.benchmark_files import Answers, Question, read_answers
from harness.evaluation.benchmark_length_control import LengthControl
from harness.evaluation.benchmark_result import (
    NOT_AVAILABLE,
    Evaluation,
    evaluate_annotations,
    evaluate_judgments,
    evaluate_ratings,
)
from harness.runtime.stage import Json


@dataclass(frozen=True)
class Judge:
    """Who judges.

    Attributes:
        client: The client of its endpoint.
        model: Its name there.
        annotator: AlpacaEval's annotator; of no meaning elsewhere.
    """

    client: Client
    model: str
    annotator: str = benchmark_alpaca_eval.OWN_ANNOTATOR

    def name(self, benchmark: str) -> str:
        """Return the name under which its scores are filed."""
        if benchmark != benchmark_alpaca_eval.BENCHMARK:
            return self.model
        return benchmark_alpaca_eval.judge_name(self.model, self.annotator)


@dataclass(frozen=True)
class Judged:
    """The outcome of a run: the evaluation, and the judgments it was read from."""

    evaluation: Evaluation
    records: list[dict[str, Any]]


class Benchmark:
    """One benchmark with its files: what all three have in common.

    Attributes:
        name: As in the command line.
        reply_tokens: Tokens of a judge's reply on average, for the estimate.
        inputs: The benchmark's files, as its functions read them.
    """

    name: str
    reply_tokens: int
    inputs: Any

    @property
    def digest(self) -> str:
        """The sha256 of the benchmark's own inputs: questions, references, judge prompts."""
        text = json.dumps(asdict(self.inputs), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions, in the benchmark's order."""
        raise NotImplementedError

    @property
    def references(self) -> dict[str, str]:
        """The answers that a model's are compared with, by question; none where none are."""
        return {}

    def restrict(self, prompts: Collection[str]) -> None:
        """Ask no other questions than these from now on.

        Raises:
            UserError: One of them is not the benchmark's.
        """
        kept = tuple(q for q in self.questions if q.prompt_id in prompts)
        if len(kept) < len(set(prompts)):
            raise UserError(
                f"{len(set(prompts)) - len(kept)} of {len(set(prompts))} judged questions are not "
                f"those of {self.name} in --data; give the files they were judged with"
            )
        self.inputs = replace(self.inputs, questions=kept)

    def sampling(self, question: Question) -> dict[str, Json]:
        """Return the settings at which a model answers a question."""
        raise NotImplementedError

    def read_answers(self, path: Path, model: str | None) -> Answers:
        """Read a model's answers."""
        return read_answers(path, model)

    def answer_records(self, answers: Answers) -> list[dict[str, Any]]:
        """Return answers in the benchmark's form."""
        raise NotImplementedError

    def requests(self, answers: Answers, judge: Judge) -> list[ChatRequest]:
        """Return the requests that judge a model's answers, follow-ups not counted."""
        raise NotImplementedError

    def judge(self, answers: Answers, judge: Judge, concurrency: int, done: Done) -> Judged:
        """Judge a model's answers and score them."""
        raise NotImplementedError


class MtBench(Benchmark):
    """MT-Bench."""

    name = benchmark_mt_bench.BENCHMARK
    reply_tokens = benchmark_mt_bench.EXPECTED_REPLY_TOKENS
    inputs: benchmark_mt_bench.Inputs

    def __init__(self, data: Path) -> None:
        self.inputs = benchmark_mt_bench.read_inputs(data)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions."""
        return self.inputs.questions

    def sampling(self, question: Question) -> dict[str, Json]:
        """Return the temperature of the category."""
        return {
            "temperature": benchmark_mt_bench.temperature(question.category),
            "max_tokens": benchmark_mt_bench.ANSWER_TOKENS,
        }

    def answer_records(self, answers: Answers) -> list[dict[str, Any]]:
        """Return answers in MT-Bench's form."""
        return benchmark_answers.mt_bench_records(answers)

    def requests(self, answers: Answers, judge: Judge) -> list[ChatRequest]:
        """Return two requests for each question."""
        return [i.request for i in benchmark_mt_bench.requests(self.inputs, answers, judge.model)]

    def judge(self, answers: Answers, judge: Judge, concurrency: int, done: Done) -> Judged:
        """Rate both turns of every answer."""
        items = benchmark_mt_bench.requests(self.inputs, answers, judge.model)
        outcomes = work_through(
            items,
            lambda item: benchmark_mt_bench.judge_text(judge.client, item),
            judge.client,
            concurrency,
            done,
        )
        records = benchmark_mt_bench.judgments(items, outcomes, answers.model, judge.model)
        categories = self.inputs.categories
        (evaluation,) = evaluate_ratings(records, list(categories), categories)
        return Judged(evaluation, records)


class ArenaHard(Benchmark):
    """Arena-Hard v0.1."""

    name = benchmark_arena_hard.BENCHMARK
    reply_tokens = benchmark_arena_hard.EXPECTED_REPLY_TOKENS
    inputs: benchmark_arena_hard.Inputs

    def __init__(self, data: Path) -> None:
        self.inputs = benchmark_arena_hard.read_inputs(data)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions."""
        return self.inputs.questions

    @property
    def references(self) -> dict[str, str]:
        """The baseline's answers."""
        return {p: answer.turns[0] for p, answer in self.inputs.baseline.by_prompt.items()}

    def sampling(self, question: Question) -> dict[str, Json]:
        """Return greedy decoding."""
        return {
            "temperature": benchmark_arena_hard.ANSWER_TEMPERATURE,
            "max_tokens": benchmark_arena_hard.ANSWER_TOKENS,
        }

    def answer_records(self, answers: Answers) -> list[dict[str, Any]]:
        """Return answers in Arena-Hard's form."""
        return benchmark_answers.arena_hard_records(answers)

    def requests(self, answers: Answers, judge: Judge) -> list[ChatRequest]:
        """Return two requests for each question."""
        return [i.request for i in benchmark_arena_hard.requests(self.inputs, answers, judge.model)]

    def judge(self, answers: Answers, judge: Judge, concurrency: int, done: Done) -> Judged:
        """Judge both games of every question."""
        if answers.model == benchmark_arena_hard.BASELINE:
            raise UserError(
                f"{answers.model} is the baseline of Arena-Hard and cannot meet itself; name "
                "another model"
            )
        items = benchmark_arena_hard.requests(self.inputs, answers, judge.model)
        outcomes: Sequence[Outcome[str]] = work_through(
            items,
            lambda i: benchmark_arena_hard.judge_text(judge.client, i, self.inputs.attempts),
            judge.client,
            concurrency,
            done,
        )
        records = benchmark_arena_hard.judgments(items, outcomes, answers.model, judge.model)
        tokens = benchmark_arena_hard.answer_tokens(answers)
        (evaluation,) = evaluate_judgments(
            records,
            benchmark_arena_hard.BASELINE,
            [question.prompt_id for question in self.questions],
            None if tokens is None else {answers.model: tokens},
        )
        if tokens is None:
            evaluation = _without_lengths(evaluation)
        return Judged(evaluation, records)


def _without_lengths(evaluation: Evaluation) -> Evaluation:
    """Return an Arena-Hard evaluation that says why it has no answer length."""
    score = evaluation.score
    reason = f"{NOT_AVAILABLE}: the file has no lengths, and tiktoken or its vocabulary is absent"
    score = replace(
        score,
        scores={**score.scores, "answer_tokens": None},
        notes={**score.notes, "answer_tokens": reason},
    )
    return replace(evaluation, score=score)


class AlpacaEval(Benchmark):
    """AlpacaEval 2, with the data of its length control where they are."""

    name = benchmark_alpaca_eval.BENCHMARK
    reply_tokens = benchmark_alpaca_eval.EXPECTED_REPLY_TOKENS
    inputs: benchmark_alpaca_eval.Inputs

    def __init__(self, data: Path, length_control: LengthControl) -> None:
        self.inputs = benchmark_alpaca_eval.read_inputs(data)
        self.length_control = length_control

    @property
    def questions(self) -> tuple[Question, ...]:
        """The instructions."""
        return self.inputs.questions

    @property
    def references(self) -> dict[str, str]:
        """The reference model's outputs."""
        records = zip(self.questions, self.inputs.references, strict=True)
        return {question.prompt_id: str(record["output"]) for question, record in records}

    def sampling(self, question: Question) -> dict[str, Json]:
        """Return the paper's sampling."""
        return {
            "temperature": benchmark_alpaca_eval.ANSWER_TEMPERATURE,
            "top_p": benchmark_alpaca_eval.ANSWER_TOP_P,
            "max_tokens": benchmark_alpaca_eval.ANSWER_TOKENS,
        }

    def read_answers(self, path: Path, model: str | None) -> Answers:
        """Read a model's outputs, in the benchmark's order."""
        return benchmark_alpaca_eval.read_outputs(path, self.inputs, model)

    def answer_records(self, answers: Answers) -> list[dict[str, Any]]:
        """Return answers in AlpacaEval's form."""
        return benchmark_answers.alpaca_eval_records(answers, self.questions)

    def requests(self, answers: Answers, judge: Judge) -> list[ChatRequest]:
        """Return one request for each instruction."""
        items = benchmark_alpaca_judge.requests(self.inputs, answers, judge.model, judge.annotator)
        return [item.request for item in items]

    def judge(self, answers: Answers, judge: Judge, concurrency: int, done: Done) -> Judged:
        """Compare every answer with the reference model's."""
        items = benchmark_alpaca_judge.requests(self.inputs, answers, judge.model, judge.annotator)
        outcomes = work_through(
            items,
            lambda item: benchmark_alpaca_judge.judge_reply(judge.client, item),
            judge.client,
            concurrency,
            done,
        )
        records = benchmark_alpaca_judge.annotation_records(
            self.inputs, answers, items, outcomes, judge.annotator
        )
        records = [{**record, "annotator": judge.name(self.name)} for record in records]
        instructions = [question.turns[0] for question in self.questions]
        (evaluation,) = evaluate_annotations(records, self.length_control, instructions)
        return Judged(evaluation, records)
