"""`report`: what the store holds of a table, or of all, beside what the paper prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import (
    DEFAULT_PROFILE,
    DEFAULT_SEEDS,
    JsonOption,
    ProfileOption,
    RowsOption,
    parse_names,
    parse_seeds,
)
from harness.cli.report_writing import Format, save, write, write_report

if TYPE_CHECKING:
    from harness.catalogue.schema import Table
    from harness.report.report import Report

AnyTableArgument = Annotated[
    str | None,
    typer.Argument(metavar="TABLE", help="A table; `harness list` names them.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="Report every table.")]
AskedSeedsOption = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="IDS",
        help="Seeds, as `0`, `0,2` or `0-4`.",
        show_default="those last asked for",
    ),
]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="How to write it.", show_default="terminal")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Where to write it.",
        show_default="stdout; HTML: `report.html` in the work folder",
    ),
]
PublishedOption = Annotated[
    bool, typer.Option("--published", help="HTML of what is published, without the store.")
]
PublishOption = Annotated[
    bool, typer.Option("--publish", help="Also write it to results/, with the scores behind it.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("report", epilog="Example: harness report --all --format html")(report)


def report(
    table: AnyTableArgument = None,
    every: AllOption = False,
    profile: ProfileOption = DEFAULT_PROFILE,
    rows: RowsOption = None,
    seeds: AskedSeedsOption = None,
    form: FormatOption = None,
    output: OutputOption = None,
    published: PublishedOption = False,
    publish: PublishOption = False,
    as_json: JsonOption = False,
) -> None:
    """Report what has been computed, without computing anything.

    The seeds are those of the last run of each table; what is missing of them is said. Of several
    tables (`all-offline`, `all`), those that the profile cannot run are left out, with a note.
    """
    from harness.catalogue.groups import GROUPS
    from harness.cli.figure_commands import is_figure, report_figure
    from harness.errors import UserError

    if as_json and form not in (None, Format.json):
        raise UserError(f"`--json` and `--format {form}` contradict each other; leave one out")
    if (table is None) != every:
        raise UserError("name one table, or ask for every one with `--all`")
    if publish:
        _refuse_stand_ins(profile)
    form = Format.json if as_json else form or Format.terminal
    if table is not None and is_figure(table):
        if form not in (Format.terminal, Format.markdown, Format.json) or published or output:
            raise UserError(
                f"`{table}` is a figure, which is written as terminal, markdown or json to stdout; "
                "a page with all figures is `harness report --all --format html`"
            )
        report_figure(table, profile, rows, seeds, form, publish)
        return
    asked = None if seeds is None else parse_seeds(seeds)
    wanted = parse_names("--rows", rows)
    if published and (form is not Format.html or asked is not None):
        raise UserError("`--published` is for `--format html`, and has the seeds it was made with")
    group = "all" if every else table if table in GROUPS else None
    if group is not None and wanted is not None:
        raise UserError(f"`--rows` names rows of one table; name that table instead of `{group}`")
    if form is Format.html:
        if publish or wanted is not None:
            raise UserError("a page has all rows and is not published; leave out the options")
        _page(group, table, profile, asked, output, published=published)
        return
    if group is None:
        assert table is not None
        _one(table, profile, asked, wanted, form, output, publish=publish)
        return
    if publish:
        from harness.cli.group_commands import publish_group

        if form is not Format.terminal or output is not None:
            raise UserError(
                "several tables are published into their own folders; leave out the other options"
            )
        publish_group(group, profile, asked)
        return
    reports = _several(group, profile, asked)
    write(reports, [cell for found in reports for cell in found.cells], form, output)


def _one(
    table: str,
    profile: str,
    asked: Sequence[int] | None,
    rows: Sequence[str] | None,
    form: Format,
    output: Path | None,
    *,
    publish: bool,
) -> None:
    from harness.cli.asking import planned
    from harness.cli.output import note
    from harness.project import publishing_dir, store_dir
    from harness.report.cells import build_cells
    from harness.store import Store

    runs = planned(table, profile, last_asked(table, profile) if asked is None else asked, rows)
    store = Store(store_dir())
    cells = build_cells(runs, store)
    if publish:
        from harness.report.publish import publish as publish_table

        note(f"published in {publish_table(runs, cells, store, publishing_dir())}")
    write_report(runs, cells, store, form, output=output)


def _refuse_stand_ins(profile: str) -> None:
    """Refuse to publish what was measured on stand-ins.

    Raises:
        UserError: it was, or there is no such profile.
    """
    from harness.catalogue.profile import MEANINGLESS, find_profile
    from harness.cli.asking import all_profiles
    from harness.errors import UserError

    if find_profile(all_profiles(), profile).stand_ins is not None:
        raise UserError(f"at the profile `{profile}` {MEANINGLESS}; publish another profile's")


def _several(group: str, profile: str, asked: Sequence[int] | None) -> list[Report]:
    """Return the reports of a group's tables of which a profile can run anything."""
    from harness.catalogue.groups import members
    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_profiles, all_tables
    from harness.cli.output import note
    from harness.project import store_dir
    from harness.report.cells import build_cells
    from harness.report.page.contents import with_all_rows
    from harness.report.page.from_store import runnable
    from harness.report.report import assemble
    from harness.store import Store

    scale, store = find_profile(all_profiles(), profile), Store(store_dir())
    reports = []
    for table in members(group, all_tables()):
        seeds = last_asked(table.id, profile) if asked is None else asked
        runs, lacking = runnable(table, scale, seeds)
        if runs is None:
            note(f"{table.id} is left out: {lacking[table.rows[0].id]}")
            continue
        reports.append(with_all_rows(assemble(runs, build_cells(runs, store), store)))
    return reports


def _page(
    group: str | None,
    table: str | None,
    profile: str,
    asked: Sequence[int] | None,
    output: Path | None,
    *,
    published: bool,
) -> None:
    from harness.catalogue.groups import members
    from harness.catalogue.load import find_table
    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_profiles, all_tables
    from harness.project import results_dir, store_dir, work_dir
    from harness.report.page.page import as_html
    from harness.store import Store

    declared = all_tables()
    tables = [find_table(declared, table or "")] if group is None else members(group, declared)
    scale = find_profile(all_profiles(), profile)
    if published:
        from harness.report.page.from_results import from_results

        contents = from_results(tables, scale, results_dir())
    else:
        from harness.report.page.from_store import from_store

        def seeds(table: Table) -> Sequence[int]:
            return last_asked(table.id, profile) if asked is None else asked

        contents = from_store(tables, scale, seeds, Store(store_dir()), results_dir())
    save(as_html(contents), work_dir() / "report.html" if output is None else output)


def last_asked(table: str, profile: str) -> tuple[int, ...]:
    """Return the seeds last asked for of a table at a profile, the default ones where none were.

    Raises:
        HarnessError: The record of them is broken.
    """
    from harness.cli.asking import found
    from harness.project import work_dir
    from harness.report.asked import recall

    declared, scale = found(table, profile)  # an unknown name is no path to look at
    return recall(work_dir(), declared.id, scale.name) or parse_seeds(DEFAULT_SEEDS)
