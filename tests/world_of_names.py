"""A world whose files hold nothing but their names."""

import json
from pathlib import Path

import pytest

from harness.worlds.embedded import files


def write_world(folder: Path) -> Path:
    """Write a world whose digests are right; return its folder."""
    for path in map(folder.joinpath, files.ASSETS.values()):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.write_text(path.name)
        else:
            path.mkdir()
            (path / "config.json").write_text(json.dumps(path.name))
    files.write_card(folder, {})
    return folder


def in_folders_of_its_own(patch: pytest.MonkeyPatch, folder: Path, world: Path) -> Path:
    """Let everything be read and written in folders of a test; return the work folder."""
    patch.setenv("HARNESS_WORK", str(folder / "work"))
    patch.setenv("HARNESS_WORLD", str(world))
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder / "work"
