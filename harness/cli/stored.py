"""`store`: what the store holds, whether it is whole, and what nothing needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import JsonOption
from harness.cli.output import console, print_json
from harness.errors import UserError
from harness.project import store_dir
from harness.words import counted

if TYPE_CHECKING:
    from harness.selection.stored import Stored

app = typer.Typer(rich_markup_mode=None)

VerifyOption = Annotated[bool, typer.Option("--verify", help="Read every file, and check it.")]
PruneOption = Annotated[
    bool,
    typer.Option(
        "--prune", help="Say what no declared run of this work folder needs; with --yes, delete it."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Delete what --prune names.")]


@app.command("store", epilog="Example: harness store --prune --yes")
def store(
    verify: VerifyOption = False,
    prune: PruneOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what the store holds, by kind of stage, and what can be given back.

    Needed is what the declared tables and figures need with the seeds that this work folder has
    run; stages of sweeps and of other folders' runs count as unneeded. Of online runs the weights
    and optimizer states are given back that the run has gone on from; reports stay as they are.
    Whatever is deleted can be computed again.
    """
    from harness.runtime import Store
    from harness.selection import stored

    if yes and not prune:
        raise UserError("`--yes` deletes what `--prune` names: give both, or neither")
    found = stored.inventory(Store(store_dir()))
    broken = stored.verify(found) if verify else None
    said = stored.summary(found, pruned=prune and yes, broken=broken)
    if prune and yes:
        stored.refuse_to_empty(found)
        stored.prune(found)
    if as_json:
        print_json(said)
    else:
        _print(said, prune)
    stored.refuse_broken(broken or [])


def _print(said: Stored, prune: bool) -> None:
    from rich.table import Table

    out = console()
    table = Table(box=None, pad_edge=False)
    for name in ("kind", "stages", "size", "not needed", "can go"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for row in said.kinds:
        can_go = row.unneeded_size + row.spent_size
        gone = counted(row.unneeded, "stage") if row.unneeded else ""
        table.add_row(row.kind, f"{row.stages:,}", _size(row.size), gone, _size(can_go))
    out.print(table)
    out.print(
        f"{_size(said.size)} in {said.place}, judged by {counted(said.runs, 'declared run')} of "
        "this work folder",
        soft_wrap=True,
    )
    if said.broken == []:
        out.print("every file is what was written")
    if said.pruned:
        out.print(f"{_size(said.prunable)} were given back")
    elif prune:
        out.print(
            f"{_size(said.prunable)} can be given back: `harness store --prune --yes` does it",
            soft_wrap=True,
        )


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1000
    return f"{size:.3g} TB"
