"""`report`, `claims` and `verify`: results, verdicts, and checks of published numbers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness import project
from harness.cli import common
from harness.cli.common import bold, console, emit, note, print_json, text_table
from harness.errors import UserError
from harness.selection.names import DEFAULT_PROFILE, Format, parse_seeds
from harness.words import colored, counted, seeds_text

if TYPE_CHECKING:
    from rich.console import Console

    from harness.registry.profile import Profile
    from harness.report.model import Verdict
    from harness.report.results import Results
    from harness.report.verify import Verified
    from harness.selection.experiment import Experiment
    from harness.selection.reporting import Reports

app = typer.Typer(rich_markup_mode=None)

OptionalTableArgument = Annotated[str | None, common.ANY_TABLE]
AllOption = Annotated[bool, common.option("--all", None, "Report every table.")]
FormatOption = Annotated[
    Format | None,
    common.option(
        "--format", None, "How to write it.", default="by the ending of --output, else terminal"
    ),
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
        "Report the published results, not the store's; `--all --format markdown`: the findings; "
        "`--publish`: publish them again, beside today's controls.",
    ),
]
AddOption = Annotated[
    bool,
    common.option(
        "--add", None, "Publish a table's seeds or rows beside those that are published."
    ),
]


@app.command("report", epilog="Example: harness report --all --format html")
def report(
    table: OptionalTableArgument = None,
    every: AllOption = False,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    rows: common.RowsOption = None,
    seeds: common.AskedSeedsOption = None,
    form: FormatOption = None,
    output: OutputOption = None,
    published: PublishedOption = False,
    add: AddOption = False,
    full: common.FullOption = False,
    publish: common.PublishOption = False,
    allow_fewer: common.AllowFewerOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Report the results so far, without running anything.

    The answer comes first, then the summary.

    Without `--seeds`, each table shows its most complete seeds and names the others. `all-offline`
    and `all` skip the tables that the profile can't run, with a note.
    """
    from harness.selection.experiment import select
    from harness.selection.reporting import format_by_ending

    if as_json and form not in (None, Format.json):
        raise UserError(f"`--json` and `--format {form}` contradict each other; leave one out")
    if (table is None) != every:
        raise UserError("name one table, or ask for every one with `--all`")
    chosen = select(table or "all", profile, rows, seeds)
    form = Format.json if as_json else form
    form = form or (format_by_ending(output) if output else Format.terminal)
    folder = common.publishing_folder(publish=publish, allow_fewer=allow_fewer)
    narrowed = seeds is not None or rows is not None
    if published and (narrowed or (folder is not None and chosen.is_group)):
        raise UserError("what is published has the rows and seeds it has; leave out the options")
    if add and (folder is None or seeds is None):
        raise UserError("`--add` goes with `--publish` and `--seeds`")
    if form is Format.html and (folder is not None or rows is not None):
        raise UserError("a page has all rows and is not published; leave out the options")
    _check_form(chosen, form, output, publish=publish)
    if form is Format.html:
        page = chosen.page(published=published, on_note=note)
        common.save(page, output or _page_place(chosen, published=published))
    elif published and chosen.id == "all" and form is Format.markdown:
        text = chosen.findings()
        sys.stdout.write(text) if output is None else common.save(text, output)
    elif folder is None:
        found = chosen.published() if published else chosen.report(on_note=note)
        _write(found, form, output, full=full)
    else:
        written = chosen.publish(
            folder, allow_fewer=allow_fewer, published=published, add=add, on_note=note
        )
        if written is not None:
            _write(written, form, output, full=full)


def _check_form(chosen: Experiment, form: Format, output: Path | None, *, publish: bool) -> None:
    """Refuse a form that a figure, or a publication of several tables, does not have."""
    if chosen.figure is not None and form is Format.html:
        raise UserError(
            f"`{chosen.id}` is a figure and cannot be written as {form}; choose terminal, markdown "
            "or json, or draw all figures on one page with `harness report --all --format html`"
        )
    if publish and chosen.is_group and (form is not Format.terminal or output is not None):
        raise UserError(
            "several tables are published into their own folders; leave out the other options"
        )


