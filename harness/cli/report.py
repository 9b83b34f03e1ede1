"""`report`, `claims` and `verify`: what was computed, and how far to believe it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness import project
from harness.cli import common
from harness.cli.common import Grid, console, json_text, note, print_json, warn
from harness.errors import HarnessError, UserError
from harness.selection.names import DEFAULT_PROFILE, Format, parse_seeds
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.registry.profile import Profile
    from harness.report.answer import Answer
    from harness.report.model import Verdict
    from harness.report.verify import Verified
    from harness.selection.reporting import Judged, Reports
    from harness.selection.selection import Selection

app = typer.Typer(rich_markup_mode=None)


AnyTableArgument = Annotated[
    str | None,
    common.argument(
        "TABLE",
        "A table; `harness list` names them.",
        default=False,
        autocompletion=common.complete_tables,
    ),
]
AllOption = Annotated[bool, common.option("--all", None, "Report every table.")]
FormatOption = Annotated[
    Format | None, common.option("--format", None, "How to write it.", default="terminal")
]
OutputOption = Annotated[
    Path | None,
    common.option(
        "--output",
        "FILE",
        "Where to write it.",
        default="stdout; HTML: a file in the work folder, named after what it reports",
    ),
]
PublishedOption = Annotated[
    bool,
    common.option(
        "--published",
        None,
        "Report what is published, without the store; of --all, Markdown has its findings.",
    ),
]


@app.command("report", epilog="Example: harness report --all --format html")
@common.takes(common.Publish)
def report(
    publish: common.Publish,
    table: AnyTableArgument = None,
    every: AllOption = False,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    rows: common.RowsOption = None,
    seeds: common.AskedSeedsOption = None,
    form: FormatOption = None,
    output: OutputOption = None,
    published: PublishedOption = False,
    full: common.FullOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Report what has been computed, without computing anything.

    First stands the answer, then the summary; `--full` prints the rest.

    The seeds are the most complete ones of each table; those left out are named. Of several tables
    (`all-offline`, `all`), those that the profile cannot run are left out, with a note.
    """
    from harness.selection.selection import select

    if as_json and form not in (None, Format.json):
        raise UserError(f"`--json` and `--format {form}` contradict each other; leave one out")
    if (table is None) != every:
        raise UserError("name one table, or ask for every one with `--all`")
    chosen = select(table or "all", profile, rows, seeds)
    names = [t.id for t in chosen.tables] if chosen.is_group else [chosen.id]
    to = publish.to(names)
    form = Format.json if as_json else form or Format.terminal
    drawn = form in (Format.terminal, Format.markdown, Format.json) and not published
    if chosen.figure is not None and (not drawn or output):
        raise UserError(
            f"`{table}` is a figure, which is written as terminal, markdown or json to stdout; "
            "a page with all figures is `harness report --all --format html`"
        )
    findings = published and chosen.id == "all" and form is Format.markdown
    if published and (seeds is not None or rows is not None or to is not None):
        raise UserError("what is published has the rows and seeds it has; leave out the options")
    if form is Format.html and (to is not None or rows is not None):
        raise UserError("a page has all rows and is not published; leave out the options")
    if findings:
        text = chosen.findings()
        sys.stdout.write(text) if output is None else common.save(text, output)
        return
    if form is Format.html:
        page = chosen.page(published=published, on_note=note)
        common.save(page, output or _page_place(chosen, published=published))
        return
    found: Reports | None
    if published:
        found = chosen.published()
    elif to is None:
        found = chosen.report(on_note=note)
    elif chosen.is_group and (form is not Format.terminal or output is not None):
        raise UserError(
            "several tables are published into their own folders; leave out the other options"
        )
    else:
        found = chosen.publish(to.results_dir, to.fewer, on_note=note, on_warning=warn)
    if found is None:
        return
    if form is Format.terminal and output is None:
        show(found, console(), full=full)
    elif output is None:
        sys.stdout.write(_written(found, form))
    else:
        common.save(_written(found, form), output)


