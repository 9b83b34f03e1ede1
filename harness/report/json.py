"""A report as JSON: the list of its cells.

The schema is packaged beside this file, `schemas/report.json`; that of a published report, which
holds more than the cells, is `schemas/published.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.report.cells import Cell

SCHEMAS = Path(__file__).parent / "schemas"


def as_json(cells: Sequence[Cell]) -> str:
    """Return cells as a JSON list, with a final newline."""
    return dumps([cell.as_json() for cell in cells])


def dumps(value: object) -> str:
    """Return JSON for people and programs: indented, every float with all its digits."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n"


def schema(name: str = "report") -> dict[str, Any]:
    """Return a packaged JSON Schema: `report` or `published`."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return found
