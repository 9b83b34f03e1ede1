"""Fixtures: every sweep reads a toy world and writes to a work folder of its own."""

from pathlib import Path

import pytest
from world_of_names import in_folders_of_its_own


@pytest.fixture(autouse=True)
def work_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world_folder: Path) -> Path:
    return in_folders_of_its_own(monkeypatch, tmp_path, world_folder)
