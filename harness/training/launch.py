"""Training under `accelerate`: a job is launched, followed and, on every way out, ended.

The launched processes are another program, so nothing of them stays in the worker that launched
them: not their memory on a GPU, not their process group. What passes between the two are files in
the stage's working folder, which outlives a crash: the job, the curves, checkpoints, a log, and in
the end a summary or the reason of a failure. Each process runs this module,

    accelerate launch ... -m harness.training.launch JOB.json

calls the function that the job names, and ends itself when the one that launched the job is gone,
however that ended. The first process writes the curves and, at the end, the summary; whichever
fails says why in a file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError, UserError
from harness.registry.training import Hardware, configuration_file, shipped_configurations
from harness.registry.yaml_reader import read_yaml
from harness.runtime.files import abandoned, disk_full, held, held_by
from harness.training.processes import last_lines, running

if TYPE_CHECKING:
    from harness.training.offline import OnLog

JOB = "job.json"
LOG = "training.log"
LAYOUT = "layout.json"
SUMMARY = "summary.json"
FAILURE = "failure.json"
LAUNCHER = "HARNESS_LAUNCHER"
"""Environment variable with the signature by which the launcher holds the working folder."""

_FOLLOW_S = 0.2
_WATCH_S = 0.5


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


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training for several processes; all of it is JSON.

    Attributes:
        function: `module:function` that each process calls with the arguments; it returns the
            summary in the first process and None in the others.
        arguments: its arguments by name.
        work: working folder, held by the process that launches the job.
    """

    function: str
    arguments: dict[str, Any]
    work: str


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
        settings: the stage's, with hyperparameters under the registry's names and, under
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
        The summary that `offline.train` describes, with the pairs that fill the last batch up.

    Raises:
        UserError: the configuration is missing or does not fit, the batch cannot be divided, or
            a library is missing.
        HarnessError: the training failed; the message has its reason, or the end of its log.
    """
    from harness.training.placement import accumulation

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
    arguments = {
        "algorithm": algorithm,
        "settings": dict(settings),
        "micro_batch": micro_batch,
        "placement": {
            "work": str(work),
            "dtype": numerics["dtype"],
            "attention": numerics["attention"],
            "lora": numerics["lora"],
            "gradient_checkpointing": hardware.gradient_checkpointing,
            "checkpoint_every": hardware.checkpoint_every,
        },
        "policy": str(policy),
        "pairs": str(pairs),
        "output": str(output),
        "seed": seed,
        "use_cpu": file.use_cpu,
    }
    job = Job(function=f"{__name__}:train_pairs", arguments=arguments, work=str(work))
    with held(work):
        _drop_other_layouts(work, file, hardware)
        return launch(job, file, hardware, numerics["dtype"], on_log)


def train_pairs(
    *,
    algorithm: str,
    settings: dict[str, Any],
    micro_batch: int,
    placement: dict[str, Any],
    policy: str,
    pairs: str,
    output: str,
    seed: int,
    use_cpu: bool,
) -> dict[str, float] | None:
    """Do one process's part of a training on pairs; see `train_launched` for the arguments.

    Returns:
        The summary in the first process, None in the others.
    """
    import pyarrow.parquet as pq
    from accelerate import PartialState

    from harness.training import offline
    from harness.training.placement import Lora, Placement

    # Before anything else, so that all that follows knows how many processes there are.
    processes = PartialState(cpu=use_cpu)
    lora = placement["lora"]
    place = Placement(
        **{
            **placement,
            "work": Path(placement["work"]),
            "lora": None if lora is None else Lora(**lora),
        }
    )
    summary = offline.train(
        offline.algorithm(algorithm, settings, micro_batch_size=micro_batch),
        Path(policy),
        pq.read_table(pairs),
        Path(output),
        seed=seed,
        on_log=lambda step, metrics: None,  # the launcher follows the file of the curves
        device="cpu" if use_cpu else "cuda",
        place=place,
    )
    first = processes.is_main_process
    processes.destroy_process_group()
    return summary if first else None


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
    if kind == "DEEPSPEED" and not _installed("deepspeed"):
        raise UserError(
            f"{path.name} needs the library deepspeed: install it with "
            "`python -m pip install -e '.[deepspeed]'`, or use fsdp.yaml."
        )
    return Configuration(path, kind, use_cpu)


def launch(
    job: Job, file: Configuration, hardware: Hardware, dtype: str, on_log: OnLog
) -> dict[str, float]:
    """Run a job in a working folder that this process holds, and follow it.

    The curves that the folder has are followed from the last whole checkpoint on.

    Args:
        job: what each process does.
        file: configuration of `accelerate`.
        hardware: how many processes.
        dtype: number format of the forward and backward passes.
        on_log: called with each point of the curves.

    Returns:
        The summary that the job left.

    Raises:
        HarnessError: the job failed; the message has its reason, or the end of its log.
    """
    from harness.training.checkpoints import CURVES, last_checkpoint, rewind_curves

    work = Path(job.work)
    for name in (SUMMARY, FAILURE):
        (work / name).unlink(missing_ok=True)
    rewind_curves(work, last_checkpoint(work)[1])
    (work / JOB).write_text(json.dumps(asdict(job), indent=1) + "\n", encoding="utf-8")
    command = _command(file, hardware, dtype, work / JOB)
    with running(command, work / LOG, {LAUNCHER: held_by(work)}) as process:
        _follow(process, work / CURVES, on_log)
    return _outcome(process, work)


def _drop_other_layouts(work: Path, file: Configuration, hardware: Hardware) -> None:
    """Remove checkpoints of another layout on devices, which cannot be gone on from."""
    layout = json.dumps({"kind": file.kind, "devices": hardware.devices})
    path = work / LAYOUT
    if path.exists() and path.read_text(encoding="utf-8") != layout:
        for folder in work.glob("checkpoint-*"):
            shutil.rmtree(folder)
    path.write_text(layout, encoding="utf-8")


def _command(file: Configuration, hardware: Hardware, dtype: str, job: Path) -> list[str]:
    """Return the command that launches a job."""
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(file.path)),
        *("--num_processes", str(hardware.devices)),
        *("--mixed_precision", "bf16" if dtype == "bfloat16" else "no"),
        *("--main_process_port", "0"),  # any that is free
        *("--module", "harness.training.launch", str(job)),
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
        time.sleep(_FOLLOW_S)


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
    return find_spec(name) is not None


def main(path: Path) -> int:
    """Do one process's part of a job under the eyes of its launcher; return its exit code."""
    job = Job(**json.loads(path.read_text(encoding="utf-8")))
    work = Path(job.work)
    threading.Thread(target=_end_with_launcher, args=(work,), daemon=True).start()
    module, _, name = job.function.partition(":")
    try:
        summary = getattr(import_module(module), name)(**job.arguments)
    except BaseException as error:  # noqa: BLE001 (said to the launcher, whatever it is)
        traceback.print_exc()
        _say_why(work, error)
        return 1
    if summary is not None:
        text = json.dumps(summary, indent=1) + "\n"
        (work / SUMMARY).write_text(text, encoding="utf-8")
    return 0


def _say_why(work: Path, error: BaseException) -> None:
    """Leave the reason for the launcher; the process that fails first is the one to believe."""
    import torch

    from harness.training.placement import FULL

    if isinstance(error, HarnessError):
        reason = str(error)
    elif isinstance(error, torch.OutOfMemoryError):
        reason = FULL
    else:
        return
    try:
        with (work / FAILURE).open("x", encoding="utf-8") as file:
            json.dump({"reason": reason}, file)
    except FileExistsError:
        return


def _end_with_launcher(work: Path) -> None:
    """End this process at once when its launcher holds the working folder no more."""
    while not abandoned(work, os.environ[LAUNCHER]):
        time.sleep(_WATCH_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
