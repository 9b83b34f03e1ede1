"""The command line with toy stages, for tests that need a process of its own.

`HARNESS_WORLD`, `HARNESS_WORK` and `TOY_RESULTS` name the folders. `TOY_IMPORTED` names a file that
gets the names of all modules that the command imported; `TOY_DIES` is `toy_world`'s; with
`TOY_HASTY` the pauses between attempts to reach a judge are short. The tracking URI `toy://` is a
server that takes everything and keeps nothing, so that a test need not wait for MLflow. The only
sweep is `toy`.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import toy_world

TOY_SWEEP = {
    "name": "toy",
    "question": "Which share?",
    "recipe": {"algorithm": "dpo", "chain": ["human", "eva"], "creator": {"evolved_share": 0.8}},
    "space": {"recipe.creator.evolved_share": {"suggest_categorical": {"choices": [0.4, 0.8]}}},
    "objectives": [{"name": "win_rate", "measure": "val_wr", "direction": "maximize"}],
    "seeds": [0],
    "sampler": {"kind": "grid", "seed": 0},
    "trials": 2,
    "result": {"seeds": [10]},
}


class ToyServer:
    """Takes everything and keeps nothing."""

    def write(self, records: Any) -> Iterator[tuple[str, str]]:
        return ((record.identity, "created") for record in records)


def main() -> None:
    if "TOY_IMPORTED" in os.environ:
        file = Path(os.environ["TOY_IMPORTED"])
        atexit.register(lambda: file.write_text("\n".join(sorted(sys.modules))))
    toy_world.die_when_told("parent")
    if "TOY_RESULTS" in os.environ:
        import harness.project

        harness.project.results_dir = lambda: Path(os.environ["TOY_RESULTS"])
    if "TOY_HASTY" in os.environ:
        from harness.endpoint import connection

        connection.FIRST_PAUSE_S, connection.LONGEST_PAUSE_S = 0.001, 0.01
    if sys.argv[1:2] in (["run"], ["sweep"]):
        import harness.pipeline.factory
        import harness.pipeline.steps

        harness.pipeline.steps.FUNCTIONS = toy_world.FUNCTIONS
        harness.pipeline.factory.needed_modules = lambda stages: []
    if sys.argv[1:2] == ["sweep"]:
        from harness.sweep import declaration

        toy = declaration.Sweep.model_validate(TOY_SWEEP)
        declaration.load_sweeps = lambda folder=None: {"toy": toy}
    if os.environ.get("MLFLOW_TRACKING_URI") == "toy://":
        from harness import tracking

        it: Any = tracking
        it.Mlflow.writing = lambda self, **how: nullcontext(ToyServer())
    from harness.cli.main import main as harness_main

    harness_main()


if __name__ == "__main__":
    main()
