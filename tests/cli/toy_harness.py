"""The command line with toy stages, for tests that need a process of its own.

`HARNESS_WORLD` and `HARNESS_WORK` name the folders. `TOY_IMPORTED` names a file that gets the
names of all modules that the command imported. The tracking URI `toy://` is a server that takes
everything and keeps nothing, so that a test need not wait for MLflow.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import toy_world


class ToyServer:
    """Takes everything and keeps nothing."""

    def runs(self, record: Any, *, all_of_experiment: bool = False) -> dict[str, list[Any]]:
        return {}

    def apply(self, record: Any, found: Any, *, settle: bool) -> tuple[str, str]:
        return "created", "0"

    def end_stale(self, computing: Any) -> int:
        return 0


def main() -> None:
    if "TOY_IMPORTED" in os.environ:
        file = Path(os.environ["TOY_IMPORTED"])
        atexit.register(lambda: file.write_text("\n".join(sorted(sys.modules))))
    if sys.argv[1:2] == ["run"]:
        import harness.trainer.execution
        import harness.trainer.steps

        harness.trainer.steps.FUNCTIONS = toy_world.FUNCTIONS
        harness.trainer.execution.NEEDED_MODULES = {}
    if os.environ.get("MLFLOW_TRACKING_URI") == "toy://":
        from harness.tracking import tracker

        tracker.open_server = lambda uri, work_dir: ToyServer()
        tracker.reached = lambda uri: nullcontext()
        tracker.Tracker.start = lambda self, tables: None
    from harness.cli.main import main as harness_main

    harness_main()


if __name__ == "__main__":
    main()
