"""Curves: the points a stage reports while it runs, kept as `progress.jsonl` in its output.

One line is one point: `{"step": 3, "metrics": {"loss": 0.61}}`, in the order reported, without
times, so that the file is the same in every run. JSON has no NaN, so a value that is not finite
is written as null and read as NaN.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRESS = "progress.jsonl"


@dataclass(frozen=True)
class Point:
    """One reported point: the step and the value of each curve there."""

    step: int
    metrics: dict[str, float]


class ProgressWriter:
    """Appends points to a stage's output; no file appears before the first point."""

    def __init__(self, output: Path) -> None:
        self._path = output / PROGRESS

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one point."""
        values = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        line = json.dumps({"step": step, "metrics": values}, allow_nan=False)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def read_progress(output: Path) -> list[Point]:
    """Return the points of a stage's output, in the order reported; empty where none were."""
    path = output / PROGRESS
    if not path.exists():
        return []
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Point(line["step"], _floats(line["metrics"])) for line in lines]


def _floats(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values with NaN where JSON has null."""
    return {name: math.nan if value is None else value for name, value in metrics.items()}