def _written(found: Reports, form: Format) -> str:
    text = found.text(form)
    return json_text(text, found.answer) if form is Format.json else text


def show(found: Reports, out: Console, *, full: bool = False) -> None:
    """Print reports; in short, of several tables the answer and a line for each."""
    if found.answer is None or full or len(found.tables) == 1:
        found.show(out, full=full)
        return
    print_answer(found.answer, out)
    headings = ("table", "cells", "state", "gains the paper's way", "title")
    out.print(Grid(headings, found.closing, right="13"))


def print_answer(answer: Answer, out: Console) -> None:
    from harness.report.render import names_and_texts, print_parts

    print_parts([names_and_texts(answer.lines)], out, margin=2)
    out.print()


def _page_place(chosen: Selection, *, published: bool) -> Path:
    """Return the file of a page: named after what it reports, so that no other one replaces it."""
    from harness.report.view import seeds_text

    text = "" if chosen.seeds is None else seeds_text(chosen.seeds)
    if len(text) > 40 and chosen.seeds is not None:  # a file name has some 250 characters
        text = f"{chosen.seeds[0]}-to-{chosen.seeds[-1]}-{len(chosen.seeds)}"
    seeds = [f"seeds-{text}"] if text else []
    words = ["report", chosen.id, chosen.profile.name, *seeds, *(["published"] * published)]
    return project.work_dir() / f"{'-'.join(words)}.html"


ClaimsArgument = Annotated[
    list[str] | None,
    common.argument(
        "TABLE...",
        "Tables, figures, or `all-offline`, the tables without online training.",
        default="all",
    ),
]
PublishedScoresOption = Annotated[
    bool, common.option("--published", None, "Judge the published scores, not those of the store.")
]


