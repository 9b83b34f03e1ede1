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
    return _named("HARNESS_WORK") or project_root() / ".harness"


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
    """Return the folder of the benchmarks' own files, each benchmark in a folder of its own.

    `HARNESS_BENCHMARKS` names it, else it is where they are fetched into.
    """
    return _named("HARNESS_BENCHMARKS") or work_dir() / "benchmarks"


def models_dir() -> Path:
    """Return the folder of local models, each as `owner/name` (`HARNESS_MODELS`)."""
    return _named("HARNESS_MODELS") or work_dir() / "models"


def _named(variable: str) -> Path | None:
    """Return the folder that an environment variable names, None where it names none."""
    value = os.environ.get(variable)
    return Path(value).expanduser().resolve() if value else None
