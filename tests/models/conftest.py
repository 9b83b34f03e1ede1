"""Tiny checkpoints for the tests of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_gemma import build_tiny_gemma

from harness.models import reward_model


@pytest.fixture(scope="session")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_gemma(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def reward_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_gemma(tmp_path_factory.mktemp("reward"), seed=1, outputs=1)


@pytest.fixture
def sequences_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives how many sequences each call to a reward model reads."""
    read: list[int] = []
    original = reward_model.read_all

    def counted(reader: Any, sequences: Any, **batching: Any) -> Any:
        read.append(len(sequences))
        return original(reader, sequences, **batching)

    monkeypatch.setattr(reward_model, "read_all", counted)
    return read
