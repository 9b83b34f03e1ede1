"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from harness.registry.declared import load_tables
from harness.registry.figures import Figure, load_figures
from harness.registry.profile import Profile, load_profiles
from harness.registry.schema import Table

# A loaded machine is no failure, and a test that fails must fail again.
settings.register_profile("harness", deadline=None, derandomize=True)
settings.load_profile("harness")

# pytest-xdist gives its workers a width; without a terminal there is none.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Return the folder of published reference data, or skip the test where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "benchmarks").is_dir():
        pytest.skip(f"the published reference data is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def tables() -> dict[str, Table]:
    """Return the declared tables."""
    return load_tables()


@pytest.fixture(scope="session")
def figures(tables: dict[str, Table]) -> dict[str, Figure]:
    """Return the declared figures."""
    return load_figures(tables)


@pytest.fixture(scope="session")
def micro() -> Profile:
    """Return the embedded profile."""
    return load_profiles()["micro"]


@pytest.fixture(scope="session")
def paper() -> Profile:
    """Return the paper's profile."""
    return load_profiles()["paper"]


@pytest.fixture(scope="module")
def shipped_world() -> Iterator[None]:
    """Use the world that ships with the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HARNESS_WORLD", raising=False)
        yield
