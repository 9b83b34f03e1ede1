"""A machine with nothing on it, whoever runs the tests, and benchmarks that are made up."""

import os
from pathlib import Path

import pytest
from full_size_data import write_data


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a machine's folder: `models` and `benchmarks` would lie there, and a hub's cache."""
    for name in [name for name in os.environ if name.startswith("HARNESS_")]:
        monkeypatch.delenv(name)
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("work", "models", "benchmarks"):
        monkeypatch.setenv(f"HARNESS_{name.upper()}", str(tmp_path / name))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.fixture(scope="session")
def benchmarks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three benchmarks, whole, as profiles name them; not to be changed."""
    folder = tmp_path_factory.mktemp("benchmarks")
    write_data(folder)
    for name in ("alpaca_eval", "arena_hard", "mt_bench"):
        (folder / name).rename(folder / name.replace("_", "-"))
    return folder
