"""A stand-in for vLLM, installed in "another" Python."""

from pathlib import Path

import pytest
from running import with_fake_vllm


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Install the stand-in; return the file with a line for each start and each readiness."""
    with_fake_vllm(monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where the locks are
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FAKE_STARTS", str(tmp_path / "starts"))
    for variable in ("SOLVER", "CREATOR", "SCORER", "JUDGE"):
        monkeypatch.delenv(f"HARNESS_{variable}_URL", raising=False)
    return tmp_path / "starts"
