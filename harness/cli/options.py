"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.selection.names import LARGEST_SEED

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from harness.runtime import EngineOptions


def complete_table(incomplete: str) -> list[str]:
    """Return the tables and figures that a shell completes a beginning to."""
    from harness.registry.declared import all_figures, all_tables

    return [name for name in (*all_tables(), *all_figures()) if name.startswith(incomplete)]


def complete_tables(incomplete: str) -> list[str]:
    """Return the tables, and the names of several, that a beginning is completed to."""
    groups = [name for name in ("all-offline", "all") if name.startswith(incomplete)]
    return [*complete_table(incomplete), *groups]


def complete_profile(incomplete: str) -> list[str]:
    """Return the profiles that a beginning is completed to."""
    from harness.registry.declared import all_profiles

    return [name for name in all_profiles() if name.startswith(incomplete)]


TableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A table or figure; `harness list` names them.",
        autocompletion=complete_table,
    ),
]
TablesArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A table (`harness list` names them), `all-offline` or `all`.",
        autocompletion=complete_tables,
    ),
]
SkipUnsupportedOption = Annotated[
    bool,
    typer.Option(
        "--skip-unsupported",
        help="Of `all-offline` or `all`, leave out the tables that the profile cannot run.",
    ),
]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The scale to run at.",
        autocompletion=complete_profile,
    ),
]
RowsOption = Annotated[
    str | None,
    typer.Option("--rows", metavar="A,B", help="Only these rows and their baselines."),
]
SeedsOption = Annotated[
    str, typer.Option("--seeds", metavar="IDS", help="Seeds, as `0`, `0,2` or `0-4`.")
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="ID", min=0, max=LARGEST_SEED, help="The seed.")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", help="Worker processes.", show_default="one per core"),
]


class EngineName(StrEnum):
    """Where stages are computed."""

    local = "local"
    ray = "ray"
    slurm = "slurm"


EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="What computes: this machine, or a cluster.")
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="The Ray cluster, with `--engine ray`.",
        show_default="Ray is started on this machine",
    ),
]
SbatchOption = Annotated[
    str | None,
    typer.Option(
        "--sbatch",
        metavar="ARGS",
        help="More arguments of `sbatch`, with `--engine slurm`, as `--partition=gpu --time=9:00`.",
        show_default="none",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
MaxGpuHoursOption = Annotated[
    float | None,
    typer.Option(
        "--max-gpu-hours",
        metavar="H",
        help="Fail if what is left is estimated to take more GPU hours.",
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget-usd",
        metavar="B",
        help="Fail if judge and creator are estimated to cost more dollars.",
    ),
]
PublishOption = Annotated[
    bool, typer.Option("--publish", help="Also write it to results/, with what it follows from.")
]
AllowFewerOption = Annotated[
    str | None,
    typer.Option(
        "--allow-fewer",
        metavar="A,B",
        help="Publish these though they are not whole, or have less than what stands there.",
    ),
]
AskedSeedsOption = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="IDS",
        help="Seeds, as `0`, `0,2` or `0-4`.",
        show_default="the most complete",
    ),
]


def engine_options(
    engine: EngineName, ray_address: str | None, sbatch: str | None
) -> EngineOptions:
    """Return what is asked about where stages are computed.

    Raises:
        UserError: An option is of another engine.
    """
    from harness.runtime import EngineOptions

    asked = EngineOptions(engine=engine.value, ray_address=ray_address, sbatch=sbatch)
    asked.check()
    return asked


def takes(options: type[BaseModel]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the fields of a model as options, and the model as its first argument.

    A field's text is the option's help, `Shown` how its value and default are called in it.
    """
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[field.annotation, _option(name, field)],
        )
        for name, field in options.model_fields.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        # How it is printed comes last, as everywhere.
        together = sorted([*named, *parameters], key=lambda p: p.name == "as_json")

        @functools.wraps(command)
        def run(**given: Any) -> None:
            asked = options(**{name: given.pop(name) for name in options.model_fields})
            command(asked, **given)

        run.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in together}
        return run

    return decorate


def _option(name: str, field: FieldInfo) -> Any:
    """Return the option that a field of a model is on the command line."""
    from harness.evaluation.options import Shown

    shown = next((found for found in field.metadata if isinstance(found, Shown)), None)
    flag = f"--{name.replace('_', '-')}"
    if field.annotation is bool and field.default:
        flag = f"{flag}/--no-{name.replace('_', '-')}"
    if shown is None:
        return typer.Option(flag, help=field.description)
    return typer.Option(
        flag,
        metavar=shown.value,
        min=shown.least,
        help=field.description,
        show_default=shown.default or True,
    )
