"""The stage of online eva: one segment of a continual run.

Here the prompts' stream, the rewards, the policy and the trainer meet. The stage writes what a
continuation needs (`model/`, `optimizer.safetensors`, `stream.json`), what was trained on
(`trained.parquet`), and what it cost since the run began (`summary.json`).
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from harness.store.stage import StageContext
from harness.trainer.assets import resolve
from harness.trainer.files import PROMPT_SCHEMA, write_json, write_rows
from harness.trainer.online_source import STREAM, Source
from harness.training.online import OPTIMIZER, OnlineHyperparameters, train_segment
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
    algorithm = _algorithm(str(s["algorithm"]))
    train_segment(
        algorithm.trainer,
        policy=before / "model" if before else reference,
        reference=reference,
        moments=before / OPTIMIZER if before else None,
        out_dir=ctx.output,
        hyper=hyper,
        segment=segment,
        source=source,
        seed=source.seed,
        blocks=algorithm.BLOCKS,
        on_log=ctx.report,
    )
    write_rows(ctx.output / "trained.parquet", source.trained, TRAINED_SCHEMA)
    write_json(ctx.output / "summary.json", source.summary())
    write_json(ctx.output / STREAM, source.stream.state() | {"costs": source.costs})


def _algorithm(name: str) -> Any:
    if name == "oaif":
        from harness.training import oaif

        return oaif
    from harness.training import rloo

    return rloo
