"""A stand-in for vLLM, installed in "another" Python."""

import sys
from pathlib import Path

import pytest

FAKE_ENGINES = Path(__file__).parents[1] / "inference" / "fake_engines"


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Install the stand-in; return the file with a line for each start and each readiness."""
    monkeypatch.setenv("PYTHONPATH", str(FAKE_ENGINES))
    monkeypatch.setenv("HARNESS_VLLM_PYTHON", sys.executable)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where the locks are
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FAKE_STARTS", str(tmp_path / "starts"))
    for variable in ("SOLVER", "CREATOR", "SCORER", "JUDGE"):
        monkeypatch.delenv(f"HARNESS_{variable}_URL", raising=False)
    return tmp_path / "starts"
