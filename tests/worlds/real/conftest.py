"""Keeps the variables of the one who runs the tests from them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no variable of the one who runs the tests reach them."""
    for role in ("CREATOR", "SCORER"):
        for name in ("URL", "KEY", "CONCURRENCY", "PRICE"):
            monkeypatch.delenv(f"HARNESS_{role}_{name}", raising=False)
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
