"""Fixtures shared by all tests."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine is no failure, and a test that fails must fail again.
settings.register_profile("harness", deadline=None, derandomize=True)
settings.load_profile("harness")


TODAY = date(2026, 11, 22)
"""The day of all tests: retired judges are, others are not yet."""


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the day that days are compared with."""
    monkeypatch.setattr("harness.endpoint.prices.today", lambda: TODAY)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Return the folder of published reference data, or skip the test where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "benchmarks").is_dir():
        pytest.skip(f"the published reference data is not at {folder}")
    return folder
