"""What the engine costs: wall time outside stages, for many trivial stages on one worker.

Prints one JSON object: the run's wall time, the time inside stage functions, the start of the
first worker, and what is left for each stage (dispatch, digests, flushing, renaming, events).

    python benchmarks/engine_overhead.py [number of stages]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from harness.runtime import Engine, Event, Plan, Stage, StageContext, Store
from harness.runtime.plan import StageFinished, StageStarted


def trivial(ctx: StageContext) -> None:
    """Write one small file."""
    (ctx.output / "number.txt").write_text(str(ctx.seed))


def measure(number: int, work: Path) -> dict[str, float]:
    """Return the engine's cost over some trivial stages, in seconds unless named otherwise."""
    stages: list[Stage] = []
    for position in range(number):
        inputs = {"before": stages[-1]} if position % 4 else {}
        stages.append(Stage("trivial", 1, {"position": position}, inputs))
    inside, starts = 0.0, []

    def note(event: Event) -> None:
        nonlocal inside
        if isinstance(event, StageStarted):
            starts.append(time.perf_counter())
        if isinstance(event, StageFinished):
            inside += event.wall_s

    functions = {"trivial": f"{Path(__file__).stem}:trivial"}
    engine = Engine(Store(work / "store"), functions, work / "logs", jobs=1, on_event=note)
    began = time.perf_counter()
    outcome = engine.run(Plan(stages))
    wall = time.perf_counter() - began
    if not outcome.ok:
        raise SystemExit(f"stages failed: {outcome.failed}")
    start = starts[0] - began
    return {
        "stages": number,
        "wall_s": round(wall, 4),
        "inside_stages_s": round(inside, 4),
        "worker_start_s": round(start, 4),
        "overhead_per_stage_ms": round(1000 * (wall - start - inside) / number, 3),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
        print(json.dumps(measure(count, Path(folder))))
