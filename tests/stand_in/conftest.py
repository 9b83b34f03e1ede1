"""Fixtures: the stand-ins, made once for all tests, in folders of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.extensions import BENCHMARKS
from harness.registry.declared import named_profile
from harness.registry.profile import Profile
from stand_in import build


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a work folder with all stand-ins in it."""
    work = tmp_path_factory.mktemp("stand-ins")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HARNESS_MODELS", "HARNESS_BENCHMARKS"):
            patch.delenv(name, raising=False)
        patch.setenv("HARNESS_WORK", str(work))
        build.build()
    return work


@pytest.fixture
def work(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the stand-ins be found where they were made; return the work folder."""
    for name in ("HARNESS_MODELS", "HARNESS_BENCHMARKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARNESS_WORK", str(made))
    monkeypatch.setattr(BENCHMARKS, "_added", dict(BENCHMARKS._added))
    build.learn_benchmark()
    return made


@pytest.fixture
def profile(work: Path) -> Profile:
    """Return the profile of the stand-ins."""
    return named_profile(str(build.PROFILE))
