"""A program that runs a plan of toys and prints what happens, a line each: `elsewhere total`.

    run_toys.py WORK JOBS PLAN ARGUMENT...

PLAN names a function of `toy_stages`. The step that a stage reports is printed in place of a label.
"""

import sys
from pathlib import Path
from typing import Any

import toy_stages

from harness.runtime import Engine, Plan, Store
from harness.runtime.plan import StageProgress


def say(event: Any) -> None:
    """Print what happened, and to which stage."""
    what = type(event).__name__.removeprefix("Stage").lower()
    shown = event.step if isinstance(event, StageProgress) else event.stage.label
    print(what, shown, flush=True)


if __name__ == "__main__":
    work, jobs, plan, *arguments = sys.argv[1:]
    engine = Engine(
        Store(Path(work) / "store"),
        toy_stages.FUNCTIONS,
        Path(work) / "logs",
        jobs=int(jobs),
        on_event=say,
        preload=["toy_stages"],
    )
    outcome = engine.run(Plan(getattr(toy_stages, plan)(*arguments)))
    sys.exit(0 if outcome.ok else f"{dict(outcome.failed)} {dict(outcome.skipped)}")
