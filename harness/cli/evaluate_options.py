"""The options of `evaluate`, which its benchmarks share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

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

OPTIONS: Mapping[str, Any] = {
    "data": DataOption,
    "answers": AnswersOption,
    "model": ModelOption,
    "judge": JudgeOption,
    "judge_base_url": JudgeUrlOption,
    "judge_key_env": JudgeKeyOption,
    "judge_dialect": JudgeDialectOption,
    "price": PriceOption,
    "prices": PricesOption,
    "budget_usd": BudgetOption,
    "concurrency": ConcurrencyOption,
    "timeout": TimeoutOption,
    "dry_run": DryRunOption,
    "model_base_url": ModelUrlOption,
    "model_key_env": ModelKeyOption,
    "model_dialect": ModelDialectOption,
    "model_price": ModelPriceOption,
    "device": LocalDeviceOption,
    "track": TrackOption,
}
"""How each field of `JudgeOptions` and `EvaluateOptions` is named on the command line."""

Shared = TypeVar("Shared")


def takes(shared: type[Shared]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options that a dataclass declares, as its first argument.

    Args:
        shared: The dataclass; each field is an option with a default.
    """
    names = [field.name for field in fields(shared)]  # type: ignore[arg-type]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=OPTIONS[field.name],
        )
        for field in fields(shared)  # type: ignore[arg-type]
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        # How it is printed comes last, as everywhere.
        parameters = sorted([*named, *options], key=lambda p: p.name == "as_json")

        @functools.wraps(command)
        def run(**given: Any) -> None:
            asked = shared(**{name: given.pop(name) for name in names})
            command(asked, **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate
