"""Render reports for the terminal, in 80 columns, and as Markdown and JSON."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.registry.claims import FigureClaims, figure_claims
from harness.report import view
from harness.report.answer import answer_to, finding
from harness.report.blocks import assumption_blocks, fact_blocks, number_blocks
from harness.report.claims import WORDS, all_verdicts, tally, totals, why_unjudged
from harness.report.league import league_pictures, over_even
from harness.report.model import CheckedControl
from harness.report.plots import Picture
from harness.report.publication import PAGE
from harness.report.results import Results
from harness.report.view import Block
from harness.words import colored, seeds_text

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from rich.console import Console, RenderableType

    from harness.registry.schema import TrainingKind


WIDTH, WIDEST = 80, 100
"""Columns when not writing to a terminal, and at most."""


def print_report(results: Results, console: Console, full: bool = True) -> None:
    """Print the report of a table; in short the answer, the main column, and a line on the rest."""
    # The margin keeps a break at the edge or a combining character from making a line too long.
    print_parts(_parts(results, full), console, margin=2)


def print_parts(parts: Iterable[RenderableType], console: Console, *, margin: int = 0) -> None:
    for part in parts:
        console.print(part, width=min(console.width, WIDEST) - margin, highlight=False)


def as_text(results: Results, width: int = WIDTH, full: bool = True) -> str:
    from rich.console import Console

    file = io.StringIO()
    print_report(results, Console(file=file, width=width, color_system=None), full)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _parts(results: Results, full: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    answer, facts = answer_to([results], results.verdicts), dict(view.facts(results))
    yield Text(view.heading(results), style="bold")
    yield from map(colored, answer.lines)
    yield from block_lines(number_blocks(results, full))
    if not full:
        yield Text(f"\n{_shortly(results, facts)}", style="dim")
        return
    yield from block_lines([*fact_blocks(results), Block("Behind the numbers")])
    yield names_and_texts(facts.items(), style="dim")
    yield from block_lines(assumption_blocks(results))


def _shortly(results: Results, facts: Mapping[str, str]) -> str:
    """Return what the numbers rest on, in a line; each fact up to its first semicolon."""
    report = results.report
    seeds = seeds_text(report.seeds) + view.fewer_seeds(report)
    said = [f"seeds {seeds}"] if report.seeds else []
    said += [
        f"{name.lower()} {facts[name].partition(';')[0]}"
        for name in ("Intervals", "Controls", "Stages")
        if name in facts
    ]
    return view.capital(f"{'; '.join(said)}.")


def names_and_texts(pairs: Iterable[tuple[str, str]], style: str = "") -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in pairs:
        grid.add_row(Text(name, style="dim"), colored(text, style))
    return grid


def block_lines(blocks: Iterable[Block]) -> Iterator[RenderableType]:
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    for block in blocks:
        yield Text(block.title) if block.level > 2 else Text(f"\n{block.title}", style="bold")
        yield from (Text(note, style="dim") for note in block.notes)
        if block.head:
            table = Table(
                box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
            )
            table.add_column(Text(block.head[0]), overflow="fold")
            for title in block.head[1:]:
                table.add_column(Text(title), justify="right", vertical="bottom", no_wrap=True)
            for row in block.rows:
                table.add_row(*map(Text, row))
            yield table
        yield from (Padding(Text(item), (0, 0, 0, 2)) for item in block.items)


# --- Markdown ---

TEMPLATES = Path(__file__).parent / "templates"

MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~&$!#])")
BLOCK_START = re.compile(r"^(\d*)([-+=.)])(?=\s|$|[-=])")


def as_markdown(results: Results) -> str:
    parts: list[Block | Picture] = [*number_blocks(results), *league_pictures(results)]
    parts += [*fact_blocks(results), *assumption_blocks(results)]
    lines = answer_to([results], results.verdicts).lines
    return markdown(view.heading(results), view.facts(results), parts, lines=lines)


def markdown(
    heading: str,
    facts: Iterable[tuple[str, str]],
    parts: Iterable[Block | Picture],
    drawn: Picture | None = None,
    lines: Iterable[str] = (),
) -> str:
    """Return a report of any kind as Markdown, starting with `lines` and the plot `drawn`."""
    made = template("report.md.j2")
    return made.render(heading=heading, facts=facts, parts=parts, drawn=drawn, lines=lines)


def escape(text: str) -> str:
    """Escape text so that Markdown shows it literally, on one line and in one table cell."""
    escaped = MARKDOWN_SPECIAL.sub(r"\\\1", view.plain(text))
    # At the start of a line, these would start a list or underline a heading.
    return BLOCK_START.sub(r"\1\\\2", escaped)


def environment(
    folder: Path, filters: Mapping[str, Callable[..., Any]], **options: Any
) -> Environment:
    """Return a Jinja environment for packaged templates, in which undefined names are errors."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
    made.filters |= filters
    return made


