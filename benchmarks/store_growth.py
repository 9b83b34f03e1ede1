"""What commands cost as a store grows: 100,000 stages, and a table with 100 seeds.

A store is filled with the stages of table 4 at `micro` for all seeds, made by the toy stage
functions of the tests, and with stages of other runs up to the number asked for. Then each command
runs in a process of its own. Prints one JSON object: seconds of processor and clock, and how many
files each command opened in the store.

    python benchmarks/store_growth.py [stages] [seeds] [folder]
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "plan": ["plan", "table4", "--seeds"],
    "report": ["report", "table4", "--seeds"],
    "list": ["list"],
    "verify": ["verify"],
    "sync": ["sync"],
    "store": ["store"],
    "store --verify": ["store", "--verify"],
}
RUNS = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
opened = [0]
store = {store!r}
def count(event, arguments):
    if event == "open" and str(arguments[0]).startswith(store):
        opened[0] += 1
sys.addaudithook(count)
from harness.cli.main import app
try:
    app({arguments!r}, prog_name="harness", standalone_mode=False)
except SystemExit as error:
    print(error, file=sys.stderr)
print("opened", opened[0], file=sys.stderr)
"""


def fill(stages: int, seeds: int) -> dict[str, float]:
    """Fill the store of the work folder; return how long that took, and its number of stages."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "cli")]
    import toy_world

    from harness.project import store_dir
    from harness.runtime import Plan, StageContext, Store, files, manifest
    from harness.runtime import store as store_module
    from harness.runtime.stage import PROGRESS, append_point

    for module in (files, manifest):  # nobody needs what is made here after a power cut
        module.os = _Unflushed(os)  # type: ignore[attr-defined]
    store_module.flush_folder = files.flush_folder = lambda folder: None  # type: ignore
    began, store = time.perf_counter(), Store(store_dir())
    provenance = manifest.collect_provenance()
    plan = Plan(toy_world.planned("table4", "micro", range(seeds)).targets)
    for stage in plan:
        with store.writing(stage, provenance) as output:
            inputs = {name: store.path(s.fingerprint) for name, s in stage.inputs.items()}
            report = partial(append_point, output / PROGRESS)
            function = getattr(toy_world, f"{stage.kind}_stage")
            function(StageContext(stage.settings, inputs, output, stage.seed, report))
    for number in range(len(plan), stages):
        _other(store.root, number, provenance)
    return {"planned": len(plan), "stages": stages, "fill_s": time.perf_counter() - began}


def _other(root: Path, number: int, provenance: Any) -> None:
    """Write an entry that no declared run needs, without the care that a store takes."""
    from harness.runtime import Stage
    from harness.runtime.manifest import utc_now, write_manifest

    record = Stage("train", 1, {"number": number}, {}, f"other {number}").record
    entry = root / "stages" / record["fingerprint"][:2] / record["fingerprint"]
    entry.mkdir(parents=True)
    content = str(number).encode()
    (entry / "number").write_bytes(content)
    write_manifest(
        entry,
        {
            **record,
            "files": {
                "number": {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            },
            "started": utc_now(),
            "finished": utc_now(),
            "wall_s": 0.0,
            "cpu_s": 0.0,
            "provenance": provenance,
        },
    )


class _Unflushed:
    """The module `os` without `fsync`."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return (lambda descriptor: None) if name == "fsync" else getattr(self._module, name)


def measure(arguments: list[str], store: Path) -> dict[str, float]:
    """Run a command in a process of its own."""
    tests = str(ROOT / "tests" / "cli")
    program = RUNS.format(root=str(ROOT), tests=tests, store=str(store), arguments=arguments)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    opened = int(done.stderr.rpartition("opened")[2])
    print(arguments, f"{cpu:.1f} s", done.stderr[-300:], file=sys.stderr)
    return {"cpu_s": round(cpu, 1), "wall_s": round(wall, 1), "files": opened}


def main() -> None:
    """Fill a store, and measure each command on it."""
    stages, seeds = (int(text) for text in [*sys.argv[1:3], "100000", "100"][:2])
    with tempfile.TemporaryDirectory() as made:
        work = Path(sys.argv[3] if len(sys.argv) > 3 else made)
        os.environ["HARNESS_WORK"] = str(work)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{work}/mlflow.db"
        filled: dict[str, Any] = {}
        if not (work / "store").exists():
            filled = fill(stages, seeds)
            print(filled, file=sys.stderr)
        for name, command in COMMANDS.items():
            arguments = command + ([f"0-{seeds - 1}"] if command[-1] == "--seeds" else [])
            filled[name] = measure(arguments, work / "store")
            print(json.dumps({name: filled[name]}), file=sys.stderr)
    print(json.dumps(filled, indent=2))


if __name__ == "__main__":
    main()
