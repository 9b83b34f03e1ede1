"""Answers kept as they come, so that a stage that was killed goes on where it was.

One file for each call of a stage, in a folder that outlives the process. Its first line says what
was asked (a digest of the prompts' tokens, seeds and sampling); each further line is a prompt's
position with all its answers. Lines are only ever added, and flushed to the disk as they are, so of
a killed process at most the last one is incomplete, and that one is forgotten.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.inference.request import Answered, Asked, Sample, Sampling


class KeptAnswers:
    """The answers of one call, on disk.

    Args:
        path: their file; its folder is there.
        asked: what is asked now; answers to anything else are forgotten.
        sampling: how answers are drawn.
    """

    def __init__(self, path: Path, asked: Sequence[Asked], sampling: Sampling) -> None:
        self._path = path
        self.answers: Answered = {}
        header = {"asked": _digest(asked, sampling)}
        good = self._read(header, {a.position: len(a.seeds) for a in asked})
        with path.open("ab") as file:
            file.truncate(good)
            if not good:
                file.write(_line(header))
            _flush(file)

    def add(self, answered: Answered) -> None:
        """Keep the answers of some prompts."""
        lines = b"".join(
            _line({"position": position, "answers": [_as_json(sample) for sample in samples]})
            for position, samples in answered.items()
        )
        with self._path.open("ab") as file:
            file.write(lines)
            _flush(file)
        self.answers.update(answered)

    def _read(self, header: dict[str, Any], wanted: dict[int, int]) -> int:
        """Take up what the file holds; return how many of its bytes are good."""
        if not self._path.is_file():
            return 0
        good = 0
        with self._path.open("rb") as file:
            for line in file:
                found = _parsed(line)
                if found is None:
                    break  # what follows was written by nobody who knew of a whole line
                if good == 0:
                    if found != header:
                        return 0
                elif not self._take(found, wanted):
                    break
                good += len(line)
        return good

    def _take(self, found: dict[str, Any], wanted: dict[int, int]) -> bool:
        try:
            position, answers = found["position"], [_sample(a) for a in found["answers"]]
        except (KeyError, TypeError, ValueError):
            return False
        if wanted.get(position) != len(answers):
            return False
        self.answers[position] = answers
        return True


def _digest(asked: Sequence[Asked], sampling: Sampling) -> str:
    digest = hashlib.sha256(json.dumps(asdict(sampling)).encode())
    for one in asked:
        digest.update(json.dumps([one.position, one.tokens, one.seeds, one.room]).encode())
    return digest.hexdigest()


def _as_json(sample: Sample) -> dict[str, Any]:
    return {name: value for name, value in asdict(sample).items() if value != ()}


def _sample(found: dict[str, Any]) -> Sample:
    return Sample(
        text=str(found["text"]),
        n_tokens=int(found["n_tokens"]),
        tokens=tuple(found.get("tokens", ())),
        log_probabilities=tuple(found.get("log_probabilities", ())),
    )


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a line's object; None where it is incomplete or no object."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