@functools.cache
def template(name: str) -> Template:
    # No HTML autoescaping: templates pass all text through the filter `md` instead.
    return environment(TEMPLATES, {"md": escape}, autoescape=False).get_template(name)


# --- `results/README.md` ---


def as_findings(worlds: Iterable[tuple[Sequence[Results], Iterable[Picture]]], root: Path) -> str:
    """Return `results/README.md`, from each profile's published tables, and plots of no table."""
    return template("findings.md.j2").render(worlds=[_world(*it, root) for it in worlds])


def _world(
    tables: Sequence[Results], drawn: Iterable[Picture], results_dir: Path
) -> dict[str, object]:
    profile = tables[0].profile
    shown = [it for it in tables if it.report.has_numbers]
    names = {it.table.id for it in shown}
    pages = sorted((results_dir / profile.name).rglob(PAGE))
    others = [path for path in pages if path.parent.name not in names]
    # Claims on figures are judged where figures are published.
    verdicts = all_verdicts(shown, figure_claims() if others else FigureClaims(), profile)
    unjudged = why_unjudged(verdicts, profile)
    return {
        "profile": profile.name,
        "scale": profile.scale,
        "answer": answer_to(tables, verdicts),
        "totals": totals(verdicts) if verdicts and not unjudged else [],
        "unjudged": unjudged,
        "power": [line for it in shown for line in _power_lines(it)],
        "silent": [it for it in verdicts if it.word in ("inadmissible", "not_run")],
        "log": (results_dir / profile.name / "log.md").is_file(),
        "sections": [_section(it) for it in shown],
        "figures": list(_others(others, results_dir, drawn)),
    }


def _power_lines(results: Results) -> Iterator[tuple[str, ...]]:
    report, verdicts, nothing = results.report, results.verdicts, view.APPLIES_NOT
    found = tally(verdicts).words
    words = [str(found[word]) if verdicts else nothing for word in WORDS]
    name, seeds = results.table.heading.partition(":")[0], seeds_text(report.seeds)
    if not report.power:
        yield (name, seeds, _passed(report.controls), nothing, nothing, *words)
    for power in report.power:
        which = f"{name}, {power.training}" if len(report.power) > 1 else name
        doses = nothing if power.in_doses is None else f"{power.in_doses:.1f}"
        decimals = view.our_decimals(results, results.table.column(power.column))
        passed = _passed([it for it in report.controls if it.training == power.training])
        yield (
            which,
            _seeds_of(results, power.training),
            passed,
            f"{power.detectable:.{decimals}f}",
            doses,
            *words,
        )


def _seeds_of(results: Results, training: TrainingKind) -> str:
    """Return the seeds of the rows that have numbers and a kind of training."""
    table, cells = results.table, (it for it in results.report.cells if it.mean is not None)
    own = (it.seeds for it in cells if training in table.training_of(table.row(it.row)))
    return seeds_text(sorted({seed for seeds in own for seed in seeds}))


def _passed(controls: Sequence[CheckedControl]) -> str:
    if not controls:
        return view.APPLIES_NOT
    unsure = sum(control.state == "open" for control in controls)
    return view.controls_passed(controls) + (f", {unsure} open" if unsure else "")


def _section(results: Results) -> dict[str, object]:
    table, report, column = results.table, results.report, results.table.main_column
    decimals, printed = view.our_decimals(results, column), view.printed_decimals(results, column)
    names = view.row_names(report)
    judged_by = f"{results.profile.called(column)}, {column.printed}"
    rows = [
        (names[cell.row], view.gain(cell, decimals), view.paper_gain(cell, printed))
        for cell in report.of_column(column.id)
        if cell.gain is not None
    ]
    theirs = "paper's gain" if table.paper_values else "paper's sign"
    if report.leagues:
        judged_by = f"{results.profile.called(column)}, area over even draws"
        members = (own for league in report.leagues for own in league.members)
        rows = [
            (names[own.row], over_even(own.gain), "") for own in members if own.gain is not None
        ]
    return {
        "heading": table.heading,
        "link": f"{report.profile}/{table.id}/{PAGE}",
        "question": table.question,
        "finding": finding(results, results.verdicts),
        "inadmissible": view.capital(view.inadmissible_reason(report)),
        "seeds": seeds_text(report.seeds) + view.fewer_seeds(report),
        "column": judged_by,
        "rows": rows,
        "paper": None if table.is_ours else theirs,
    }


def _others(
    pages: Iterable[Path], results_dir: Path, drawn: Iterable[Picture]
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    said = {shown.title: shown.findings for shown in drawn}
    for page in pages:
        heading = re.search(r"^# +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        title = page.parent.name if heading is None else heading[1]
        yield title, page.relative_to(results_dir).as_posix(), said.get(view.plain(title), ())
