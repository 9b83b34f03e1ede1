"""Fixtures: the stand-ins, made once for all tests, in folders of their own."""

from pathlib import Path

import pytest

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
