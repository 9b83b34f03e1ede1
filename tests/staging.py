"""A stage's function called by itself: what it is given, and what it writes."""

import json
from pathlib import Path
from typing import Any

from harness.runtime import StageContext
from harness.worlds.stage_io import Rows, read_rows, write_rows


def given(folder: Path, name: str, rows: Rows, *schema: Any) -> Path:
    """Write a file as a stage before would have; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / f"{name}.parquet", rows, *schema)
    return folder


def run_stage(
    function: Any, folder: Path, settings: Any, inputs: Any = None, seed: int = 0
) -> Path:
    """Call a stage's function with a new folder to write to; return that."""
    folder.mkdir()
    function(StageContext(settings, inputs or {}, folder, seed))
    return folder


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def scores_in(folder: Path) -> dict[tuple[str, str], float]:
    """Return what a judge wrote of each prompt and column."""
    rows = read_rows(folder / "scores.parquet")
    return {(row["prompt_id"], row["column"]): row["value"] for row in rows}
