"""Fixtures: every sweep reads a toy world and writes to a work folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import toy_sweep


@pytest.fixture(scope="session")
def world_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_sweep.write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def work_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world_folder: Path) -> Path:
    """Return the work folder."""
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("HARNESS_WORLD", str(world_folder))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "work"
