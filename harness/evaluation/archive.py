"""Evaluations on disk: what was scored, from which data, and where the replies behind it are.

Every evaluation has a folder of its own, named after benchmark, model and judge, with one file
`evaluation.json` that says all there is to say about it. Whoever tracks evaluations reads these
files and nothing else. Beside it lie the answers and judgments where a judge was asked; the raw
replies are in the cache of replies, under the addresses that `replies.json` lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError, field_validator

from harness.errors import HarnessError
from harness.evaluation.files import write_whole
from harness.evaluation.scores import Evaluation, Summary
from harness.extensions import benchmark_name
from harness.foreign import read_json
from harness.runtime.manifest import utc_now

if TYPE_CHECKING:
    from harness.endpoint.client import Client

FILE = "evaluation.json"
ANSWERS = "answers.jsonl"
JUDGMENTS = "judgments.jsonl"
REPLIES = "replies.json"


def folder_of(root: Path, benchmark: str, model: str, judge: str | None) -> Path:
    """Return the folder of an evaluation below that of all evaluations.

    One that was kept when benchmarks were written with hyphens stays where it is.
    """
    own = Path(_safe(model), _safe(judge or "judge not said"))
    before = root / benchmark.replace("_", "-") / own
    return before if before.is_dir() else root / benchmark / own


class Kept(Summary):
    """What an evaluation's file says; one from before names had one spelling has hyphens in it."""

    model_config = ConfigDict(extra="ignore")

    columns: dict[str, str]
    """Score to the name of the column it belongs in."""
    notes: dict[str, str]
    source: dict[str, str]
    """What was scored: `kind` and the sha256 of each input by name."""
    cost: dict[str, float | None] | None
    """Tokens and dollars of the replies behind it; null where nobody was asked."""
    finished: str

    @field_validator("benchmark")
    @classmethod
    def _one_spelling(cls, written: str) -> str:
        return "lm_eval" if written == "lm-eval" else benchmark_name(written)


def keep(
    folder: Path,
    evaluation: Evaluation,
    source: Mapping[str, str],
    cost: Mapping[str, float | None] | None = None,
) -> Path:
    """Write an evaluation into its folder with what was scored and what that cost; return the file.

    What says the same already keeps its time.

    Raises:
        HarnessError: It cannot be written.
    """
    path = folder / FILE
    entry = Kept(
        **dict(evaluation.summary),
        columns=evaluation.columns,
        notes=dict(evaluation.score.notes),
        source=dict(source),
        cost=None if cost is None else dict(cost),
        finished=utc_now(),
    )
    held = load(path) if path.is_file() else None
    if held is None or held.model_copy(update={"finished": entry.finished}) != entry:
        write_json(path, entry.as_json())
    return path


def cost_of(clients: Iterable[Client]) -> dict[str, float | None]:
    """Return tokens and dollars of the replies that clients used, whenever they were paid."""
    receipts = [client.receipt for client in clients]
    known = [receipt.usd for receipt in receipts]
    return {
        "replies": sum(len(receipt.addresses) for receipt in receipts),
        "prompt_tokens": sum(receipt.prompt_tokens for receipt in receipts),
        "completion_tokens": sum(receipt.completion_tokens for receipt in receipts),
        "usd": None if None in known else sum(usd for usd in known if usd is not None),
    }


def load(path: Path) -> Kept:
    """Return what an evaluation's file says.

    Raises:
        HarnessError: The file cannot be read or is not whole.
    """
    try:
        return Kept.model_validate(read_json(path.read_bytes()))
    except ValidationError as error:
        raise HarnessError(f"{path} is no evaluation; delete it and evaluate again") from error
    except (OSError, ValueError) as error:
        raise HarnessError(f"Cannot read {path} ({error}); delete it and evaluate again") from error


def all_kept(root: Path) -> list[Path]:
    """Return the files of all evaluations below a folder, in order."""
    return sorted(root.rglob(FILE))


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records as JSON lines.

    Raises:
        HarnessError: The file cannot be written.
    """
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records)
    write_whole(path, ("\n".join(lines) + "\n").encode())


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, for people as well.

    Raises:
        HarnessError: The file cannot be written.
    """
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def _safe(name: str) -> str:
    """Return a name as one part of a path."""
    return re.sub(r"[^\w.@+-]+", "_", name).lstrip(".") or "_"
