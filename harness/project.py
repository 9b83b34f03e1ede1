"""Where things are on disk: the declarations that are read and the folder that runs write to.

The declarations lie in the project folder, next to the package. Everything a user's run writes
goes to one work folder, `.harness/` in the project folder unless `HARNESS_WORK` names another.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def project_root() -> Path:
    """Return the folder that holds `experiments/` and `ablations/`."""
    return PACKAGE.parent


def declaration_dirs() -> list[Path]:
    """Return the folders whose YAML files declare the paper's tables."""
    return [project_root() / "experiments", project_root() / "ablations"]


def figures_dir() -> Path:
    """Return the folder whose YAML files declare the paper's figures."""
    return project_root() / "experiments" / "figures"


def profiles_dir() -> Path:
    """Return the folder whose YAML files declare the profiles."""
    return PACKAGE / "profiles"


def results_dir() -> Path:
    """Return the folder of published results."""
    return project_root() / "results"


def work_dir() -> Path:
    """Return the folder that runs write to (`HARNESS_WORK`, else `.harness/`)."""
    override = os.environ.get("HARNESS_WORK")
    return Path(override).expanduser().resolve() if override else project_root() / ".harness"


def store_dir() -> Path:
    """Return the root of the stage store."""
    return work_dir() / "store"


def calibrations_dir() -> Path:
    """Return the folder of the judges' calibrations."""
    return work_dir() / "calibrations"


def evaluations_dir() -> Path:
    """Return the folder of the evaluations of real models."""
    return work_dir() / "evaluations"


def benchmarks_dir() -> Path:
    """Return the folder of the benchmarks' own files, where they were fetched."""
    return work_dir() / "benchmarks"
