"""The registry is light: reading and listing declarations loads no heavy library."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from harness.cli.main import main
sys.argv = ["harness", "list"]
try:
    main()
except SystemExit:
    pass
heavy = {"torch", "transformers", "trl", "mlflow", "pandas", "numpy", "optuna"} & set(sys.modules)
sys.exit(f"imported {sorted(heavy)}" if heavy else 0)
"""


def test_reading_declarations_imports_no_heavy_library() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
