"""A program that runs a gated plan and prints the waiting worker's process id, to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from toy_stages import FUNCTIONS, chain_with_gate

from harness.engine import Event, LocalEngine, Plan, StageProgress
from harness.store import Store


def say_who_waits(event: Event) -> None:
    """Print the process id that the waiting stage reports as its step."""
    if isinstance(event, StageProgress):
        print(event.step, flush=True)


if __name__ == "__main__":
    work, gate = Path(sys.argv[1]), Path(sys.argv[2])
    engine = LocalEngine(
        Store(work / "store"), FUNCTIONS, work / "logs", jobs=2, on_event=say_who_waits
    )
    engine.run(Plan(chain_with_gate(gate)))
