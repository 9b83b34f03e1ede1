"""Training under `accelerate`: a job is launched, followed and, on every way out, ended.

The launched processes are another program, so nothing of them stays in the worker that launched
them: not their memory on a GPU, not their process group. Each process runs this module,

    accelerate launch ... -m harness.training.launch JOB.json

and calls the function that the job names with what a stage sees. All of them end when the one that
launched the job is gone, however that ended (`harness.runtime.processes`). What passes between the
two are files in the stage's working folder, which outlives a crash:

    <work>/job.json       what each process does
    <work>/curves.jsonl   one line for each logged update: {"step": 40, "metrics": {...}}
    <work>/checkpoint-40/ weights, optimizer state, schedule and random state after 40 updates
    <work>/checkpoint-40/whole    there once every process has written its part
    <work>/training.log   what the processes print
    <work>/summary.json   written by the first process at the end; or failure.json, why it failed

A training that starts in a folder with a whole checkpoint goes on from the last one, and ends as
if it had not been disturbed: it takes the same pairs in the same order, and the curves of the
updates that are done again are dropped first. One checkpoint is kept. The trainer writes optimizer
state and schedule as torch's pickles, and transformers reads them back with `weights_only`. They
never leave the folder of the stage that wrote them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from harness.errors import HarnessError, UserError
from harness.project import PACKAGE
from harness.registry.documents import read_yaml
from harness.registry.training import (
    Hardware,
    configuration_file,
    shipped_configurations,
)
from harness.runtime.files import disk_full, held, write_whole
from harness.runtime.processes import Program, running
from harness.runtime.stage import CurvePoint, ProgressWriter, StageContext, line_of, point_of
from harness.training.placement import FULL, PATIENCE_S, Placement, accumulation

Metrics = dict[str, float]
OnLog = Callable[[int, Metrics], None]
Points = list[CurvePoint]

JOB = "job.json"
LOG = "training.log"
LAYOUT = "layout.json"
SUMMARY = "summary.json"
FAILURE = "failure.json"
CURVES = "curves.jsonl"
WHOLE = "whole"

_FOLLOW_S = 0.2


KINDS = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP")
"""Ways to lay a training on devices, by accelerate's names: one process, copies, or shards."""


@dataclass(frozen=True)
class Configuration:
    """What the harness itself reads of a configuration of `accelerate`; `kind` is in `KINDS`."""

    path: Path
    kind: str
    use_cpu: bool


def train_launched(ctx: StageContext, hardware: Hardware, work: Path, on_log: OnLog) -> Metrics:
    """Train a policy on pairs under `accelerate`, save it to the stage's `model`, and summarise.

    The context's inputs are the `policy` to start from, which is also the reference, and the
    Parquet file of the `pairs`; its settings hold the hyperparameters under the registry's names
    and, under `numerics`, what `Hardware.numerics` returned. `on_log` is called with each finished
    update, those of an earlier, killed attempt included. The summary is that of `offline.train`.
    """
    settings = cast(dict[str, Any], ctx.settings)
    algorithm, numerics = settings["algorithm"], settings["numerics"]
    configuration(hardware)  # read again by `launch`; what is wrong is said before a folder is made
    micro_batch = hardware.micro_batch_of(algorithm)
    if micro_batch is None:
        raise UserError(f"`hardware.micro_batch` names no size for `{algorithm}`: add it.")
    accumulation(int(settings["batch_size"]), micro_batch, hardware.devices)
    if numerics["lora"] is not None and not _installed("peft"):
        raise UserError(
            "`lora` needs the library peft: install it with `python -m pip install -e '.[lora]'`, "
            "or train all weights."
        )
    place = Placement(
        devices=hardware.devices,
        dtype=numerics["dtype"],
        attention=numerics["attention"],
        gradient_checkpointing=hardware.gradient_checkpointing,
        micro_batch=micro_batch,
        work=work,
        checkpoint_every=hardware.checkpoint_every,
        lora=numerics["lora"],
    )
    with held(work):
        return launch("harness.training.offline:train_pairs", ctx, place, hardware, work, on_log)


