"""Writing evaluations to MLflow, from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.cli.output import warn
from harness.project import work_dir


def track(files: Sequence[Path]) -> None:
    """Write kept evaluations to MLflow; at worst there is a warning."""
    from harness.tracking import EvaluationTracker

    EvaluationTracker(work_dir(), warn).write(files)
