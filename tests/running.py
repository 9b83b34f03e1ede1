"""Programs of Python, run to their end, and the environment of a user who has set nothing."""

import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

FAKE_ENGINES = Path(__file__).parent / "inference" / "fake_engines"


def bare(*prefixes: str) -> dict[str, str]:
    """Return this process's environment without the variables of some prefixes."""
    return {name: text for name, text in os.environ.items() if not name.startswith(prefixes)}


def ran(
    *arguments: object, code: int = 0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python; fail where it does not end with the code; return what it said."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == code, done.stderr
    return done


def on_a_bare_machine(
    patch: pytest.MonkeyPatch, folder: Path, keeping: Collection[str] = ()
) -> None:
    """Let a test find nothing on its machine but what it puts there, save for some variables.

    `models` and `benchmarks` would lie in the folder, and the hub's caches.
    """
    kept = {*bare("HARNESS_", "OPENAI_API_KEY", "GEMINI_API_KEY"), *keeping}
    for name in os.environ.keys() - kept:
        patch.delenv(name)
    for name in ("models", "benchmarks"):
        patch.setenv(f"HARNESS_{name.upper()}", str(folder / name))
    patch.setenv("HF_DATASETS_CACHE", str(folder / "datasets"))
    patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))


def with_fake_vllm(patch: pytest.MonkeyPatch) -> None:
    """Install a stand-in for vLLM 0.30.0 in "another" Python."""
    patch.setenv("PYTHONPATH", str(FAKE_ENGINES))
    patch.setenv("HARNESS_VLLM_PYTHON", sys.executable)