def configuration(hardware: Hardware) -> Configuration:
    """Read the configuration of `accelerate` that a profile names.

    Raises:
        UserError: there is no such file, it is none, or it does not fit the number of devices.
    """
    path = configuration_file(hardware.accelerate)
    if not path.is_file():
        raise UserError(
            f"there is no accelerate configuration {hardware.accelerate}: name a file, or one of "
            f"those that are shipped ({', '.join(shipped_configurations())})."
        )
    try:
        read = read_yaml(path)
        kind, use_cpu = str(read["distributed_type"]), bool(read.get("use_cpu"))
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path} is no accelerate configuration: it must be YAML with a `distributed_type`."
        ) from error
    if (kind == "NO") != (hardware.devices == 1):
        raise UserError(
            f"{path.name} is for {'one process' if kind == 'NO' else 'several processes'} and "
            f"`hardware.devices` is {hardware.devices}: change one of them."
        )
    if kind not in KINDS:
        raise UserError(
            f"{path.name} is for `{kind}`, which the harness does not train with: use fsdp.yaml to "
            "spread a model over GPUs."
        )
    return Configuration(path, kind, use_cpu)


def launch(
    function: str,
    ctx: StageContext,
    place: Placement,
    hardware: Hardware,
    work: Path,
    on_log: OnLog,
) -> Metrics:
    """Have every process call a function, in a working folder that this process holds; follow it.

    Given as `module:name`, it is called with the context and the placement, and what it returns in
    the first process is the summary. The curves that the folder has are followed from the last
    whole checkpoint on. The message of an error has its reason, or the end of the log.
    """
    file = configuration(hardware)
    _drop_other_layouts(work, file, hardware)
    for name in (SUMMARY, FAILURE):
        (work / name).unlink(missing_ok=True)
    rewind_curves(work, last_checkpoint(work)[1])
    place = place.model_copy(update={"device": "cpu" if file.use_cpu else "cuda"})
    job = {
        "function": function,
        "settings": dict(ctx.settings),
        "inputs": {name: str(path) for name, path in ctx.inputs.items()},
        "output": str(ctx.output),
        "seed": ctx.seed,
        "place": place.model_dump(mode="json"),
    }
    (work / JOB).write_text(json.dumps(job, indent=1) + "\n", encoding="utf-8")
    command = _command(file, hardware, place.dtype, work / JOB)
    path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)}
    with running("the training under accelerate", command, work / LOG, environment) as program:
        _follow(program, work / CURVES, on_log)
    return _outcome(program, work)


def _drop_other_layouts(work: Path, file: Configuration, hardware: Hardware) -> None:
    """Remove checkpoints of another layout on devices, which cannot be gone on from."""
    layout = json.dumps({"kind": file.kind, "devices": hardware.devices})
    path = work / LAYOUT
    if path.exists() and path.read_text(encoding="utf-8") != layout:
        for folder in work.glob("checkpoint-*"):
            shutil.rmtree(folder)
    path.write_text(layout, encoding="utf-8")


def _command(file: Configuration, hardware: Hardware, dtype: str, job: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(file.path)),
        *("--num_processes", str(hardware.devices)),
        *("--mixed_precision", "bf16" if dtype == "bfloat16" else "no"),
        *("--main_process_port", "0"),  # any that is free
        *("--module", "harness.training.launch", str(job)),
    ]


