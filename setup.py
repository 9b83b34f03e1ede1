"""What the build computes; all else that describes the package is in pyproject.toml."""

import os
import re
import tomllib
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).resolve().parent

RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")
"""A link or a picture that leads to a file of the project."""

HOME = "HARNESS_HOME_URL"
"""Environment variable with the address of the repository that a release is built from.

A fork has another one, so that none is written down here; without it a description has no links
to files, and a release no address but the paper's.
"""

PAPER = "https://arxiv.org/abs/2411.00062"


def home() -> str:
    """Return the repository's address, empty where none is named."""
    address = os.environ.get(HOME, "").rstrip("/")
    if address and not address.startswith("https://"):
        raise SystemExit(f"{HOME} is {address!r}; write an address that begins with https://")
    return address


def version() -> str:
    """Return the tag of this release."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return f"v{settings['project']['version']}"


def packages() -> list[str]:
    """Return the packages found here, and the folders that pyproject.toml maps into the wheel.

    A checkout has declarations and published results beside the package, where they are read and
    edited. Their names are too common for the top level of an installation.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    mapped = settings["tool"]["setuptools"]["package-dir"]
    return [*find_namespace_packages(str(ROOT), include=["harness*"]), *mapped]


def description() -> str:
    """Return the README as it can stand alone, as a package index shows it.

    Links to files of the project become links to the repository, or their text alone.
    """
    at = home()

    def absolute(found: re.Match[str]) -> str:
        picture, text, path = found.groups()
        if not at:
            return text
        return f"{picture}[{text}]({at}/{'raw' if picture else 'blob'}/{version()}/{path})"

    return RELATIVE_LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


def urls() -> dict[str, str]:
    """Return the addresses of the project by what is there."""
    at = home()
    files = f"{at}/blob/{version()}"
    known = {
        "Homepage": at,
        "Documentation": f"{files}/docs/index.md",
        "Source": at,
        "Changelog": f"{files}/CHANGELOG.md",
    }
    return {"Paper": PAPER} | (known if at else {})


setup(
    packages=packages(),
    long_description=description(),
    long_description_content_type="text/markdown",
    project_urls=urls(),
)
