"""Training under `accelerate`: launches a job, follows it, and always terminates it on exit.

The job is a separate program, so neither its GPU memory nor its process group lingers in the worker
that launched it. Each of its processes runs this module and calls the function named in the job
with the stage's context. Launcher and job communicate through files in the stage's working folder,
which survives a crash:

    <work>/job.json       what each process does
    <work>/curves.jsonl   one line per logged update: {"step": 40, "metrics": {...}}
    <work>/checkpoint-40/ weights, optimizer state, schedule and random state after 40 updates
    <work>/checkpoint-40/whole    exists once every process has written its part
    <work>/training.log   the output of the processes
    <work>/outcome.json   the first process's summary, or the reason given by the first to fail

Training on pairs resumes from the last complete checkpoint, and ends as if it had never been
interrupted. The trainer pickles optimizer state and schedule, and transformers reads them back with
`weights_only`; they never leave the folder of the stage that wrote them. Online segments are short
and have no checkpoints within.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from harness.errors import HarnessError
from harness.project import PACKAGE
from harness.registry.training import Hardware
from harness.runtime.files import disk_full, held, write_whole
from harness.runtime.processes import Program
from harness.runtime.stage import CurvePoint, StageContext, append_point, line_of, read_point
from harness.runtime.supervisor import POLL_INTERVAL_S
from harness.training.placement import OUT_OF_MEMORY, TIMEOUT_S, Metrics, OnLog, Placement

JOB = "job.json"
LOG = "training.log"
OUTCOME = "outcome.json"
CURVES = "curves.jsonl"
MARKER = "whole"


def launch(function: str, ctx: StageContext, on_log: OnLog, *, online: bool = False) -> Metrics:
    """Call a function in one process per device of the stage's hardware, and follow them.

    The function, given as `module:name`, is called with the context and the placement; its return
    value in the first process is the summary. The settings include `Hardware`'s `numerics`. Errors
    quote the reason given by the job, or the end of its log.
    """
    assert ctx.unfinished is not None
    hardware = Hardware.model_validate(ctx.hardware["training"])
    with held(ctx.unfinished) as folder:
        # Checkpoints of a different device layout cannot be resumed.
        work = folder / f"{hardware.configuration.stem}-{hardware.devices}"
        work.mkdir(exist_ok=True)
        (work / OUTCOME).unlink(missing_ok=True)
        rewind_curves(work)
        place = _placement(ctx, hardware, None if online else work)
        job = {
            "function": function,
            "settings": dict(ctx.settings),
            "inputs": {name: str(path) for name, path in ctx.inputs.items()},
            "output": str(ctx.output),
            "seed": ctx.seed,
            "place": place.model_dump(mode="json"),
        }
        (work / JOB).write_text(json.dumps(job, indent=1) + "\n", encoding="utf-8")
        path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)}
        if hardware.devices == 1:  # the trainer would use every visible GPU
            environment.setdefault("CUDA_VISIBLE_DEVICES", "0")
        command = _command(hardware, place.dtype, work / JOB)
        with Program("the training under accelerate", command, work / LOG, environment) as program:
            _follow(program, work / CURVES, on_log)
        return _outcome(program, work)


def _placement(ctx: StageContext, hardware: Hardware, work: Path | None) -> Placement:
    numerics = ctx.settings["numerics"]
    return Placement(
        device="cpu" if hardware.on_cpu else "cuda",
        devices=hardware.devices,
        dtype=numerics["dtype"],
        attention=numerics["attention"],
        gradient_checkpointing=hardware.gradient_checkpointing,
        micro_batch=hardware.micro_batch_of(str(ctx.settings["algorithm"])),
        work=work,
        checkpoint_every=hardware.checkpoint_every,
        lora=numerics.get("lora"),
        shared=work is None and hardware.devices > 1,
    )


def _command(hardware: Hardware, dtype: str, job: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(hardware.configuration)),
        *("--num_processes", str(hardware.devices)),
        *("--mixed_precision", "bf16" if dtype == "bfloat16" else "no"),
        *("--main_process_port", "0"),  # any free port
        *("--module", "harness.training.launch", str(job)),
    ]


def _follow(program: Program, curves: Path, on_log: OnLog) -> None:
    read, ended = 0, False
    while not ended:
        ended = program.exit_code is not None
        with curves.open("rb") as file:
            file.seek(read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                read += len(line)
                on_log(*read_point(line))
        if not ended:
            time.sleep(POLL_INTERVAL_S)


def _outcome(program: Program, work: Path) -> Metrics:
    left: dict[str, Any] = {}
    if (work / OUTCOME).exists():
        left = json.loads((work / OUTCOME).read_text(encoding="utf-8"))
    if "reason" in left:
        raise HarnessError(left["reason"])
    if program.exit_code == 0 and "summary" in left:
        return cast(Metrics, left["summary"])
    if full := disk_full("training under accelerate", work):
        raise full
    raise HarnessError(f"{program.died('before it was done')}; run the same command again to go on")


# Runs in each launched process.


def main(path: Path) -> int:
    """Run one process's part of a job and return its exit code."""
    try:
        _do_part(json.loads(path.read_text(encoding="utf-8")), path.parent)
    except BaseException as error:  # noqa: BLE001 (report any failure to the launcher)
        import torch

        traceback.print_exc()
        if isinstance(error, HarnessError | torch.OutOfMemoryError):
            _leave(
                path.parent, reason=str(error) if isinstance(error, HarnessError) else OUT_OF_MEMORY
            )
        return 1
    return 0


