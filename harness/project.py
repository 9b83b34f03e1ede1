"""Paths of declarations, published results, and the folder that runs write to.

A checkout contains all three. Outside one, declarations and results are those of the checkout that
the code runs from, or of the wheel (whose only results are the controls), and runs write to
`.harness/` in the current folder.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from harness.errors import UserError

PACKAGE = Path(__file__).resolve().parent

SHIPPED = PACKAGE / "shipped"
"""Where a wheel has declarations and published results (see pyproject.toml)."""

_MARK = "experiments/paper.yaml"
"""The file that marks a checkout: the declaration of the paper."""


def checkout() -> Path | None:
    """Return the current folder's checkout, else the one this code runs from, or None."""
    own = PACKAGE.parent if _is_checkout(PACKAGE.parent) else None
    return _entered(_current()) or own


def project_root() -> Path:
    """Return the folder that contains `experiments/`, `ablations/` and `results/`."""
    return checkout() or SHIPPED


def declaration_dirs() -> list[Path]:
    return [project_root() / "experiments", project_root() / "ablations"]


def figures_dir() -> Path:
    return project_root() / "experiments" / "figures"


def profiles_dir() -> Path:
    return PACKAGE / "profiles"


def results_dir() -> Path:
    """Return the folder of published results; a wheel has only those that every report reads."""
    return project_root() / "results"


def publishing_dir() -> Path:
    """Return the folder of all published results, for reading and writing; needs a checkout."""
    if checkout() is None:
        raise UserError(
            "results are published in a clone of the project: "
            f"{_current()} is in none, so change to one"
        )
    return results_dir()


def work_dir() -> Path:
    """Return the folder to write to: `HARNESS_WORK`, else `.harness/` in the checkout or here."""
    return _named("HARNESS_WORK") or (_entered(_current()) or _current()) / ".harness"


def store_dir() -> Path:
    """Return the root of the stage store: `HARNESS_STORE`, else `store/` in the work folder."""
    if "://" in os.environ.get("HARNESS_STORE", ""):
        raise UserError("HARNESS_STORE does not name a folder: a bucket can be mounted as one")
    return _named("HARNESS_STORE") or work_dir() / "store"


def replies_dir() -> Path:
    """Return the folder of cached replies from endpoints, and the ledger of what they cost."""
    return work_dir() / "replies"


def calibrations_dir() -> Path:
    return work_dir() / "calibrations"


def sweeps_dir() -> Path:
    """Return the folder of Optuna's storages, one file per sweep."""
    return work_dir() / "sweeps"


def evaluations_dir() -> Path:
    return work_dir() / "evaluations"


def benchmarks_dir() -> Path:
    """Return the folder of benchmark files: `HARNESS_BENCHMARKS`, or in the work folder."""
    return _named("HARNESS_BENCHMARKS") or work_dir() / "benchmarks"


def models_dir() -> Path:
    """Return the folder of local models, each as `owner/name` (`HARNESS_MODELS`)."""
    return _named("HARNESS_MODELS") or work_dir() / "models"


def _is_checkout(folder: Path) -> bool:
    return (folder / _MARK).is_file()


@functools.cache
def _entered(here: Path) -> Path | None:
    """Return the nearest checkout that contains a folder, or None."""
    return next(filter(_is_checkout, (here, *here.parents)), None)


def _current() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UserError("the current folder was deleted; change to another one") from None


def _named(variable: str) -> Path | None:
    """Return the folder named by an environment variable, or None if it is unset."""
    value = os.environ.get(variable)
    try:
        return Path(value).expanduser().resolve() if value else None
    except (RuntimeError, OSError, ValueError) as error:
        # An unknown user after `~`, a symlink loop, or a name that is too long.
        raise UserError(
            f"{variable} does not name a folder ({str(value)[:80]}: {error}); name another"
        ) from error