@app.command("claims", epilog="Example: harness claims table4")
def claims(
    tables: ClaimsArgument = None,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    seeds: common.AskedSeedsOption = None,
    published: PublishedScoresOption = False,
    full: common.FullOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Judge the paper's claims by what has been computed, without computing anything.

    First stands the answer, then a line for each claim, of several tables for each table; `--full`
    prints what each claim rests on.

    The seeds are the most complete ones of each table; those left out are named.
    """
    from harness.registry.declared import named_profile
    from harness.selection.reporting import judge

    if published and seeds is not None:
        raise UserError("published scores have the seeds they have; leave out `--seeds`")
    asked = None if seeds is None else parse_seeds(seeds)
    scale = named_profile(profile)
    found = judge(tables or [], scale, asked, published=published, on_note=note)
    if as_json:
        items = [verdict.as_json() for verdict in found.verdicts]
        sys.stdout.write(json_text(items, found.answer))
    else:
        _print_claims(found, full=full, published=published)
    _note_judges(scale)


def _note_judges(profile: Profile) -> None:
    """Say which real judges of a profile are not calibrated."""
    from harness.evaluation.calibration import states

    found = states(profile, project.calibrations_dir())
    lacking = [name for name, held in found.items() if held is None]
    if lacking:
        note(
            f"the judge of {', '.join(lacking)} is not calibrated: their verdicts rest on "
            f"judges held against nothing (harness calibrate --profile {profile.asked_as})"
        )


def _print_claims(found: Judged, *, full: bool, published: bool) -> None:
    from harness.report.claims import PRIMARY, share_tested

    out = console()
    if not found.verdicts:
        out.print("The paper claims nothing there.")
        return
    if found.answer is not None:
        print_answer(found.answer, out)
    several = len({verdict.table for verdict in found.verdicts}) > 1
    if full:
        _print_all_claims(found, out)
    elif several:
        _print_counts(found, out)
    else:
        lines = [_in_short(verdict) for verdict in found.verdicts]
        out.print(Grid(("verdict", "ours", "95%", "paper", "claim"), lines, right="123"))
    out.print(f"\n{share_tested(found.verdicts)}.")
    out.print(PRIMARY)
    if not full:
        elsewhere = "" if published else "; what is published of them: --published"
        out.print(f"More of each claim: --full{elsewhere}")


def _in_short(verdict: Verdict) -> tuple[str, ...]:
    from harness.report.claims import line

    said = line(verdict)
    star = " *" if verdict.primary else ""
    word = verdict.verdict.replace("_", " ") + star
    return (word, said.margin, said.interval, said.paper, verdict.statement)


def _print_counts(found: Judged, out: Console) -> None:
    from harness.report.claims import counts
    from harness.report.model import TESTED
    from harness.report.view import seeds_text

    seeds = {report.table_id: seeds_text(report.seeds) for report in found.reports}
    lines = []
    for table in dict.fromkeys(verdict.table for verdict in found.verdicts):
        own = [verdict for verdict in found.verdicts if verdict.table == table]
        number = counts(own)
        primary = next((v.verdict.replace("_", " ") for v in own if v.primary), "-")
        tested = [number[word] for word in TESTED]
        figures = (len(own), *tested, len(own) - sum(tested))
        lines.append((table, seeds.get(table) or "-", primary, *map(str, figures)))
    head = ("table", "seeds", "primary claim", "n", "supp.", "contr.", "incon.", "under.")
    out.print(Grid((*head, "other"), lines, right="345678"))


def _print_all_claims(found: Judged, out: Console) -> None:
    from rich.padding import Padding

    from harness.report.view import seeds_text
    from harness.words import coloured

    of = {report.table_id: report.seeds for report in found.reports if report.seeds}
    for table in dict.fromkeys(verdict.table for verdict in found.verdicts):
        seeds = f", seeds {seeds_text(of[table])}" if table in of else ""
        out.print(f"{table}{seeds}", style="bold")
        for verdict in found.verdicts:
            if verdict.table == table:
                first, *rest = _sentences(verdict)
                out.print(coloured(first))
                out.print(Padding("\n".join(rest), (0, 0, 0, 2)))
        out.print()


def _sentences(verdict: Verdict) -> list[str]:
    """Return a verdict as lines of a few words or sentences each, of which any width makes sense.

    First the claim with its verdict, then what the paper says, what was measured, and why it is
    not decided; what there is not is left out.
    """
    from harness.report.claims import NONE, line

    said = line(verdict)
    measures = {
        "ours": said.margin,
        "95% interval": said.interval,
        "p": said.p,
        "adjusted": said.adjusted,
        "detectable": said.detectable,
        "paper": said.paper,
    }
    numbers = ", ".join(f"{name} {text}" for name, text in measures.items() if text != NONE)
    if verdict.paper_within_noise:
        numbers += " (within its own noise)"
    reasons = [verdict.reason] if verdict.reason else []
    if verdict.by_construction:
        reasons.append(f"by construction here: {verdict.by_construction}")
    return [
        f"{said.name}: {said.verdict}",
        said.statement,
        *([numbers] if numbers else []),
        *(f"{reason.removesuffix('.')}." for reason in reasons),
    ]


StoreOption = Annotated[
    bool, common.option("--store", None, "Also check the digest of every file in the store.")
]


@app.command("verify", epilog="Example: harness verify --store")
def verify(store: StoreOption = False, as_json: common.JsonOption = False) -> None:
    """Check that all that was published is there, and compute its numbers again.

    The first difference is named, and the command then fails.
    """
    from harness.report.verify import Different
    from harness.report.verify import verify as verify_results
    from harness.runtime import Store

    try:
        found = verify_results(project.results_dir(), Store(project.store_dir()) if store else None)
    except HarnessError as error:
        if as_json:
            print_json(Different(difference=str(error)))
            raise typer.Exit(error.exit_code) from error
        raise
    if as_json:
        print_json(found)
        return
    _print_verified(found)


def _print_verified(found: Verified) -> None:
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
        ("Not covered, published by no command", found.not_covered),
    ):
        if places:
            out.print(f"{what}: {', '.join(places)}.")
    if found.stages is not None:
        out.print(
            f"The store's files are what was written: {counted(found.stages, 'stage')}; "
            f"{found.absent} behind published tables and figures are not in this store."
        )
