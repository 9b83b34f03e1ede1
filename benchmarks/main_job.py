"""What the main job costs a user: time and memory of `harness run table4` from an empty store.

Runs the command as a user would, in a work folder of its own, samples the memory of all its
processes, runs it again on the full store, and times the commands that only read declarations.
Prints JSON; times are seconds of wall time (the best of five for the short commands), memory is
the peak over time of the sum of all processes' resident sets, in GiB, which counts pages that
processes share more than once.

Usage: python benchmarks/main_job.py [arguments for `run table4`, for example --seeds 0]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

import psutil

COMMAND = [sys.executable, "-c", "from harness.cli.main import main; main()"]
GIB = 1024**3


def resident(process: psutil.Process) -> int:
    """Return the resident bytes of a process and all its descendants."""
    total = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def watched(arguments: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its wall time in seconds and its peak memory in GiB."""
    start, peak = time.monotonic(), 0
    with subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL
    ) as process:
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, resident(tree))
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"`harness {' '.join(arguments)}` ended with {process.returncode}")
    return time.monotonic() - start, peak / GIB


def best_of_five(arguments: list[str], environment: dict[str, str]) -> float:
    """Return the shortest wall time of five runs of a command, in seconds."""
    times = []
    for _ in range(5):
        start = time.monotonic()
        subprocess.run(
            [*COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True
        )
        times.append(time.monotonic() - start)
    return min(times)


def main() -> None:
    """Measure and print."""
    run = ["run", "table4", *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as work:
        environment = {**os.environ, "HARNESS_WORK": work}
        wall, peak = watched(run, environment)
        figures = {
            "empty_store_s": round(wall, 1),
            "peak_gib": round(peak, 2),
            "full_store_s": round(best_of_five(run, environment), 2),
            "help_s": round(best_of_five(["--help"], environment), 2),
            "list_s": round(best_of_five(["list"], environment), 2),
        }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
