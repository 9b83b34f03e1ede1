"""A tiny policy, and an environment in which a stand-in for vLLM is installed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import with_fake_vllm
from tiny_gemma import build_tiny_gemma

from harness.serving.engines import identity


@pytest.fixture(scope="session")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random policy that reads 128 tokens."""
    return build_tiny_gemma(tmp_path_factory.mktemp("policy"), seed=24)


@pytest.fixture
def fake_vllm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[], list[dict[str, Any]]]:
    """Install the stand-in; return what reads its requests."""
    log = tmp_path / "requests.jsonl"
    with_fake_vllm(monkeypatch)
    monkeypatch.setenv("FAKE_LOG", str(log))
    assert identity("vllm") == "vllm 0.30.0"

    def requests() -> list[dict[str, Any]]:
        if not log.exists():
            return []
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]

    return requests
