"""`report`: what the store holds of a table, or of all, beside what the paper prints."""

from __future__ import annotations

import sys
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
from harness.cli.publishing import AllowFewerOption, PublishOption, publishing
from harness.cli.report_writing import Format, save, write, write_report

if TYPE_CHECKING:
    from harness.catalogue.schema import Table
    from harness.cli.publishing import Publishing
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
        show_default="the most complete",
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
        show_default="stdout; HTML: a file in the work folder, named after what it reports",
    ),
]
PublishedOption = Annotated[
    bool,
    typer.Option(
        "--published",
        help="HTML of what is published, without the store; with --all its findings as Markdown.",
    ),
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
    allow_fewer: AllowFewerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report what has been computed, without computing anything.

    The seeds are the most complete ones of each table; those left out are named. Of several tables
    (`all-offline`, `all`), those that the profile cannot run are left out, with a note.
    """
    from harness.catalogue.groups import GROUPS, members
    from harness.cli.asking import all_tables
    from harness.cli.figure_commands import is_figure, report_figure
    from harness.errors import UserError

    if as_json and form not in (None, Format.json):
        raise UserError(f"`--json` and `--format {form}` contradict each other; leave one out")
    if (table is None) != every:
        raise UserError("name one table, or ask for every one with `--all`")
    group = "all" if every else table if table in GROUPS else None
    names = [table or ""] if group is None else [t.id for t in members(group, all_tables())]
    to = publishing(publish, allow_fewer, names, profile)
    form = Format.json if as_json else form or Format.terminal
    if table is not None and is_figure(table):
        if form not in (Format.terminal, Format.markdown, Format.json) or published or output:
            raise UserError(
                f"`{table}` is a figure, which is written as terminal, markdown or json to stdout; "
                "a page with all figures is `harness report --all --format html`"
            )
        report_figure(table, profile, rows, seeds, form, to)
        return
    asked = None if seeds is None else parse_seeds(seeds)
    wanted = parse_names("--rows", rows)
    findings = published and group == "all" and form is Format.markdown
    if published and ((form is not Format.html and not findings) or asked is not None):
        raise UserError(
            "`--published` is for `--format html`, or `--all --format markdown`, and has the seeds "
            "it was made with"
        )
    if group is not None and wanted is not None:
        raise UserError(f"`--rows` names rows of one table; name that table instead of `{group}`")
    if form is Format.html or findings:
        if to is not None or wanted is not None:
            raise UserError("a page has all rows and is not published; leave out the options")
        _page(group, table, profile, asked, output, form, published=published)
        return
    if group is None:
        assert table is not None
        _one(table, profile, asked, wanted, form, output, to)
        return
    if to is not None:
        from harness.cli.group_commands import publish_group

        if form is not Format.terminal or output is not None:
            raise UserError(
                "several tables are published into their own folders; leave out the other options"
            )
        publish_group(group, profile, asked, to)
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
    to: Publishing | None,
) -> None:
    from harness.cli.asking import planned
    from harness.cli.output import note
    from harness.project import store_dir
    from harness.report.cells import build_cells
    from harness.store import Store

    runs = planned(table, profile, shown(table, profile, rows) if asked is None else asked, rows)
    store = Store(store_dir())
    cells = build_cells(runs, store)
    if to is not None:
        from harness.report.publish import publish

        fewer = table in to.fewer
        folder = publish(runs, cells, store, to.results_dir, allow_fewer=fewer)
        note(f"published in {folder}")
    write_report(runs, cells, store, form, output=output)


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
        seeds = shown(table.id, profile) if asked is None else asked
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
    form: Format,
    *,
    published: bool,
) -> None:
    from harness.catalogue.groups import members
    from harness.catalogue.load import find_table
    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_figures, all_profiles, all_tables
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
            return shown(table.id, profile) if asked is None else asked

        contents = from_store(
            tables, scale, seeds, Store(store_dir()), results_dir(), all_figures().values()
        )
    if form is Format.markdown:
        from harness.report.findings import as_findings

        text = as_findings(contents, results_dir())
        if output is None:
            sys.stdout.write(text)
        else:
            save(text, output)
        return
    if output is None:
        output = work_dir() / _page_name(group or tables[0].id, scale.name, asked, published)
    save(as_html(contents), output)


def _page_name(what: str, profile: str, asked: Sequence[int] | None, published: bool) -> str:
    """Return the file name of a page: what it reports, so that another one does not replace it."""
    from harness.report.view import seeds_text

    text = "" if asked is None else seeds_text(asked)
    if len(text) > 40 and asked is not None:  # a file name has some 250 characters
        text = f"{asked[0]}-to-{asked[-1]}-{len(asked)}"
    seeds = [f"seeds-{text}"] if text else []
    return "-".join(["report", what, profile, *seeds, *(["published"] * published)]) + ".html"


def shown(table: str, profile: str, rows: Sequence[str] | None = None) -> tuple[int, ...]:
    """Return the seeds that a report shows when it is not told which, and say what it leaves out.

    They are the most complete of those ever asked for, the default ones where none were.

    Raises:
        UserError: There is no such table, profile or row.
        HarnessError: The record of the seeds asked for is broken.
    """
    from harness.cli.asking import found
    from harness.cli.output import counted, note
    from harness.project import store_dir, work_dir
    from harness.report.asked import shown_seeds
    from harness.report.view import seeds_text
    from harness.store import Store

    declared, scale = found(table, profile)  # an unknown name is no path to look at
    seeds = shown_seeds(work_dir(), Store(store_dir()), declared, scale, rows)
    if seeds is None:
        return parse_seeds(DEFAULT_SEEDS)
    if seeds.left_out:
        others = ", ".join(f"{seed} ({number})" for seed, number in seeds.left_out.items())
        note(
            f"{declared.id}: shown are the most complete seeds, {seeds_text(seeds.seeds)}, with "
            f"{seeds.whole} of {counted(seeds.runs, 'run')} done; left out, with how many are "
            f"done: {others}; `--seeds` names others"
        )
    return seeds.seeds
