"""What a model says of prompts, as stages: scores (table 7) and topics (figures 6 and 12).

The model is asked at the endpoint that the environment names for `SCORER`. A stage's settings spell
out what it is told, word for word by digest, and how replies are drawn. A prompt that it says
nothing readable of has no value; it is counted, and nothing takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from harness.catalogue.profile import Benchmark
from harness.errors import HarnessError
from harness.store import Json, StageContext
from harness.worlds.real.access import access_to
from harness.worlds.real.asking import SETTINGS, Judge, Question, Values, ask_about_all
from harness.worlds.real.judging import SCORE_COLUMNS, cost_of, schema_of, twentieths
from harness.worlds.real.scoring import SCORES
from harness.worlds.real.topics import TOPIC
from harness.worlds.stage_io import read_prompts, write_json, write_rows

if TYPE_CHECKING:
    from harness.evaluation.judging.client import Client

TOPIC_COLUMNS = {"prompt_id": "string", "topic": "string"}
"""Columns of `topics.parquet`; a prompt without a topic has null."""

Value = TypeVar("Value")


def rating_settings(benchmark: Benchmark) -> dict[str, Json]:
    """Return the settings that identify how a model rates prompts.

    Args:
        benchmark: what a profile says of the judge of prompts.
    """
    said = {
        "temperature": benchmark.temperature,
        "top_p": benchmark.top_p,
        "max_tokens": benchmark.max_new_tokens,
    }
    sampling = cast(dict[str, Json], {k: value for k, value in said.items() if value is not None})
    asked = [question.identity(benchmark.judge, sampling) for question in SCORES.values()]
    return {"asked": cast(Json, asked), "sampling": sampling}


def topic_settings(model: str) -> dict[str, Json]:
    """Return the settings that identify how a model sorts prompts by topic."""
    return {"judge": model, "asked": [TOPIC.identity(model)], "sampling": dict(SETTINGS)}


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
    write_rows(ctx.output / "scores.parquet", rows, schema_of(SCORE_COLUMNS))
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
    write_rows(ctx.output / "topics.parquet", rows, schema_of(TOPIC_COLUMNS))
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
    return ask_about_all(judge, question, texts, twentieths(ctx, question.name))


def _counts(found: Values[Any]) -> dict[str, int]:
    return {"prompts": found.missing, "refused": found.refused, "broken_replies": found.broken}
