"""Evaluations on disk: what was scored, from which data, and where the replies behind it are.

Every evaluation has a folder of its own, named after benchmark, model and judge, with one file
`evaluation.json` that says all there is to say about it. Whoever tracks evaluations reads these
files and nothing else. Beside it lie the answers and judgments where a judge was asked; the raw
replies are in the cache of replies, under the addresses that `replies.json` lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.evaluation.benchmark_result import Evaluation
from harness.foreign import read_json
from harness.runtime.manifest import utc_now

FILE = "evaluation.json"
ANSWERS = "answers.jsonl"
JUDGMENTS = "judgments.jsonl"
REPLIES = "replies.json"


def folder_of(root: Path, benchmark: str, model: str, judge: str | None) -> Path:
    """Return the folder of an evaluation below that of all evaluations."""
    return root / benchmark / _safe(model) / _safe(judge or "judge not said")


def keep(
    folder: Path,
    evaluation: Evaluation,
    source: Mapping[str, str],
    cost: Mapping[str, float | None] | None = None,
) -> Path:
    """Write an evaluation into its folder; what says the same already keeps its time.

    Args:
        folder: The evaluation's folder.
        evaluation: The scores.
        source: What was scored: `kind` and the sha256 of each input by name.
        cost: Tokens and dollars of the replies behind it; None where nobody was asked.

    Returns:
        The file.

    Raises:
        HarnessError: It cannot be written.
    """
    path = folder / FILE
    entry = {
        **evaluation.details(),
        "source": dict(source),
        "cost": None if cost is None else dict(cost),
    }
    held = load(path) if path.is_file() else {}
    if {name: value for name, value in held.items() if name != "finished"} != entry:
        write_json(path, {**entry, "finished": utc_now()})
    return path


def load(path: Path) -> dict[str, Any]:
    """Return what an evaluation's file says.

    Raises:
        HarnessError: The file cannot be read or is not whole.
    """
    try:
        entry = read_json(path.read_bytes())
        if isinstance(entry, dict) and isinstance(entry.get("benchmark"), str):
            return entry
    except (OSError, ValueError) as error:
        raise HarnessError(f"Cannot read {path} ({error}); delete it and evaluate again") from error
    raise HarnessError(f"{path} is no evaluation; delete it and evaluate again")


def all_kept(root: Path) -> list[Path]:
    """Return the files of all evaluations below a folder, in order."""
    return sorted(root.rglob(FILE))


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records as JSON lines.

    Raises:
        HarnessError: The file cannot be written.
    """
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records)
    write(path, "\n".join(lines) + "\n")


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, for people as well.

    Raises:
        HarnessError: The file cannot be written.
    """
    write(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        HarnessError: It cannot be written.
    """
    part = path.with_suffix(path.suffix + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise HarnessError(
            f"Cannot write {path}: {error.strerror or error}; make room or set HARNESS_WORK"
        ) from error


def _safe(name: str) -> str:
    """Return a name as one part of a path."""
    return re.sub(r"[^\w.@+-]+", "_", name).lstrip(".") or "_"