def _write(found: Reports, form: Format, output: Path | None, *, full: bool) -> None:
    if output is None and form is Format.terminal:
        show(found, console(), full=full)
        return
    text = found.text(form)
    sys.stdout.write(text) if output is None else common.save(text, output)


def show(found: Reports, out: Console, *, full: bool = False) -> None:
    """Print reports; for several tables without `full`, the answer and a line per table."""
    if full or len(found.tables) <= 1:
        found.show(out, full=full)
        return
    print_answer(found, out)
    headings = ("table", "cells", "state", "gains the paper's way", "title")
    out.print(text_table(headings, map(_in_a_line, found.tables), right={1, 3}))


def print_answer(found: Reports, out: Console) -> None:
    from harness.report.render import print_parts

    if found.answer is not None:
        print_parts(map(colored, found.answer.lines), out, margin=2)
        out.print()


def _in_a_line(results: Results) -> tuple[str, ...]:
    """Return id, number of cells done, state, gains with the paper's sign, and title of a table.

    Gains are `-` if there are none to compare.
    """
    from harness.report.model import STATES

    report = results.report
    states = Counter(cell.state for cell in report.cells)
    words = (f"{states[it]} {it.replace('_', ' ')}" for it in STATES if it != "ok" and states[it])
    agree = sum(summary.signs_agree or 0 for summary in report.summary)
    signs = sum(summary.signs or 0 for summary in report.summary)
    return (
        report.table,
        f"{states['ok']} of {len(report.cells)}",
        ", ".join(words) or "done",
        f"{agree} of {signs}" if signs else "-",
        results.table.title,
    )


def _page_place(chosen: Experiment, *, published: bool) -> Path:
    """Return the default file for a page, named after what it reports, regardless of seeds."""
    what = f"{chosen.id}-{chosen.profile.name}{'-published' if published else ''}"
    return project.work_dir() / f"report-{what}.html"


ClaimsArgument = Annotated[
    list[str] | None,
    common.argument(
        "TABLE...",
        "Tables, figures, YAML files, or `all-offline`.",
        default="all",
    ),
]
PublishedScoresOption = Annotated[
    bool, common.option("--published", None, "Judge the published scores, not the store's.")
]
EvidenceOption = Annotated[
    bool, common.option("--full", None, "Print the evidence for each claim.")
]


