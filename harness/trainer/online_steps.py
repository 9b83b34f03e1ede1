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
    """Train one segment of a continual run; see the module for what it writes."""
    s = ctx.settings
    before = ctx.inputs.get("before")
    hyper = OnlineHyperparameters(**cast(dict[str, Any], s["training"]))
    segment = Segment(cast(int, s["first_step"]), cast(int, s["last_step"]))
    source = Source(ctx, hyper)
    reference = resolve(str(s["policy"]))
    policy = before / "model" if before else reference
    algorithm = _algorithm(str(s["algorithm"]))
    with placed(ctx, policy, hyper.max_length) as place:
        train_segment(
            algorithm.trainer,
            policy=policy,
            reference=reference,
            moments=before / OPTIMIZER if before else None,
            out_dir=ctx.output,
            hyper=hyper,
            segment=segment,
            source=source,
            seed=source.seed,
            blocks=algorithm.BLOCKS,
            on_log=ctx.report,
            place=place,
        )
    write_rows(ctx.output / "trained.parquet", source.trained, TRAINED_SCHEMA)
    write_json(ctx.output / "summary.json", source.summary())
    write_json(ctx.output / STREAM, source.stream.state() | {"costs": source.costs})


@contextmanager
def placed(ctx: StageContext, policy: Path, max_length: int) -> Iterator[OnlinePlacement]:
    """Yield how the stage is laid on this machine, with a server for rollouts while it lasts.

    Args:
        ctx: the stage's settings and the hardware.
        policy: checkpoint that a server loads.
        max_length: longest prompt and rollout together, in tokens.

    Raises:
        UserError: several GPUs are visible, or a server cannot be started.
        HarnessError: the settings ask for hardware and nothing says which.
    """
    numerics = cast(dict[str, Any] | None, ctx.settings.get("numerics"))
    if numerics is None:
        yield PLAIN
        return
    if ctx.unfinished is None or "training" not in ctx.hardware:
        raise HarnessError(
            "the stage is trained on hardware of the profile, and nothing says on which: run it by "
            "`harness run` with a profile that has `hardware`"
        )
    hardware = Hardware.model_validate(ctx.hardware["training"])
    place = OnlinePlacement(
        device=one_device(),
        dtype=numerics["dtype"],
        attention=numerics["attention"],
        micro_batch=hardware.micro_batch_of(str(ctx.settings["algorithm"])),
        gradient_checkpointing=hardware.gradient_checkpointing,
    )
    if hardware.rollouts is None:
        yield place
        return
    from harness.training.rollout_server import rollout_server

    with (
        held(ctx.unfinished) as work,
        rollout_server(
            hardware.rollouts, policy, work, dtype=place.dtype, max_length=max_length
        ) as server,
    ):
        yield replace(place, server=server)


def _algorithm(name: str) -> Any:
    if name == "oaif":
        from harness.training import oaif

        return oaif
    from harness.training import rloo

    return rloo
