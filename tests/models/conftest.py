"""Tiny checkpoints for the tests of models."""

from pathlib import Path

import pytest
from tiny_gemma import build_tiny_gemma


@pytest.fixture(scope="session")
def reward_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_gemma(tmp_path_factory.mktemp("reward"), seed=1, outputs=1)
