"""An empty store for every test of the report."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.runtime import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def _unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave flushing to the system: these stores need not survive a power cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
