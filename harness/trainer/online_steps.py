"""The stage of online eva: one segment of a continual run.

Here the prompts' stream, the rewards, the policy and the trainer meet. The stage writes what a
continuation needs (`model/`, `optimizer.safetensors`, `stream.json`), what was trained on
(`trained.parquet`), and what it cost since the run began (`summary.json`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from harness.catalogue.hardware import Hardware
from harness.errors import HarnessError
from harness.store.stage import StageContext
from harness.store.unfinished import held
from harness.trainer.assets import resolve
from harness.trainer.files import PROMPT_SCHEMA, write_json, write_rows
from harness.trainer.online_launch import launch_segment
from harness.trainer.online_source import STREAM, Source
from harness.training.online import OPTIMIZER, PLAIN, OnlineHyperparameters, train_segment
from harness.training.online_placement import OnlinePlacement, one_device
from harness.training.steps import Segment

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
    """Train one segment of a continual run; see the module for what it writes.

    It is trained in this process; where the profile has hardware of several devices, by a process
    for each under `accelerate`.
    """
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
        moments=before / OPTIMIZER if before else None,
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
