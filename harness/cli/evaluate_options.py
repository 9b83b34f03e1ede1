"""The options of `evaluate`, which its benchmarks share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JUDGE_KEY = "OPENAI_API_KEY"
MODEL_KEY = "MODEL_API_KEY"
"""Names of the environment variables with keys; the judge's is never sent to a model's server."""

DEFAULT_CONCURRENCY = 8
MOST_CONCURRENCY = 256

BenchmarksArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="BENCHMARK...", help="Benchmarks.", show_default="all"),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The benchmark's own files.",
        show_default="those fetched",
    ),
]
AnswersOption = Annotated[
    Path | None, typer.Option("--answers", metavar="FILE", help="The model's answers.")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="NAME", help="The model's name in scores; a folder answers locally."
    ),
]
ModelUrlOption = Annotated[
    str | None,
    typer.Option("--model-base-url", metavar="URL", help="An endpoint that has the model answer."),
]
ModelKeyOption = Annotated[
    str, typer.Option("--model-key-env", metavar="VAR", help="The variable with its key.")
]
ModelPriceOption = Annotated[
    str | None,
    typer.Option(
        "--model-price",
        metavar="IN,OUT",
        help="Dollars for a million tokens of the model.",
        show_default="nothing",
    ),
]
JudgeOption = Annotated[
    str | None,
    typer.Option("--judge", metavar="MODEL", help="The judge.", show_default="the benchmark's own"),
]
JudgeUrlOption = Annotated[
    str | None,
    typer.Option("--judge-base-url", metavar="URL", help="Its endpoint.", show_default="OpenAI's"),
]
JudgeKeyOption = Annotated[
    str, typer.Option("--judge-key-env", metavar="VAR", help="The variable with its key.")
]
PriceOption = Annotated[
    str | None,
    typer.Option(
        "--price",
        metavar="IN,OUT",
        help="Dollars for a million tokens of the judge.",
        show_default="its list price",
    ),
]
PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices", metavar="FILE", help="A list of prices, as YAML.", show_default="that shipped"
    ),
]
JudgeDialectOption = Annotated[
    str | None,
    typer.Option(
        "--judge-dialect",
        metavar="NAME",
        help="How it is asked: `plain`, `thinking` without a temperature, or `silenced`.",
        show_default="by its name",
    ),
]
ModelDialectOption = Annotated[
    str | None,
    typer.Option(
        "--model-dialect",
        metavar="NAME",
        help="How the model is asked, likewise.",
        show_default="by its name",
    ),
]
LocalDeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Where a local model answers.")
]
TrackOption = Annotated[
    bool, typer.Option("--track/--no-track", help="Write the scores to MLflow as well.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option("--budget-usd", metavar="USD", help="Stop before this command spends more."),
]
ConcurrencyOption = Annotated[
    int, typer.Option("--concurrency", metavar="N", help="Most requests at once.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Seconds to wait for a reply.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show requests and price, and send nothing.")
]
JudgmentsOption = Annotated[
    Path | None,
    typer.Option("--judgments", metavar="FILE", help="Published judgments; nothing is sent."),
]
BattlesOption = Annotated[
    Path | None,
    typer.Option("--battles", metavar="FILE", help="Published battles; nothing is sent."),
]
AnnotationsOption = Annotated[
    Path | None,
    typer.Option("--annotations", metavar="FILE", help="Published annotations; nothing is sent."),
]
AnnotatorOption = Annotated[
    str | None,
    typer.Option(
        "--annotator",
        metavar="NAME",
        help="The annotator of alpaca_eval.",
        show_default="alpaca_eval_gpt4_turbo_fn",
    ),
]
LengthControlOption = Annotated[
    Path | None,
    typer.Option(
        "--length-control",
        metavar="FILE",
        help="AlpacaEval's df_gamed.csv.",
        show_default="that in --data, or fetched",
    ),
]
LengthDigestOption = Annotated[
    str | None,
    typer.Option(
        "--length-control-sha256",
        metavar="HEX",
        help="The digest it must have.",
        show_default="that of the published file",
    ),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--results", metavar="FILE", help="Results of lm-eval; nothing is run."),
]
LmEvalModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="A model's folder or name; its name in scores."),
]
LmEvalUrlOption = Annotated[
    str | None,
    typer.Option("--model-base-url", metavar="URL", help="An endpoint that completes text."),
]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="What runs a local model: hf, vllm.")
]
EngineArgumentsOption = Annotated[
    str | None,
    typer.Option("--engine-args", metavar="N=V,..", help="Further arguments of the engine."),
]
BatchSizeOption = Annotated[
    str, typer.Option("--batch-size", metavar="N", help="Prompts at once, or `auto`.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="As torch names it.", show_default="lm-eval's"),
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="Only so many items of each task, to try."),
]
TasksOption = Annotated[
    str | None,
    typer.Option("--tasks", metavar="A,B", help="Columns of table 9.", show_default="all six"),
]
