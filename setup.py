"""What the build computes; all else that describes the package is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).resolve().parent

RELATIVE_LINK = re.compile(r"!?\[([^\]]*)\]\((?!https?:|#)[^)]+\)")
"""A link or a picture that leads to a file of the project."""


def packages() -> list[str]:
    """Return the packages found here, and the folders that pyproject.toml maps into the wheel.

    A checkout has declarations and published results beside the package, where they are read and
    edited. Their names are too common for the top level of an installation.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    mapped = settings["tool"]["setuptools"]["package-dir"]
    return [*find_namespace_packages(str(ROOT), include=["harness*"]), *mapped]


def description() -> str:
    """Return the README as it can stand alone, each link to a file of the project as its text."""
    return RELATIVE_LINK.sub(r"\1", (ROOT / "README.md").read_text(encoding="utf-8"))


setup(
    packages=packages(),
    long_description=description(),
    long_description_content_type="text/markdown",
)
