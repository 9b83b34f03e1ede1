"""The stage of online eva: one segment of a continual run.

Here the prompts' stream, the rewards, the policy and the trainer meet. The stage writes what a
continuation needs (`model/`, `optimizer.safetensors`, `stream.json`), what was trained on
(`trained.parquet`), and what it cost since the run began (`summary.json`).

It is trained in this process; where the profile has hardware of several devices, by a process for
each under `accelerate`, of which only the first has the stream, the reward models and the creator
(`Source`), and writes what the stage leaves. A segment is short and has no checkpoints within: one
that was killed starts again from the end of the one before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from harness.errors import HarnessError
from harness.registry.training import Hardware
from harness.runtime.files import held
from harness.runtime.stage import StageContext
from harness.trainer.online_source import STREAM, Source
from harness.training.checkpoints import append_point
from harness.training.launch import Job, configuration, launch
from harness.training.online import OPTIMIZER, PLAIN, OnlineHyperparameters, train_segment
from harness.training.placement import PATIENCE_S, OnlinePlacement, Server, one_device
from harness.training.steps import Segment
from harness.worlds.lookup import resolve
from harness.worlds.stage_io import PROMPT_SCHEMA, write_json, write_rows

TRAINED_SCHEMA = pa.schema(
    [
        *PROMPT_SCHEMA,
        ("step", pa.int64()),
        ("phase", pa.string()),
        ("informativeness", pa.float64()),
        ("reward_mean", pa.float64()),
        ("reward_best", pa.float64()),
    ]
)
"""Columns of `trained.parquet`: the prompts trained on in this segment, step by step."""


def online_stage(ctx: StageContext) -> None:
    """Train one segment of a continual run; see the module for what it writes."""
    with placed(ctx) as (place, work):
        if place.shared:
            assert work is not None
            launch_segment(ctx, place, work)
        else:
            train_here(ctx, place)


def train_here(ctx: StageContext, place: OnlinePlacement, *, decides: bool = True) -> None:
    """Do this process's part of a segment.

    Args:
        ctx: the stage's settings, inputs and output.
        place: how it is laid on devices.
        decides: whether this is the process that draws, rewards and writes.
    """
    s = ctx.settings
    before = ctx.inputs.get("before")
    hyper = OnlineHyperparameters(**cast(dict[str, Any], s["training"]))
    segment = Segment(cast(int, s["first_step"]), cast(int, s["last_step"]))
    # First, because it loads models that are not to be spread over the processes.
    source = Source(ctx, hyper) if decides else None
    reference = resolve(str(s["policy"]))
    algorithm = _algorithm(str(s["algorithm"]))
    train_segment(
        algorithm.trainer,
        policy=_policy(ctx),
        reference=reference,
        optimizer_state=before / OPTIMIZER if before else None,
        out_dir=ctx.output,
        hyper=hyper,
        segment=segment,
        source=source,
        seed=cast(int, s["seed"]),
        blocks=algorithm.BLOCKS,
        on_log=ctx.report,
        place=place,
    )
    if source is not None:
        write_rows(ctx.output / "trained.parquet", source.trained, TRAINED_SCHEMA)
        write_json(ctx.output / "summary.json", source.summary())
        write_json(ctx.output / STREAM, source.stream.state() | {"costs": source.costs})


def launch_segment(ctx: StageContext, place: OnlinePlacement, work: Path) -> None:
    """Train a segment in several processes.

    Args:
        ctx: the stage, with its hardware.
        place: how it is laid on the devices.
        work: working folder, held by this process.

    Raises:
        UserError: the configuration is missing or does not fit, or a library is missing.
        HarnessError: the training failed; the message has its reason, or the end of its log.
    """
    hardware = Hardware.model_validate(ctx.hardware["training"])
    file = configuration(hardware)
    arguments = {
        "settings": dict(ctx.settings),
        "inputs": {name: str(path) for name, path in ctx.inputs.items()},
        "output": str(ctx.output),
        "work": str(work),
        "seed": ctx.seed,
        "place": asdict(place) | {"device": "cpu" if file.use_cpu else "cuda"},
    }
    job = Job(function=f"{__name__}:train_shared", arguments=arguments, work=str(work))
    launch(job, file, hardware, place.dtype, ctx.report)


def train_shared(
    *,
    settings: dict[str, Any],
    inputs: dict[str, str],
    output: str,
    work: str,
    seed: int,
    place: dict[str, Any],
) -> dict[str, float] | None:
    """Do one process's part of a launched segment; see `launch_segment` for the arguments.

    Returns:
        An empty summary in the first process, None in the others.
    """
    # The reference, too, is spread over the processes, by code that expects each of them to have
    # read it. The shipped configuration for FSDP lets one read for all.
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    from accelerate import PartialState

    # Before anything else, so that all that follows knows how many processes there are.
    processes = PartialState(cpu=place["device"] == "cpu", timeout=timedelta(seconds=PATIENCE_S))

    def keep(step: int, metrics: Mapping[str, float]) -> None:
        append_point(Path(work), step, dict(metrics))

    ctx = StageContext(
        settings,
        {name: Path(folder) for name, folder in inputs.items()},
        Path(output),
        seed,
        on_report=keep,
    )
    server = place["server"]
    first = processes.is_main_process
    train_here(
        ctx,
        OnlinePlacement(**place | {"server": Server(**server) if server else None}),
        decides=first,
    )
    processes.wait_for_everyone()
    processes.destroy_process_group()
    return {} if first else None


@contextmanager
def placed(ctx: StageContext) -> Iterator[tuple[OnlinePlacement, Path | None]]:
    """Yield how the stage is laid on this machine, with a server for rollouts while it lasts.

    Args:
        ctx: the stage's settings and inputs, and the hardware.

    Yields:
        How it is laid, and a working folder that this process holds; None where none is needed.

    Raises:
        UserError: more GPUs are visible than the hardware has, or a server cannot be started.
        HarnessError: the settings ask for hardware and nothing says which.
    """
    numerics = cast(dict[str, Any] | None, ctx.settings.get("numerics"))
    if numerics is None:
        yield PLAIN, None
        return
    if ctx.unfinished is None or "training" not in ctx.hardware:
        raise HarnessError(
            "the stage is trained on hardware of the profile, and nothing says on which: run it by "
            "`harness run` with a profile that has `hardware`"
        )
    hardware = Hardware.model_validate(ctx.hardware["training"])
    shared = hardware.devices > 1
    place = OnlinePlacement(
        device="cuda" if shared else one_device(),
        devices=hardware.devices,
        dtype=numerics["dtype"],
        attention=numerics["attention"],
        micro_batch=hardware.micro_batch_of(str(ctx.settings["algorithm"])),
        gradient_checkpointing=hardware.gradient_checkpointing,
        shared=shared,
    )
    if hardware.rollouts is None and not shared:
        yield place, None
        return
    with held(ctx.unfinished) as work:
        if hardware.rollouts is None:
            yield place, work
            return
        from harness.training.rollout_server import rollout_server

        with rollout_server(
            hardware.rollouts,
            _policy(ctx),
            work,
            dtype=place.dtype,
            max_length=cast(dict[str, int], ctx.settings["training"])["max_length"],
        ) as server:
            yield replace(place, server=server), work


def _policy(ctx: StageContext) -> Path:
    """Return the checkpoint that the segment starts from."""
    before = ctx.inputs.get("before")
    return before / "model" if before else resolve(str(ctx.settings["policy"]))


def _algorithm(name: str) -> Any:
    if name == "oaif":
        from harness.training import oaif

        return oaif
    from harness.training import rloo

    return rloo
