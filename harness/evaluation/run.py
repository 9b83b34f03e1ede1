"""Running a benchmark with a judge: price, answers, judgments, scores.

Everything that costs money goes through the judge client, whose replies are kept; so the same run
goes on where it was interrupted, and done again it costs nothing and writes the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from harness.endpoint.client import Client, Estimate, estimate
from harness.errors import UserError
from harness.evaluation import benchmark_archive
from harness.evaluation.benchmark_answers import Answerer, placeholders
from harness.evaluation.benchmark_archive import folder_of
from harness.evaluation.benchmark_files import Answers
from harness.evaluation.benchmark_kinds import Benchmark, Judge
from harness.evaluation.benchmark_result import Evaluation

EXPECTED_ANSWER_TOKENS = 400
"""Tokens of an answer on average, for an estimate before there are answers."""

Progress = Callable[[str, int, int], None]
"""Told what is done (`answers`, `judgments`), how many are there, and how many there will be."""


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
    judged = benchmark.requests(shown, judge)
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
    folder = folder_of(output, benchmark.name, answers.model, judge.name(benchmark.name))
    written = benchmark.answer_records(answers)
    benchmark_archive.write_lines(folder / benchmark_archive.ANSWERS, written)
    benchmark_archive.write_lines(folder / benchmark_archive.JUDGMENTS, judged.records)
    asked = [judge.client] if answerer is None else [judge.client, answerer.client]
    benchmark_archive.write(folder / benchmark_archive.REPLIES, _addresses(asked))
    source = {"kind": "judged", "data": benchmark.digest, "answers": _sha256(written)}
    benchmark_archive.keep(folder, judged.evaluation, source, _cost(asked))
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
