"""The questions of a benchmark, from whichever of the usual files they are in.

JSON lines with `turns` (MT-Bench) or `prompt` (Arena-Hard), or one JSON list with `instruction`
(AlpacaEval). Every turn is a question of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.evaluation.published import read_records

FIELDS = ("turns", "prompt", "instruction")


def read_questions(path: Path) -> list[str]:
    """Return the questions in a file, in its order.

    Raises:
        UserError: The file cannot be read, or a record has none of the fields.
    """
    try:
        records = read_records(path)
    except UserError as error:
        raise UserError(
            f"{path} is no file of questions; give JSON lines or one JSON list of objects with "
            f"{', '.join(FIELDS)}"
        ) from error
    return [
        text for number, record in enumerate(records, 1) for text in _texts(record, number, path)
    ]


def _texts(record: dict[str, Any], number: int, path: Path) -> list[str]:
    found = next((record[field] for field in FIELDS if field in record), None)
    texts: list[Any] = found if isinstance(found, list) else [found]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UserError(
            f"question {number} of {path} has no text in {', '.join(FIELDS)}; repair it"
        )
    return texts
