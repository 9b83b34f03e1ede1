"""`verify`: all that was published is there, and its numbers follow from per-prompt scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import JsonOption

if TYPE_CHECKING:
    from harness.report.verify import Verified

StoreOption = Annotated[
    bool, typer.Option("--store", help="Also check the digest of every file in the store.")
]
RecordOption = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="A,B",
        help="First take what stands at these places below results/ for what was published: a "
        "file kept by hand that was edited, or something that was taken away.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("verify", epilog="Example: harness verify --record micro/log.md")(verify)


def verify(
    store: StoreOption = False, record: RecordOption = None, as_json: JsonOption = False
) -> None:
    """Check that all that was published is there, and compute its numbers again.

    The first difference is named, and the command then fails.
    """
    from harness.cli.options import parse_names
    from harness.cli.output import print_json
    from harness.errors import HarnessError
    from harness.project import publishing_dir, results_dir, store_dir
    from harness.report.verify import record as record_places
    from harness.report.verify import verify as verify_results
    from harness.store import Store

    places = parse_names("--record", record)
    try:
        if places is not None:
            record_places(publishing_dir(), places)
        found = verify_results(results_dir(), Store(store_dir()) if store else None)
    except HarnessError as error:
        if as_json:
            print_json({"ok": False, "difference": str(error)})
            raise typer.Exit(error.exit_code) from error
        raise
    if as_json:
        print_json({"ok": True, "difference": None, **found.as_json()})
        return
    _print(found)


def _print(found: Verified) -> None:
    """Say what was checked, how, and what was not."""
    from harness.cli.output import console, counted

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
    for what, places in (
        ("Only files and text checked, there are no values of single prompts", found.pages),
        ("Only digests checked, kept by hand", found.kept),
        ("Not covered, never published", found.not_covered),
    ):
        if places:
            out.print(f"{what}: {', '.join(places)}.", soft_wrap=True)
    if found.stages is not None:
        out.print(
            f"The store's files are what was written: {counted(found.stages, 'stage')}; "
            f"{found.absent} behind published tables and figures are not in this store."
        )
