"""An online segment under `accelerate`: what launches it, and what each of its processes does.

    accelerate launch ... -m harness.trainer.online_launch JOB.json

Only the first process has the stream, the reward models and the creator (`Source`), and writes what
the stage leaves. A segment is short and has no checkpoints within: one that was killed starts again
from the end of the one before.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.catalogue.hardware import Hardware
from harness.training.launch import FAILURE, SUMMARY, do
from harness.training.launched import JOB, configuration, launch

if TYPE_CHECKING:
    from harness.store.stage import StageContext
    from harness.training.online_placement import OnlinePlacement


@dataclass(frozen=True, kw_only=True)
class OnlineJob:
    """A segment for several processes; all of it is JSON.

    Attributes:
        settings: the stage's.
        inputs: folder of each of its inputs.
        output: existing folder that receives what the stage leaves.
        work: working folder, held by the process that launched the job.
        seed: the stage's seed.
        place: the fields of `OnlinePlacement`.
    """

    settings: dict[str, Any]
    inputs: dict[str, str]
    output: str
    work: str
    seed: int
    place: dict[str, Any]


def launch_segment(ctx: StageContext, place: OnlinePlacement, work: Path) -> None:
    """Train a segment in several processes; see `online_steps` for what they write.

    Args:
        ctx: the stage, with its hardware.
        place: how it is laid on the devices.
        work: working folder, held by this process.

    Raises:
        UserError: the configuration is missing or does not fit, or a library is missing.
        HarnessError: the training failed; the message has its reason, or the end of its log.
    """
    from harness.training.checkpoints import rewind_curves

    hardware = Hardware.model_validate(ctx.hardware["training"])
    file = configuration(hardware)
    job = OnlineJob(
        settings=dict(ctx.settings),
        inputs={name: str(path) for name, path in ctx.inputs.items()},
        output=str(ctx.output),
        work=str(work),
        seed=ctx.seed,
        place=asdict(place) | {"device": "cpu" if file.use_cpu else "cuda"},
    )
    for name in (SUMMARY, FAILURE):
        (work / name).unlink(missing_ok=True)
    rewind_curves(work, 0)
    (work / JOB).write_text(json.dumps(asdict(job), indent=1) + "\n", encoding="utf-8")
    launch(file, hardware, place.dtype, work, "harness.trainer.online_launch", ctx.report)


def main(path: Path) -> int:
    """Do a process's part of a job; return its exit code."""
    job = OnlineJob(**json.loads(path.read_text(encoding="utf-8")))
    return do(Path(job.work), lambda: _train(job))


def _train(job: OnlineJob) -> dict[str, float] | None:
    """Train; return an empty summary in the first process, None in the others."""
    # The reference, too, is spread over the processes, by code that expects each of them to have
    # read it. The shipped configuration for FSDP lets one read for all.
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    from accelerate import PartialState

    from harness.store.stage import StageContext
    from harness.trainer.online_steps import train_here
    from harness.training.checkpoints import append_point
    from harness.training.online_placement import PATIENCE_S, OnlinePlacement, Server

    work, server = Path(job.work), job.place["server"]
    # Before anything else, so that all that follows knows how many processes there are.
    processes = PartialState(
        cpu=job.place["device"] == "cpu", timeout=timedelta(seconds=PATIENCE_S)
    )

    def keep(step: int, metrics: Mapping[str, float]) -> None:
        append_point(work, step, dict(metrics))

    ctx = StageContext(
        job.settings,
        {name: Path(folder) for name, folder in job.inputs.items()},
        Path(job.output),
        job.seed,
        on_report=keep,
    )
    place = OnlinePlacement(**job.place | {"server": Server(**server) if server else None})
    first = processes.is_main_process
    train_here(ctx, place, decides=first)
    processes.wait_for_everyone()
    processes.destroy_process_group()
    return {} if first else None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
