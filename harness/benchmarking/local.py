"""A local model's answers to a benchmark, sampled once and kept.

A checkpoint's answers are kept under the digest of its weights and of everything else that decides
them, so that a judge can be asked again, or another judge, without sampling anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UserError

if TYPE_CHECKING:
    from harness.evaluation.benchmark_files import Answers, Question
    from harness.evaluation.benchmark_kinds import Benchmark

SEED = 0
BATCH_SIZE = 16
_CHUNK = 1 << 24


def answer(
    benchmark: Benchmark,
    checkpoint: Path,
    device: str,
    folder: Path,
    progress: Callable[[str, int, int], None],
) -> Answers:
    """Return a checkpoint's answers, from disk or sampled now.

    Args:
        benchmark: The benchmark; it says how each question is sampled.
        checkpoint: Folder of the model and its tokenizer.
        device: As torch names it.
        folder: Where answers are kept.
        progress: Told how far it is.

    Raises:
        UserError: The folder holds no checkpoint.
        HarnessError: The answers cannot be kept.
    """
    from harness.evaluation.benchmark_archive import write_lines
    from harness.evaluation.benchmark_files import Answer, Answers

    name = checkpoint.resolve().name
    sampled_from = {
        "weights": _digest(checkpoint),
        "benchmark": benchmark.digest,
        "sampling": [benchmark.sampling(question) for question in benchmark.questions],
        "seed": SEED,
        "batch_size": BATCH_SIZE,
    }
    key = hashlib.sha256(json.dumps(sampled_from, sort_keys=True).encode()).hexdigest()
    path = folder / benchmark.name / f"{name}-{key[:16]}.jsonl"
    if not path.is_file():
        said = _sample(benchmark, checkpoint, device, progress)
        answers = Answers(name, {p: Answer(tuple(turns)) for p, turns in said.items()})
        write_lines(path, benchmark.answer_records(answers))
    return benchmark.read_answers(path, name)


def _sample(
    benchmark: Benchmark,
    checkpoint: Path,
    device: str,
    progress: Callable[[str, int, int], None],
) -> dict[str, list[str]]:
    """Sample all turns of all questions, those with the same settings together."""
    from harness.models.policy import generate, load_policy

    policy = load_policy(checkpoint, device)
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


def _conversation(question: Question, said: list[str]) -> list[dict[str, str]]:
    found = []
    for user, assistant in zip(question.turns, said, strict=False):
        found += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return [*found, {"role": "user", "content": question.turns[len(said)]}]


def _digest(checkpoint: Path) -> str:
    """Return the sha256 of a checkpoint's files that decide what it answers, by name."""
    from harness.worlds.real.models import READ_BY_LOADERS

    names = sorted(p for p in checkpoint.iterdir() if p.suffix in READ_BY_LOADERS)
    if not any(path.suffix == ".safetensors" for path in names):
        raise UserError(f"{checkpoint} holds no safetensors; give the folder of a checkpoint")
    found = hashlib.sha256()
    for path in names:
        found.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    return found.hexdigest()
