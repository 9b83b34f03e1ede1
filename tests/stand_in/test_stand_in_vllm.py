"""Table 4 on stand-ins with the policy behind a real vLLM server: minutes, where it is installed.

    HARNESS_VLLM_PYTHON=.../bin/python HARNESS_VLLM_ARGS=--enforce-eager \
        VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=1 \
        python -m pytest -m slow tests/stand_in/test_stand_in_vllm.py

`harness/serving/environments/vllm-cpu.txt` says how it is installed without a GPU. A server is
started for each policy that answers; two rows and one seed have three.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROWS = ("dpo-1", "eva-a_min")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        "HARNESS_VLLM_PYTHON" not in os.environ, reason="HARNESS_VLLM_PYTHON names no vLLM"
    ),
]


def test_table4_completes_with_a_vllm_server(tmp_path: Path) -> None:
    kept = ("HARNESS_VLLM_", "VLLM_")
    bare = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(kept) or not name.startswith(("HARNESS_", "MLFLOW_"))
    }
    profile = tmp_path / "served.yaml"
    text = (HERE / "stand-in.yaml").read_text()
    assert "engine: {value: transformers" in text
    profile.write_text(text.replace("engine: {value: transformers", "engine: {value: vllm"))
    asked = ("run", "table4", "--profile", str(profile), "--rows", ",".join(ROWS), "--seeds", "0")
    done = subprocess.run(
        [sys.executable, str(HERE / "command.py"), *asked, "--jobs", "1", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**bare, "PYTHONPATH": str(HERE.parents[1]), "HARNESS_WORK": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["items"]
    assert Counter(cell["state"] for cell in cells if cell["row"] in ROWS) == {"ok": 10}
    folders = list((tmp_path / "store" / "stages").glob("*/*"))
    engines = [json.loads((f / "engine.json").read_text()) for f in folders if _answered(f)]
    assert len(engines) == 9, "three sets of rollouts, and three benchmarks of two policies"
    assert all(said["engine"].startswith("vllm") for said in engines)


def _answered(folder: Path) -> bool:
    kind = json.loads((folder / "stage.json").read_text())["kind"]
    return kind in ("generate", "answer")
