"""What a model says of prompts, as stages: scores (table 7) and topics (figures 6 and 12).

The model is asked at the endpoint that the environment names for `SCORER`. A stage's settings spell
out what it is told, word for word by digest, and how replies are drawn. A prompt that it says
nothing readable of has no value; it is counted, and nothing takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from harness.errors import HarnessError
from harness.runtime import Json, StageContext
from harness.worlds.real.access import access_to
from harness.worlds.real.asking import Judge, Question, Values, ask_about_all
from harness.worlds.real.judging import cost_of
from harness.worlds.real.scoring import SCORES, TOPIC
from harness.worlds.stage_io import (
    SCORE_SCHEMA,
    progress_callback,
    read_prompts,
    write_json,
    write_rows,
)

if TYPE_CHECKING:
    from harness.endpoint.client import Client

TOPIC_SCHEMA = pa.schema([("prompt_id", pa.string()), ("topic", pa.string())])
"""Columns of `topics.parquet`; a prompt without a topic has null."""

Value = TypeVar("Value")


def rate_prompts(ctx: StageContext) -> None:
    """Have a model score prompts; writes `scores.parquet` and `summary.json`.

    Raises:
        UserError: nothing says where the model is served.
        HarnessError: it does not answer, or the settings are not of this version.
    """
    judge, client = _judge(ctx, SCORES)
    prompts = read_prompts(ctx.inputs["prompts"])
    rows: list[dict[str, Any]] = []
    said: dict[str, Any] = {}
    for column, question in SCORES.items():
        # The two questions share the curve's axis, so each has a curve of its own.
        found = _ask(ctx, judge, question, [row["prompt"] for row in prompts])
        rows += [
            {"prompt_id": row["prompt_id"], "column": column, "value": float(value)}
            for row, value in zip(prompts, found.values, strict=True)
            if value is not None
        ]
        said[column] = _counts(found)
    write_rows(ctx.output / "scores.parquet", rows, SCORE_SCHEMA)
    summary = {"judge": judge.model, "n": len(prompts), "missing": said}
    write_json(ctx.output / "summary.json", {**summary, "cost": cost_of(client.receipt)})


def topics_stage(ctx: StageContext) -> None:
    """Have a model sort prompts by topic; writes `topics.parquet` and `summary.json`.

    Raises:
        UserError: nothing says where the model is served.
        HarnessError: it does not answer, or the settings are not of this version.
    """
    judge, client = _judge(ctx, {"topic": TOPIC})
    prompts = read_prompts(ctx.inputs["prompts"])
    found = _ask(ctx, judge, TOPIC, [row["prompt"] for row in prompts])
    rows = [
        {"prompt_id": row["prompt_id"], "topic": topic}
        for row, topic in zip(prompts, found.values, strict=True)
    ]
    write_rows(ctx.output / "topics.parquet", rows, TOPIC_SCHEMA)
    summary = {"judge": judge.model, "n": len(prompts), "missing": {"topic": _counts(found)}}
    write_json(ctx.output / "summary.json", {**summary, "cost": cost_of(client.receipt)})


def _judge(ctx: StageContext, questions: Mapping[str, Question[Any]]) -> tuple[Judge, Client]:
    """Return who is asked, after checking that the questions are those of the settings."""
    model = str(ctx.settings["judge"])
    sampling = cast(dict[str, Json], ctx.settings["sampling"])
    if ctx.settings["asked"] != [q.identity(model, sampling) for q in questions.values()]:
        raise HarnessError(
            "the stage asks a scorer other questions than this version has; plan the run again"
        )
    access = access_to("SCORER", model)
    client = access.client()
    return Judge(client, model, access.concurrency, settings=sampling), client


def _ask(
    ctx: StageContext, judge: Judge, question: Question[Value], texts: list[str]
) -> Values[Value]:
    return ask_about_all(judge, question, texts, progress_callback(ctx, question.name))


def _counts(found: Values[Any]) -> dict[str, int]:
    return {"prompts": found.missing, "refused": found.refused, "broken_replies": found.broken}
