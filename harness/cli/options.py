"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="A table or figure; `harness list` names them.")
]
TablesArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A table (`harness list` names them), `all-offline` or `all`.",
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
    str, typer.Option("--profile", metavar="NAME", help="The scale to run at.")
]
RowsOption = Annotated[
    str | None,
    typer.Option("--rows", metavar="A,B", help="Only these rows and their baselines."),
]
SeedsOption = Annotated[
    str, typer.Option("--seeds", metavar="IDS", help="Seeds, as `0`, `0,2` or `0-4`.")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", help="Worker processes.", show_default="one per core"),
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