def _do_part(job: dict[str, Any], work: Path) -> None:
    from accelerate import PartialState

    place = Placement.model_validate(job["place"])
    timeout = {}
    if place.shared:
        # The reference is sharded too, by code that expects every process to have loaded it, which
        # the shipped FSDP configuration does not ask for.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        timeout = {"timeout": timedelta(seconds=TIMEOUT_S)}
    # First, so that everything below sees the number of processes.
    processes = PartialState(cpu=place.device == "cpu", **timeout)
    inputs = {name: Path(folder) for name, folder in job["inputs"].items()}
    report = partial(append_point, work / CURVES)
    ctx = StageContext(job["settings"], inputs, Path(job["output"]), job["seed"], report)
    module, _, name = job["function"].partition(":")
    summary = getattr(import_module(module), name)(ctx, place)
    first = processes.is_main_process
    processes.wait_for_everyone()
    processes.destroy_process_group()
    if first:
        _leave(work, summary=summary or {})


def _leave(work: Path, **outcome: Any) -> None:
    """Write the outcome for the launcher, unless one exists: the first failure is the cause."""
    with suppress(FileExistsError), (work / OUTCOME).open("x", encoding="utf-8") as file:
        json.dump(outcome, file)


# Checkpoints and curves.


def last_checkpoint(work: Path) -> tuple[Path | None, int]:
    """Return the last complete checkpoint and its number of updates, or None and 0."""
    steps = {_step(marker.parent): marker.parent for marker in work.glob(f"checkpoint-*/{MARKER}")}
    last = max(steps, default=0)
    return steps.get(last), last


def mark_whole(work: Path, step: int) -> None:
    """Mark a checkpoint as written by all processes and delete the earlier ones."""
    (work / f"checkpoint-{step}" / MARKER).touch()
    for folder in work.glob("checkpoint-*"):
        if _step(folder) < step:
            shutil.rmtree(folder)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def read_curves(work: Path, until: int) -> list[CurvePoint]:
    """Return the curve points up to a step, stopping at a line truncated by a crash."""
    points: list[CurvePoint] = []
    path = work / CURVES
    with suppress(json.JSONDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            points.append(read_point(line))
    return [point for point in points if point.step <= until]


def rewind_curves(work: Path) -> None:
    kept = read_curves(work, last_checkpoint(work)[1])
    write_whole(work / CURVES, "".join(line_of(*point) for point in kept))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
