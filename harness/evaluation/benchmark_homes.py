"""The benchmarks' own files at their public homes: pinned revisions, digests checked.

Nothing of them is part of this package, and nothing is fetched unless a person says so. A file
whose digest is another one is not kept. The digests are those of the published copies that the
tests read, and others report the same for these revisions, except where an entry says otherwise;
this project has fetched none of them itself.
"""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.runtime.files import write_whole

TIMEOUT_S = 60.0
LARGEST_BYTES = 64 * 1024 * 1024
"""A file that is longer is none of these, and reading it ends there."""


@dataclass(frozen=True)
class HomeFile:
    """One file of a benchmark.

    Attributes:
        benchmark: The benchmark, as in the command line.
        name: What it is called here.
        url: Where it is, at a revision that does not change.
        sha256: The digest it must have.
    """

    benchmark: str
    name: str
    url: str
    sha256: str


_FASTCHAT = (
    "https://raw.githubusercontent.com/lm-sys/FastChat/"
    "587d5cfa1609a43d192cedb8441cac3c17db105d/fastchat/llm_judge/data"
)
_ARENA = "https://raw.githubusercontent.com/lmarena/arena-hard-auto"
_ARENA_DATA = f"{_ARENA}/196f6b826783b3da7310e361a805fa36f0be83f3/data/arena-hard-v0.1"
_ALPACA = (
    "https://huggingface.co/datasets/tatsu-lab/alpaca_eval/resolve/"
    "2edc6fad8be6b14ea7230aabfd08188da6b8b814"
)

HOMES = (
    HomeFile(
        "mt-bench",
        "question.jsonl",
        f"{_FASTCHAT}/mt_bench/question.jsonl",
        "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
    ),
    HomeFile(
        "mt-bench",
        "reference_answer_gpt-4.jsonl",
        f"{_FASTCHAT}/mt_bench/reference_answer/gpt-4.jsonl",
        "f957a5bc977badb66885ec970e6cd08527845780313f0995764260e5777b9b3f",
    ),
    HomeFile(
        "mt-bench",
        "judge_prompts.jsonl",
        f"{_FASTCHAT}/judge_prompts.jsonl",
        "fd283293406d024f44c174b094ef48031d0687a4682fd3a56b29b138f80281b6",
    ),
    HomeFile(
        "arena-hard",
        "question.jsonl",
        f"{_ARENA_DATA}/question.jsonl",
        "2650242d2883f22b2abd498f273b6a7e02253cce533f5c91a858e1d44aa3002f",
    ),
    HomeFile(
        # The digest is that of the published copy; nobody else is known to report it.
        "arena-hard",
        "answer_gpt-4-0314.jsonl",
        f"{_ARENA_DATA}/model_answer/gpt-4-0314.jsonl",
        "0f6abc84de4600fde987d9db70f838f4ecdbd27a2f1f4058c12aa322a6f791b2",
    ),
    HomeFile(
        # The digest of a stored copy of this revision; its prompts and settings are those of the
        # copy that the tests read.
        "arena-hard",
        "judge_config.yaml",
        f"{_ARENA}/7f1b7f5dd6ce53e1f8530220ceb452b7019a8056/config/judge_config.yaml",
        "8f6e2a641676ae1453ae6be149b549d92b739564a23a8db27b86c50999fa607e",
    ),
    HomeFile(
        "alpaca-eval",
        "reference_gpt4_1106_preview_outputs.json",
        f"{_ALPACA}/alpaca_eval_gpt4_baseline.json",
        "83db546b872ddebee8965fd05fa48461ee3c32bc695c62fb57f2d214ff741ec4",
    ),
    HomeFile(
        # Two others report this digest; no test has read the file.
        "alpaca-eval",
        "df_gamed.csv",
        f"{_ALPACA}/df_gamed.csv",
        "97aeec3f1c7de6dee6fd31fe66f1702623f4614c3efe1c6fc5f4927cd5fd674d",
    ),
)


def fetch(
    files: Iterable[HomeFile], folder: Path, told: Callable[[HomeFile, bool], None]
) -> list[Path]:
    """Fetch files that are not there yet.

    Args:
        files: The files.
        folder: The folder of all benchmarks; each has a folder of its own in it.
        told: Told of each file, and whether it was there already.

    Returns:
        Their places.

    Raises:
        HarnessError: A file cannot be fetched or kept, or is another one; it is not kept then.
    """
    found = []
    for file in files:
        path = folder / file.benchmark / file.name
        there = path.is_file() and _digest(path.read_bytes()) == file.sha256
        if not there:
            _keep(path, _fetched(file))
        told(file, there)
        found.append(path)
    return found


def _fetched(file: HomeFile) -> bytes:
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT_S) as response:
            content: bytes = response.read(LARGEST_BYTES + 1)
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise HarnessError(
            f"Cannot fetch {file.url} ({reason}); fetch it elsewhere and name its folder with "
            "--data"
        ) from error
    digest = _digest(content)
    if digest != file.sha256:
        raise HarnessError(
            f"{file.url} has the digest {digest}, not {file.sha256}, and is not kept; it is not "
            "the file this project knows"
        )
    return content


def _keep(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        raise HarnessError(
            f"Cannot write {path}: {error.strerror or error}; make room or set HARNESS_WORK"
        ) from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
