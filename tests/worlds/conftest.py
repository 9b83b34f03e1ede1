"""A machine with nothing on it, whoever runs the tests, and benchmarks that are made up."""

from pathlib import Path

import pytest
from full_size_data import write_data
from running import on_a_bare_machine


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a machine's folder: `models` and `benchmarks` would lie there, and a hub's cache."""
    on_a_bare_machine(monkeypatch, tmp_path)
    monkeypatch.setenv("HARNESS_WORK", str(tmp_path / "work"))
    return tmp_path


@pytest.fixture(scope="session")
def benchmarks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three benchmarks, whole, as profiles name them; not to be changed."""
    folder = tmp_path_factory.mktemp("benchmarks")
    write_data(folder)
    for name in ("alpaca_eval", "arena_hard", "mt_bench"):
        (folder / name).rename(folder / name.replace("_", "-"))
    return folder
