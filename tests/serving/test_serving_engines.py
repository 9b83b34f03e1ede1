"""What the environment may say of an engine: what depends on the machine, and nothing else."""

from __future__ import annotations

import pytest

from harness.errors import UserError
from harness.serving.engines import Installed

VLLM = Installed("vllm", "vllm 0.30.0", None)


def test_what_depends_on_the_machine_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_VLLM_ARGS", "--tensor-parallel-size 8 --download-dir '/a b'")
    assert VLLM.arguments == ["--tensor-parallel-size", "8", "--download-dir", "/a b"]
    monkeypatch.delenv("HARNESS_VLLM_ARGS")
    assert VLLM.arguments == []


@pytest.mark.parametrize("text", ["--dtype half", "--enforce-eager --max_model_len=64", "--port 1"])
def test_what_changes_answers_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HARNESS_VLLM_ARGS", text)
    with pytest.raises(UserError, match=r"HARNESS_VLLM_ARGS holds `--\w+.*leave it out"):
        _ = VLLM.arguments
