"""The working folder of a training: checkpoints to go on from, and the curves so far.

    <work>/checkpoint-40/     weights, optimizer state, schedule and random state after 40 updates
    <work>/checkpoint-40/whole    there once every process has written its part
    <work>/curves.jsonl       one line for each logged update: {"step": 40, "metrics": {...}}

A training that starts in a folder with a whole checkpoint goes on from the last one, and ends as
if it had not been disturbed: it takes the same pairs in the same order, and the curves of the
updates that are done again are dropped first. One checkpoint is kept; an older one is removed when
the next is whole.

The trainer writes optimizer state and schedule as torch's pickles, and transformers reads them back
with `weights_only`. They never leave the folder of the stage that wrote them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from harness.runtime.files import write_whole

CURVES = "curves.jsonl"
WHOLE = "whole"

Points = list[tuple[int, dict[str, float]]]


def last_checkpoint(work: Path) -> tuple[Path | None, int]:
    """Return the last whole checkpoint and the updates done until it; None and 0 without one."""
    steps = {_step(marker.parent): marker.parent for marker in work.glob(f"checkpoint-*/{WHOLE}")}
    if not steps:
        return None, 0
    return steps[max(steps)], max(steps)


def read_curves(work: Path, until: int) -> Points:
    """Return the points of the curves up to a step; a line that a crash cut off ends them."""
    points: Points = []
    path = work / CURVES
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            point = json.loads(line)
        except json.JSONDecodeError:
            break
        points.append((point["step"], point["metrics"]))
    return [point for point in points if point[0] <= until]


def rewind_curves(work: Path, step: int) -> Points:
    """Drop what lies after a step, and return the rest."""
    kept = read_curves(work, step)
    path = work / CURVES
    write_whole(path, "".join(map(_line, kept)))
    return kept


def append_point(work: Path, step: int, metrics: dict[str, float]) -> None:
    """Add a point to the curves."""
    with (work / CURVES).open("a", encoding="utf-8") as file:
        file.write(_line((step, metrics)))


def mark_whole(work: Path, step: int) -> None:
    """Mark a checkpoint as written by all processes, and remove those before it."""
    (work / f"checkpoint-{step}" / WHOLE).touch()
    for folder in work.glob("checkpoint-*"):
        if _step(folder) < step:
            shutil.rmtree(folder)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _line(point: tuple[int, dict[str, float]]) -> str:
    return json.dumps({"step": point[0], "metrics": point[1]}) + "\n"
