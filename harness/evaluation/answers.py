"""Who answers a benchmark where no file does: a model behind an endpoint, or a checkpoint here.

Each benchmark has its own sampling: MT-Bench a temperature for each category, Arena-Hard none,
AlpacaEval 0.7 with top-p 0.9. A second turn is asked with the first and its answer before it.

A checkpoint's answers are kept under the digest of its weights and of everything else that decides
them, so that a judge can be asked again, or another judge, without sampling anew.

Source: FastChat `gen_model_answer.py`; Arena-Hard-Auto `gen_answer.py`; the paper's appendix A.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.endpoint.client import Client, work_through
from harness.endpoint.request import ChatRequest, Message
from harness.errors import HarnessError, UserError
from harness.evaluation.archive import write_lines
from harness.evaluation.benchmark import Benchmark
from harness.evaluation.files import Answer, Answers, Question
from harness.extensions import benchmark_place
from harness.foreign import READ_BY_LOADERS
from harness.project import work_dir

SEED = 0
BATCH_SIZE = 16

Progress = Callable[[str, int, int], None]
"""Told what is done (`answers`, `judgments`), how many are there, and how many there will be."""


@dataclass(frozen=True)
class ServedModel:
    """A model behind an endpoint."""

    client: Client
    model: str

    def requests(self, benchmark: Benchmark, tokens: int) -> list[ChatRequest]:
        """Return what it will be asked, with stand-ins of so many tokens for its own answers."""
        said = ["word" * tokens]
        return [
            self._request(benchmark, question, said * turn)
            for question in benchmark.questions
            for turn in range(len(question.turns))
        ]

    def answer(self, benchmark: Benchmark, concurrency: int, progress: Progress) -> Answers:
        """Answer all questions, so many at once.

        Raises:
            HarnessError: A question has no answer: the endpoint failed or refused it.
        """
        questions = benchmark.questions
        outcomes = work_through(
            questions,
            partial(self._answer, benchmark),
            self.client,
            concurrency,
            partial(progress, "answers"),
        )
        refused = [o.failure for o in outcomes if o.result is None]
        if refused:
            raise HarnessError(
                f"{len(refused)} of {len(questions)} questions were refused (first: {refused[0]}); "
                "give the model a longer context, or its answers with --answers"
            )
        answers = {q.prompt_id: o.result for q, o in zip(questions, outcomes, strict=True)}
        return Answers(self.model, {p: a for p, a in answers.items() if a is not None})

    def _answer(self, benchmark: Benchmark, question: Question) -> Answer:
        """Answer all turns of a question, one after the other."""
        said: list[str] = []
        for _ in question.turns:
            said.append(self.client.ask(self._request(benchmark, question, said)).text)
        return Answer(tuple(said))

    def _request(
        self, benchmark: Benchmark, question: Question, said: Sequence[str]
    ) -> ChatRequest:
        """Return the request for the next turn, after the answers to the turns before it."""
        return ChatRequest(
            label=f"question {question.prompt_id}, turn {len(said) + 1}",
            model=self.model,
            messages=tuple(Message(**m) for m in _conversation(question, said)),
            settings=benchmark.sampling(question),
        )


@dataclass(frozen=True)
class LocalModel:
    """A checkpoint on this machine, with its tokenizer, and the device it runs on."""

    folder: Path
    device: str

    @property
    def model(self) -> str:
        """Its name in scores."""
        return self.folder.resolve().name

    def answer(self, benchmark: Benchmark, concurrency: int, progress: Progress) -> Answers:
        """Return its answers, from disk or sampled now; the memory says how many at once.

        Raises:
            UserError: The folder holds no checkpoint.
            HarnessError: The answers cannot be kept.
        """
        sampled_from = {
            "weights": _digest(self.folder),
            "benchmark": benchmark.digest,
            "sampling": [benchmark.sampling(question) for question in benchmark.questions],
            "seed": SEED,
            "batch_size": BATCH_SIZE,
        }
        key = hashlib.sha256(json.dumps(sampled_from, sort_keys=True).encode()).hexdigest()
        path = (
            work_dir()
            / "answers"
            / benchmark_place(benchmark.name)
            / f"{self.model}-{key[:16]}.jsonl"
        )
        if not path.is_file():
            said = self._sample(benchmark, progress)
            answers = Answers(self.model, {p: Answer(tuple(turns)) for p, turns in said.items()})
            write_lines(path, benchmark.answer_records(answers))
        return benchmark.read_answers(path, self.model)

    def _sample(self, benchmark: Benchmark, progress: Progress) -> dict[str, list[str]]:
        """Sample all turns of all questions, those with the same settings together."""
        from harness.models.policy import generate, load_policy

        policy = load_policy(self.folder, self.device)
        said: dict[str, list[str]] = {question.prompt_id: [] for question in benchmark.questions}
        total = sum(len(question.turns) for question in benchmark.questions)
        done = 0
        for turn in range(max(len(question.turns) for question in benchmark.questions)):
            for settings, questions in _by_settings(benchmark, turn):
                completions = generate(
                    policy,
                    [_conversation(question, said[question.prompt_id]) for question in questions],
                    n=1,
                    temperature=float(settings["temperature"]),
                    top_p=float(settings.get("top_p", 1.0)),
                    max_new_tokens=int(settings["max_tokens"]),
                    batch_size=BATCH_SIZE,
                    seed=SEED,
                )
                for question, (completion,) in zip(questions, completions, strict=True):
                    said[question.prompt_id].append(completion.text)
                done += len(questions)
                progress("answers", done, total)
        return said


Source = Answers | ServedModel | LocalModel
"""What gives a model's answers: a file that has them, or the model."""


def _by_settings(
    benchmark: Benchmark, turn: int
) -> Iterable[tuple[dict[str, Any], list[Question]]]:
    """Return the questions that have a turn, by the settings they are sampled with."""
    groups: dict[str, tuple[dict[str, Any], list[Question]]] = {}
    for question in benchmark.questions:
        if turn < len(question.turns):
            settings = benchmark.sampling(question)
            key = json.dumps(settings, sort_keys=True)
            groups.setdefault(key, (settings, []))[1].append(question)
    return groups.values()


def _conversation(question: Question, said: Sequence[str]) -> list[dict[str, str]]:
    found = []
    for user, assistant in zip(question.turns, said, strict=False):
        found += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return [*found, {"role": "user", "content": question.turns[len(said)]}]


def _digest(checkpoint: Path) -> str:
    """Return the sha256 of a checkpoint's files that decide what it answers, by name."""
    names = sorted(p for p in checkpoint.iterdir() if p.suffix in READ_BY_LOADERS)
    if not any(path.suffix == ".safetensors" for path in names):
        raise UserError(f"{checkpoint} holds no safetensors; give the folder of a checkpoint")
    found = hashlib.sha256()
    for path in names:
        found.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: found)
    return found.hexdigest()
