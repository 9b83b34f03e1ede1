"""Training under `accelerate`: a job is launched, followed and, on every way out, ended.

The launched processes are another program, so nothing of them stays in the worker that launched
them: not their memory on a GPU, not their process group. What passes between the two are files in
the stage's working folder, which outlives a crash: the job, the curves, checkpoints, a log, and in
the end a summary or the reason of a failure.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from harness.catalogue.hardware import Hardware, configuration_file, shipped_configurations
from harness.errors import HarnessError, UserError
from harness.store.faults import disk_full
from harness.store.unfinished import held, held_by
from harness.training.checkpoints import CURVES, last_checkpoint, rewind_curves
from harness.training.launch import FAILURE, LAUNCHER, SUMMARY, Job
from harness.training.placement import accumulation
from harness.training.processes import last_lines, running

if TYPE_CHECKING:
    from harness.training.loop import OnLog

JOB = "job.json"
LOG = "training.log"
LAYOUT = "layout.json"

_LOOK_S = 0.2


@dataclass(frozen=True)
class Configuration:
    """What the harness itself reads of a configuration of `accelerate`.

    Attributes:
        path: its file.
        kind: `NO` for one process, `MULTI_GPU`, `FSDP` or `DEEPSPEED`.
        use_cpu: whether it is for processors.
    """

    path: Path
    kind: str
    use_cpu: bool


def configuration(hardware: Hardware) -> Configuration:
    """Read the configuration of `accelerate` that a profile names.

    Raises:
        UserError: there is no such file, it is none, it does not fit the number of devices, or
            what it asks for is not installed.
    """
    path = configuration_file(hardware.accelerate)
    if not path.is_file():
        raise UserError(
            f"there is no accelerate configuration {hardware.accelerate}: name a file, or one of "
            f"those that are shipped ({', '.join(shipped_configurations())})."
        )
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        kind, use_cpu = str(read["distributed_type"]), bool(read.get("use_cpu"))
    except (yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path} is no accelerate configuration: it must be YAML with a `distributed_type`."
        ) from error
    if (kind == "NO") != (hardware.devices == 1):
        raise UserError(
            f"{path.name} is for {'one process' if kind == 'NO' else 'several processes'} and "
            f"`hardware.devices` is {hardware.devices}: change one of them."
        )
    if kind == "DEEPSPEED" and not _installed("deepspeed"):
        raise UserError(
            f"{path.name} needs the library deepspeed: install it with "
            "`python -m pip install -e '.[deepspeed]'`, or use fsdp.yaml."
        )
    return Configuration(path, kind, use_cpu)


def train_launched(
    *,
    algorithm: str,
    settings: Mapping[str, Any],
    hardware: Hardware,
    policy: Path,
    pairs: Path,
    output: Path,
    work: Path,
    seed: int,
    on_log: OnLog,
) -> dict[str, float]:
    """Train a policy on pairs under `accelerate` and save it to `output/model`.

    Args:
        algorithm: `dpo`, `sppo`, `simpo` or `orpo`.
        settings: the stage's, with hyperparameters under the catalogue's names and, under
            `numerics`, what `Hardware.numerics` returned.
        hardware: what to train on.
        policy: checkpoint to start from, which is also the reference.
        pairs: Parquet file of the pairs.
        output: existing folder; receives `model/`.
        work: working folder; a training that was killed goes on from the last checkpoint in it.
        seed: seed of the training.
        on_log: called with each finished update and its metrics, those of an earlier, killed
            attempt included.

    Returns:
        The summary that `train_dpo` describes, with the pairs that fill the last batch up.

    Raises:
        UserError: the configuration is missing or does not fit, the batch cannot be divided, or
            a library is missing.
        HarnessError: the training failed; the message has its reason, or the end of its log.
    """
    file = configuration(hardware)
    micro_batch = hardware.micro_batch_of(algorithm)
    if micro_batch is None:
        raise UserError(f"`hardware.micro_batch` names no size for `{algorithm}`: add it.")
    accumulation(int(settings["batch_size"]), micro_batch, hardware.devices)
    numerics = settings["numerics"]
    if numerics["lora"] is not None and not _installed("peft"):
        raise UserError(
            "`lora` needs the library peft: install it with `python -m pip install -e '.[lora]'`, "
            "or train all weights."
        )
    job = Job(
        algorithm=algorithm,
        settings=dict(settings),
        micro_batch=micro_batch,
        placement={
            "dtype": numerics["dtype"],
            "attention": numerics["attention"],
            "lora": numerics["lora"],
            "gradient_checkpointing": hardware.gradient_checkpointing,
            "checkpoint_every": hardware.checkpoint_every,
        },
        policy=str(policy),
        pairs=str(pairs),
        output=str(output),
        work=str(work),
        seed=seed,
        use_cpu=file.use_cpu,
    )
    with held(work):
        _prepare(work, job, file, hardware)
        return launch(file, hardware, numerics["dtype"], work, "harness.training.launch", on_log)


def launch(
    file: Configuration, hardware: Hardware, dtype: str, work: Path, module: str, on_log: OnLog
) -> dict[str, float]:
    """Run the job that lies in a working folder, which this process holds, and follow it.

    Args:
        file: configuration of `accelerate`.
        hardware: how many processes.
        dtype: number format of the forward and backward passes.
        work: working folder with the job and, as far as they go, the curves.
        module: what each process runs, with the job's file as its argument.
        on_log: called with each point of the curves.

    Returns:
        The summary that the job left.

    Raises:
        HarnessError: the job failed; the message has its reason, or the end of its log.
    """
    command = _command(file, hardware, dtype, module, work / JOB)
    with running(command, work / LOG, {LAUNCHER: held_by(work)}) as process:
        _follow(process, work / CURVES, on_log)
    return _outcome(process, work)


def _prepare(work: Path, job: Job, file: Configuration, hardware: Hardware) -> None:
    """Ready the working folder; checkpoints of another layout on devices cannot be gone on from."""
    layout = json.dumps({"kind": file.kind, "devices": hardware.devices})
    path = work / LAYOUT
    if path.exists() and path.read_text(encoding="utf-8") != layout:
        for folder in work.glob("checkpoint-*"):
            shutil.rmtree(folder)
    path.write_text(layout, encoding="utf-8")
    for name in (SUMMARY, FAILURE):
        (work / name).unlink(missing_ok=True)
    _, done = last_checkpoint(work)
    rewind_curves(work, done)
    job.write(work / JOB)


def _command(
    file: Configuration, hardware: Hardware, dtype: str, module: str, job: Path
) -> list[str]:
    """Return the command that launches a job."""
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(file.path)),
        *("--num_processes", str(hardware.devices)),
        *("--mixed_precision", "bf16" if dtype == "bfloat16" else "no"),
        *("--main_process_port", "0"),  # any that is free
        *("--module", module, str(job)),
    ]


def _follow(process: subprocess.Popen[bytes], curves: Path, on_log: OnLog) -> None:
    """Hand on what is added to the curves until the process ends."""
    read = 0
    while True:
        ended = process.poll() is not None
        with curves.open("rb") as file:
            file.seek(read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                read += len(line)
                point = json.loads(line)
                on_log(point["step"], point["metrics"])
        if ended:
            return
        time.sleep(_LOOK_S)


def _outcome(process: subprocess.Popen[bytes], work: Path) -> dict[str, float]:
    """Return the summary of a training that has ended.

    Raises:
        HarnessError: it failed.
    """
    if process.returncode == 0 and (work / SUMMARY).exists():
        summary: dict[str, float] = json.loads((work / SUMMARY).read_text(encoding="utf-8"))
        return summary
    if (work / FAILURE).exists():
        raise HarnessError(json.loads((work / FAILURE).read_text(encoding="utf-8"))["reason"])
    if full := disk_full("training under accelerate", work):
        raise full
    raise HarnessError(
        f"the training that accelerate launched ended with exit code {process.returncode}, its log "
        f"with `{last_lines(work / LOG)}`: read {work / LOG}; the same command goes on from the "
        "last checkpoint"
    )


def _installed(name: str) -> bool:
    """Return whether a library is there, without importing it."""
    from importlib.util import find_spec

    return find_spec(name) is not None
