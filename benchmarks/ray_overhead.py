"""What Ray costs against the local engine: the same stages on the same cores, in turns.

Prints one JSON object: the seconds of both for some stages of so many seconds of computing each,
without the start of Ray and of the workers, and the overhead of Ray in percent. Needs the extra
`ray`; say what else the machine did meanwhile.

    python benchmarks/ray_overhead.py [stages] [seconds of each] [rounds]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from harness.quiet import silence
from harness.runtime import Engine, EngineOptions, Plan, Stage, StageContext, Store

JOBS = 2


def computing(ctx: StageContext) -> None:
    """Compute for so long by the processor's clock, as a stage does, and write one small file."""
    end = time.process_time() + float(str(ctx.settings["seconds"]))
    number = ctx.seed
    while time.process_time() < end:
        number = (number * 48271) % 2147483647
    ctx.report(1, {"number": float(number)})
    (ctx.output / "number.txt").write_text(str(ctx.seed))


def stages(number: int, seconds: float, round_: int, part: str) -> list[Stage]:
    """Return chains of four stages; those of each round and part are others."""
    made: list[Stage] = []
    for position in range(number):
        inputs = {"before": made[-1]} if position % 4 else {}
        told = {"position": position, "seconds": seconds, "round": round_, "part": part}
        made.append(Stage("computing", 1, told, inputs))
    return made


def measure(number: int, seconds: float, rounds: int, work: Path) -> dict[str, object]:
    """Return what both engines take, the median of some rounds, in seconds."""
    functions = {"computing": f"{Path(__file__).stem}:computing"}
    taken: dict[str, list[float]] = {"local": [], "ray": []}
    made = {
        name: Engine(
            Store(work / name),
            functions,
            work / "logs" / name,
            jobs=JOBS,
            where=EngineOptions(engine=name),  # type: ignore[arg-type]
        )
        for name in taken
    }
    with made["local"], made["ray"]:
        for engine in made.values():  # starts Ray and the workers
            assert engine.run(Plan(stages(4 * JOBS, 0.0, 0, "first"))).ok
        for round_ in range(rounds):
            for name, engine in made.items():
                plan = Plan(stages(number, seconds, round_, "measured"))
                began = time.perf_counter()
                assert engine.run(plan).ok
                taken[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(each) for name, each in taken.items()}
    return {
        "stages": number,
        "seconds_each": seconds,
        "jobs": JOBS,
        "rounds": rounds,
        **{f"{name}_s": round(value, 3) for name, value in medians.items()},
        "overhead_percent": round(100 * (medians["ray"] / medians["local"] - 1), 2),
        "load_1min": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    silence()
    given = [*map(float, sys.argv[1:])]
    count, each, times = given + [40, 0.5, 3][len(given) :]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HARNESS_WORK"] = folder  # which every node must have
        print(json.dumps(measure(int(count), each, int(times), Path(folder))))
