"""`verify`: the published numbers follow from the published per-prompt scores."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.options import JsonOption

StoreOption = Annotated[
    bool, typer.Option("--store", help="Also check the digest of every file in the store.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("verify", epilog="Example: harness verify --store")(verify)


def verify(store: StoreOption = False, as_json: JsonOption = False) -> None:
    """Compute every published number again from the values of single prompts behind it.

    The first difference is named, and the command then fails.
    """
    from harness.cli.output import console, counted, print_json
    from harness.errors import HarnessError
    from harness.project import results_dir, store_dir
    from harness.report.verify import verify as verify_results
    from harness.store import Store

    try:
        found = verify_results(results_dir(), Store(store_dir()) if store else None)
    except HarnessError as error:
        if as_json:
            print_json({"ok": False, "difference": str(error)})
            raise typer.Exit(error.exit_code) from error
        raise
    if as_json:
        print_json({"ok": True, "difference": None, **found.as_json()})
        return
    out = console()
    where = f"{counted(len(found.tables), 'table')} and {counted(len(found.sweeps), 'sweep')}"
    out.print(
        f"All is as published: {counted(found.cells, 'cell')} of {where} follow from their "
        "per-prompt scores."
    )
    if found.figures:
        out.print(
            f"So do {counted(found.points, 'number')} of {counted(len(found.figures), 'figure')} "
            "from the values of single prompts behind them."
        )
    if found.unchecked:
        out.print(f"Without per-prompt scores, and so not checked: {', '.join(found.unchecked)}.")
    if found.stages is not None:
        out.print(
            f"The store's files are what was written: {counted(found.stages, 'stage')}; "
            f"{found.absent} behind published tables and figures are not in this store."
        )