def _follow(program: Program, curves: Path, on_log: OnLog) -> None:
    """Hand on what is added to the curves until the process ends."""
    read = 0
    while True:
        ended = program.exit_code is not None
        with curves.open("rb") as file:
            file.seek(read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                read += len(line)
                on_log(*point_of(line))
        if ended:
            return
        time.sleep(_FOLLOW_S)


def _outcome(program: Program, work: Path) -> Metrics:
    """Return the summary of a training that has ended."""
    if program.exit_code == 0 and (work / SUMMARY).exists():
        summary: Metrics = json.loads((work / SUMMARY).read_text(encoding="utf-8"))
        return summary
    if (work / FAILURE).exists():
        raise HarnessError(json.loads((work / FAILURE).read_text(encoding="utf-8"))["reason"])
    if full := disk_full("training under accelerate", work):
        raise full
    raise HarnessError(
        f"{program.died('before it was done')}; the same command goes on from the last checkpoint"
    )


def _installed(name: str) -> bool:
    """Return whether a library is there, without importing it."""
    return find_spec(name) is not None


# In each of the processes.


def main(path: Path) -> int:
    """Do one process's part of a job under the eyes of its launcher; return its exit code."""
    try:
        _do_part(json.loads(path.read_text(encoding="utf-8")), path.parent)
    except BaseException as error:  # noqa: BLE001 (said to the launcher, whatever it is)
        traceback.print_exc()
        _say_why(path.parent, error)
        return 1
    return 0


def _do_part(job: dict[str, Any], work: Path) -> None:
    from accelerate import PartialState

    place = Placement.model_validate(job["place"])
    patience = {}
    if place.shared:
        # The reference, too, is spread over the processes, by code that expects each of them to
        # have read it. The shipped configuration for FSDP lets one read for all.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        patience = {"timeout": timedelta(seconds=PATIENCE_S)}
    # Before anything else, so that all that follows knows how many processes there are.
    processes = PartialState(cpu=place.device == "cpu", **patience)
    first = processes.is_main_process
    inputs = {name: Path(folder) for name, folder in job["inputs"].items()}
    report = curves(work).write
    ctx = StageContext(job["settings"], inputs, Path(job["output"]), job["seed"], report)
    module, _, name = job["function"].partition(":")
    summary = getattr(import_module(module), name)(ctx, place)
    processes.wait_for_everyone()
    processes.destroy_process_group()
    if first:
        text = json.dumps(summary or {}, indent=1) + "\n"
        (work / SUMMARY).write_text(text, encoding="utf-8")


def _say_why(work: Path, error: BaseException) -> None:
    """Leave the reason for the launcher; the process that fails first is the one to believe."""
    import torch

    if isinstance(error, HarnessError):
        reason = str(error)
    elif isinstance(error, torch.OutOfMemoryError):
        reason = FULL
    else:
        return
    with suppress(FileExistsError), (work / FAILURE).open("x", encoding="utf-8") as file:
        json.dump({"reason": reason}, file)


# Checkpoints and curves.


def last_checkpoint(work: Path) -> tuple[Path | None, int]:
    """Return the last whole checkpoint and the updates done until it; None and 0 without one."""
    steps = {_step(marker.parent): marker.parent for marker in work.glob(f"checkpoint-*/{WHOLE}")}
    if not steps:
        return None, 0
    return steps[max(steps)], max(steps)


def mark_whole(work: Path, step: int) -> None:
    """Mark a checkpoint as written by all processes, and remove those before it."""
    (work / f"checkpoint-{step}" / WHOLE).touch()
    for folder in work.glob("checkpoint-*"):
        if _step(folder) < step:
            shutil.rmtree(folder)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def read_curves(work: Path, until: int) -> Points:
    """Return the points of the curves up to a step; a line that a crash cut off ends them."""
    points: Points = []
    path = work / CURVES
    with suppress(json.JSONDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            points.append(point_of(line))
    return [point for point in points if point.step <= until]


def rewind_curves(work: Path, step: int) -> Points:
    """Drop what lies after a step, and return the rest."""
    kept = read_curves(work, step)
    write_whole(work / CURVES, "".join(line_of(*point) for point in kept))
    return kept


def curves(work: Path) -> ProgressWriter:
    return ProgressWriter(work, CURVES)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
