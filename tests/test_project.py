"""The project as a whole: its files, its pins, its README, and what must not be in it."""

import os
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import harness

ROOT = Path(__file__).resolve().parents[1]

FILES = (
    ".ci/run",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "MANIFEST.in",
    "NOTICE",
    "README.md",
    "constraints.txt",
    "harness/py.typed",
    "mkdocs.yml",
    "pyproject.toml",
    "setup.py",
    "tox.ini",
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

FOLDERS = (
    ".ci", "ablations", "benchmarks", "docs", "experiments", "harness", "results", "tests", "tools",
)  # fmt: skip

MAIN_COMMAND = (
    "python3 -m venv .venv && . .venv/bin/activate && "
    "python -m pip install -e . -c constraints.txt && harness run table4"
)
TEST_COMMAND = (
    "python3 -m venv .tox-venv && .tox-venv/bin/python -m pip install tox && .tox-venv/bin/tox"
)

CUDA = ("nvidia-", "cuda-", "triton")
"""Beginnings of what a CUDA build of torch needs; torch pins these itself."""

MACHINE_PATH = re.compile(r"(?<![\w.~/{}<>$-])/(?:home|root|tmp|work|mnt|scratch|Users)(?![\w.-])")
"""A place on somebody's machine, as an absolute path."""


def project_files() -> Iterator[Path]:
    """Yield the project's files: those at the top and those in its folders."""
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":  # as a second working tree has it
            yield path
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def text_of(path: Path) -> str | None:
    """Return a file's text, None for one that is not text."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = data["project"]
    return found


@pytest.fixture(scope="module")
def direct(project: dict[str, Any]) -> list[Requirement]:
    """Return what the core and the tools for lint, types and tests ask for."""
    extras = project["optional-dependencies"]
    tools = [line for extra in ("test", "lint", "types", "docs") for line in extras[extra]]
    lines = [*project["dependencies"], *tools]
    return [Requirement(line) for line in lines]


@pytest.fixture(scope="module")
def pins() -> dict[str, Version]:
    """Return the pinned versions by canonical name."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {}
    for line in lines:
        name, equal, version = line.partition("==")
        assert equal, f"`{line}` is not an exact pin"
        assert name == canonicalize_name(name), f"`{line}` is not under its canonical name"
        assert name not in found, f"{name} is pinned twice"
        found[name] = Version(version)
        # A pin such as `torch==2.13.0+cpu` is found at one index only.
        assert found[name].local is None, line
    return found


def test_the_citation_names_this_version_and_the_paper(project: dict[str, Any]) -> None:
    assert project["version"] == harness.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project["version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{project['version']}]" in text
    assert citation["preferred-citation"]["authors"][0]["family-names"] == "Ye"
    assert "2411.00062" in citation["references"][0]["url"]


def test_every_direct_dependency_is_pinned_within_its_range(
    direct: list[Requirement], pins: dict[str, Version]
) -> None:
    wrong = [
        f"{requirement} (pinned: {pins.get(canonicalize_name(requirement.name))})"
        for requirement in direct
        if canonicalize_name(requirement.name) not in pins
        or pins[canonicalize_name(requirement.name)] not in requirement.specifier
    ]
    assert not wrong, "\n".join(wrong)


def test_what_the_dependencies_need_is_pinned_too(
    direct: list[Requirement], pins: dict[str, Version]
) -> None:
    """Follow the installed packages' own requirements down to the last one."""
    queue, seen, missing = list(direct), set(), set()
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen or name.startswith(CUDA):
                continue
            seen.add((name, extra))
            if name not in pins:
                missing.add(name)
            queue += needed_by(name, extra)
    assert not missing, f"not in constraints.txt: {', '.join(sorted(missing))}"
    assert len(seen) > len(direct)


def needed_by(name: str, extra: str) -> list[Requirement]:
    """Return what an installed package needs here, for one of its extras or none."""
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return []
    found = [Requirement(line) for line in lines]
    return [r for r in found if r.marker is None or r.marker.evaluate({"extra": extra})]


def test_uv_installs_what_pip_installs(project: dict[str, Any], pins: dict[str, Version]) -> None:
    """The lock is of these requirements, with the pinned versions, from the usual index.

    After a change: `uv lock`, with the lines of `constraints.txt` as `constraint-dependencies` of
    `tool.uv` where it takes newer versions.
    """
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    locked: dict[str, set[Version]] = {}
    for package in lock:
        if "version" in package:
            locked.setdefault(package["name"], set()).add(Version(package["version"]))
    assert {n: v for n, v in pins.items() if n in locked and v not in locked[n]} == {}
    (own,) = [package for package in lock if package["name"] == project["name"]]
    assert own["version"] == project["version"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    asked = [Requirement(line) for line in [*project["dependencies"], *extras]]
    needed = own["metadata"]["requires-dist"]
    known = {(it["name"], SpecifierSet(it.get("specifier", ""))) for it in needed}
    assert known == {(canonicalize_name(it.name), it.specifier) for it in asked}
    sources = {package["source"].get("registry") for package in lock}
    assert sources == {"https://pypi.org/simple", None}


def test_the_readme_is_short_and_has_both_commands_word_for_word(readme: str) -> None:
    lines = readme.splitlines()
    assert MAIN_COMMAND in lines
    assert TEST_COMMAND in lines
    path = ROOT / ".ci" / "run"
    assert TEST_COMMAND in path.read_text(encoding="utf-8").splitlines()
    assert os.access(path, os.X_OK)
    assert len(lines) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_the_readme_and_the_pages_name_exists(page: Path) -> None:
    """Quoted words with a slash inside or at the end that begin with a file or folder of ours.

    Links of the pages are checked where the site is built.
    """
    top, text = (*FOLDERS, *FILES), page.read_text(encoding="utf-8")
    quoted = {word for word in re.findall(r"`([\w./-]+)`", text) if word.split("/")[0] in top}
    linked = set(re.findall(r"\]\((?!https?:|#)([^)#]+)", text))
    missing = sorted(name for name in quoted if not (ROOT / name).exists())
    missing += sorted(name for name in linked if not (page.parent / name).exists())
    assert not missing, ", ".join(missing)


def test_no_file_names_a_place_on_somebody_s_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in project_files()
        if (text := text_of(path)) is not None
        for number, line in enumerate(text.splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)