@app.command("claims", epilog="Example: harness claims table4")
def claims(
    tables: ClaimsArgument = None,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    seeds: common.AskedSeedsOption = None,
    published: PublishedScoresOption = False,
    full: EvidenceOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Judge the paper's claims from the results so far, without running anything.

    The counts come first, marked claims apart; then the answer; then one line per claim, or one per
    table if there are several.

    Without `--seeds`, each table uses its most complete seeds and names the others.
    """
    from harness.registry.declared import named_profile
    from harness.selection.reporting import judged_claims

    if published and seeds is not None:
        raise UserError("published scores have the seeds they have; leave out `--seeds`")
    asked = None if seeds is None else parse_seeds(seeds)
    scale = named_profile(profile)
    found = judged_claims(tables or [], scale, asked, published=published, on_note=note)
    verdicts = list(found.judged or ())
    if as_json:
        print_json([verdict.as_json() for verdict in verdicts], found.answer)
    elif not verdicts:
        console().print("The paper claims nothing there.")
    else:
        out = console()
        common.print_all(_marks(verdicts), out)
        print_answer(found, out)
        common.print_all(_claims(found.tables, verdicts, full=full, published=published), out)
    _note_judges(scale)


def _note_judges(profile: Profile) -> None:
    """Note which of a profile's real judges are not calibrated."""
    from harness.evaluation.calibration import states

    found = states(profile, project.calibrations_dir())
    lacking = [name for name, held in found.items() if held is None]
    if lacking:
        note(
            f"the judge of {', '.join(lacking)} is not calibrated (harness evaluate alpaca_eval "
            "--calibrate --judge NAME)"
        )


def _marks(verdicts: list[Verdict]) -> Iterator[Any]:
    """Yield the counts of verdicts, marked claims apart."""
    from harness.report.claims import WORDS, tallies

    found = tallies(verdicts)
    lines = [("all", *(str(own.claims) for own in found))]
    lines += [(word.replace("_", " "), *(str(own.words[word]) for own in found)) for word in WORDS]
    lines += [("excluding", *(str(own.excludes_claim + own.excludes_size) for own in found))]
    marks = ((own.mark or "no mark").replace(" ", "\n") for own in found)
    yield text_table(("claims", *marks), lines, right=range(1, 7))
    yield (
        "Marked claims say less and are counted apart. Excluding: inconclusive, and the 95% "
        "interval, not adjusted, excludes the claim or an effect of the paper's size.\n"
    )


def _claims(
    tables: tuple[Results, ...], verdicts: list[Verdict], *, full: bool, published: bool
) -> Iterator[Any]:
    from harness.report.claims import PRIMARY, WORDS, measures, tally

    seeds = {it.table.id: seeds_text(it.report.seeds) for it in tables if it.report.seeds}
    places = {v.place: [own for own in verdicts if own.place == v.place] for v in verdicts}
    lines: list[tuple[str, ...]] = []
    if full:
        for table, own in places.items():
            yield bold(f"{table}, seeds {seeds[table]}" if table in seeds else table)
            for verdict in own:
                yield from _sentences(verdict)
            yield ""
    elif len(places) > 1:
        for table, own in places.items():
            number = tally(own).words
            primary = next((v.word.replace("_", " ") for v in own if v.primary), "-")
            figures = (len(own), *(number[word] for word in WORDS))
            lines.append((table, seeds.get(table, "-"), primary, *map(str, figures)))
        head = ("table", "seeds", "primary claim", "n", "supp.", "contr.", "incon.", "inadm.")
        yield text_table((*head, "not run"), lines, right=range(3, 9))
    else:
        for verdict in verdicts:
            said = measures(verdict)
            word = verdict.word.replace("_", " ") + (" *" if verdict.primary else "")
            numbers = (said[name] for name in ("ours", "95% interval", "paper"))
            lines.append((word, *numbers, verdict.statement))
        yield text_table(("verdict", "ours", "95%", "paper", "claim"), lines, right=range(1, 4))
    yield f"\n{PRIMARY}"
    if not full:
        elsewhere = "" if published else "; what is published of them: --published"
        yield f"More of each claim: --full{elsewhere}"


def _sentences(verdict: Verdict) -> Iterator[Any]:
    """Yield a claim with its verdict, then the statement, measurements and reasons, if any."""
    from rich.padding import Padding

    from harness.report.claims import NONE, measures

    told = {name: text for name, text in measures(verdict).items() if name != "in noise"}
    numbers = ", ".join(f"{name} {text}" for name, text in told.items() if text != NONE)
    if verdict.paper_within_noise:
        numbers += " (within its own noise)"
    reasons = [verdict.reason] if verdict.reason else []
    reasons += [f"{mark.word}: {mark.because}" for mark in verdict.marks]
    yield colored(f"{verdict.name}: {verdict.text}")
    lines = [verdict.statement, *([numbers] if numbers else [])]
    lines += [f"{reason.removesuffix('.')}." for reason in reasons]
    yield Padding("\n".join(lines), (0, 0, 0, 2))


@app.command("verify", epilog="Example: harness verify --json")
def verify(as_json: common.JsonOption = False) -> None:
    """Check that everything published is there, and recompute its numbers.

    Fails at the first difference, and names it.
    """
    from harness.report.verify import Different
    from harness.report.verify import verify as verify_results

    with common.failure_as_json(as_json, lambda why: Different(difference=why)):
        found = verify_results(project.publishing_dir())
    emit(found, as_json, _verified)


def _verified(found: Verified) -> Iterator[str]:
    where = f"{counted(len(found.tables), 'table')} and {counted(len(found.sweeps), 'sweep')}"
    yield (
        f"Everything is as published: {counted(found.cells, 'cell')} in {where} were recomputed "
        "from their per-prompt scores."
    )
    if found.figures:
        yield (
            f"So were {counted(found.points, 'number')} in {counted(len(found.figures), 'figure')}."
        )
    if found.archived:
        archived = ", ".join(found.archived)
        yield f"Only digests checked, since an earlier version recomputes the numbers: {archived}."
    if found.not_covered:
        yield f"Not checked, because no command published them: {', '.join(found.not_covered)}."
