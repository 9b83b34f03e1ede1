"""Fixtures: the stand-ins, made once for all tests, in folders of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.worlds.mock import build

torch.set_num_threads(1)

SEED = 0


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a work folder with all stand-ins in it."""
    work = tmp_path_factory.mktemp("stand-ins")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HARNESS_MODELS", "HARNESS_BENCHMARKS"):
            patch.delenv(name, raising=False)
        patch.setenv("HARNESS_WORK", str(work))
        build.build(SEED)
    return work


@pytest.fixture
def work(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the stand-ins be found where they were made; return the work folder."""
    for name in ("HARNESS_MODELS", "HARNESS_BENCHMARKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_WORK", str(made))
    return made
