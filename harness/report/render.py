"""Reports written down: on the terminal, as Markdown, as CSV, as JSON and as LaTeX.

The words and the small tables are those of `harness.report.view`; HTML is `harness.report.page`. On
the terminal every line is legible at 80 characters. CSV has one line for each cell, every number
with all its digits; what there is not is `NA`, which statistics programs read as missing, and
`state` says why.
"""

from __future__ import annotations

import csv
import functools
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.report import reward_study, view
from harness.report.model import Cell, Report
from harness.report.plots import Picture, curves_picture
from harness.report.publication import dumps
from harness.report.reward_study import study_blocks
from harness.report.view_details import detail_blocks

if TYPE_CHECKING:
    from jinja2 import Template
    from rich.console import Console, RenderableType


WIDTH = 80
"""Width of a text that goes to no terminal."""

WIDEST = 100
"""Wider terminals get no wider lines: figures far from their row's name are hard to follow."""


def print_report(report: Report, console: Console | None = None, details: bool = True) -> None:
    """Print a report.

    `details` are where the training prompts lie, what the creator did, and the assumptions.
    """
    from rich.console import Console

    console = console or Console(highlight=False)
    # A line break right at the edge, or a combining character, must not make a line too long.
    width = min(console.width, WIDEST) - 2
    for part in _parts(report, details):
        console.print(part, width=width, highlight=False)


def as_text(report: Report, width: int = WIDTH, details: bool = True) -> str:
    """Return a report as plain text, no line longer than `width` columns."""
    from rich.console import Console

    file = io.StringIO()
    print_report(report, Console(file=file, width=width, color_system=None), details)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _parts(report: Report, details: bool) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    yield Text(view.heading(report), style="bold")
    yield names_and_texts(view.facts(report))
    for block in [*view.blocks(report), *study_blocks(report)]:
        yield from block_lines(block)
    reasons = report.failures
    if reasons:
        yield Text("\nMissing", style="bold")
        yield from (Padding(Text(reason, style="red"), (0, 0, 0, 2)) for reason in reasons)
    if details:
        for block in detail_blocks(report):
            yield from block_lines(block)
        yield from _assumptions(report)


def names_and_texts(pairs: Iterable[tuple[str, str]]) -> RenderableType:
    """Return names and texts in two columns."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in pairs:
        grid.add_row(Text(name, style="dim"), Text(text))
    return grid


def block_lines(block: view.Block) -> Iterator[RenderableType]:
    """Yield a block: its title, its notes and its rows."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    yield Text(f"\n{block.title}", style="bold")
    yield from (Text(note, style="dim") for note in block.notes)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(block.head[0]), overflow="fold")
    for title in block.head[1:]:
        table.add_column(Text(title), justify="right", vertical="bottom", no_wrap=True)
    for name, *figures in block.rows:
        table.add_row(Text(name), *map(Text, figures))
    yield table


def _assumptions(report: Report) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    yield Text("\nAssumptions", style="bold")
    for title, lines in view.assumption_groups(report):
        yield Text(title)
        for why, what in lines:
            yield Padding(Text.assemble(what, (f" — {why}", "dim")), (0, 0, 0, 2))
    title, notes = view.table_notes(report)
    if notes:
        yield Text(title)
        yield from (Padding(Text(note), (0, 0, 0, 2)) for note in notes)


_TEMPLATES = Path(__file__).parent / "templates"

_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>|~&$!#])")
_OPENS = re.compile(r"^(\d*)([-+=.)])(?=\s|$|[-=])")


def as_markdown(report: Report) -> str:
    """Return a report as GitHub-flavoured Markdown."""
    notes_title, notes = view.table_notes(report)
    return template("report.md.j2").render(
        heading=view.heading(report),
        facts=view.facts(report),
        blocks=[*view.blocks(report), *study_blocks(report)],
        failures=report.failures,
        details=detail_blocks(report),
        pictures=pictures(report),
        groups=view.assumption_groups(report),
        notes_title=notes_title,
        notes=notes,
    )


def pictures(report: Report, runs: Iterable[str] = ()) -> list[Picture]:
    """Return the pictures that belong to a table's report.

    Of a report that was read back, `runs` are those whose curves were published.
    """
    found = []
    if report.curves:
        found.append(curves_picture(report.curves, report.curves))
    elif of_runs := list(runs):
        found.append(curves_picture(of_runs))
    if report.study is not None and report.study.whole:
        found.append(reward_study.picture(report.study))
    return found


def escape(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line and within one table cell."""
    escaped = _MEANS_SOMETHING.sub(r"\\\1", view.plain(text))
    # At the start of a line these would open a list or underline a heading.
    return _OPENS.sub(r"\1\\\2", escaped)


@functools.cache
def template(name: str) -> Template:
    """Return a packaged template of Markdown; every text in it goes through the filter `md`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The output is Markdown, whose own escaping every text goes through in the template.
        autoescape=False,
    )
    environment.filters["md"] = escape
    return environment.get_template(name)


MISSING = "NA"

CSV_HEAD = (
    "table",
    "row",
    "label",
    "column",
    "benchmark",
    "unit",
    "profile",
    "scale",
    "seeds",
    "state",
    "mean",
    "ci_low",
    "ci_high",
    "baseline_row",
    "gain",
    "gain_ci_low",
    "gain_ci_high",
    "paper",
    "paper_gain",
    "worth",
    "worth_low",
    "worth_high",
    "worth_beyond",
    "paper_worth",
    "paper_worth_beyond",
    "runs",
    "judge",
    "reward_models",
    "creators",
)
"""The columns; numbers are in the unit of the column, seeds and runs are separated by blanks, and
models, whose names hold blanks, by `; `. What a score is worth is in multiples of the human
prompts; a score outside the curve has no number, but the side: `above` or `below`."""

MODELS = ("reward_models", "creators")


def as_csv(reports: Iterable[Report]) -> str:
    """Return the cells of some reports as CSV, with one line of headings."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_HEAD, lineterminator="\n")
    writer.writeheader()
    for report in reports:
        names = view.row_names(report)
        columns = {column.id: column for column in report.table.columns}
        for cell in report.cells:
            column = columns[cell.column]
            writer.writerow({
                **{k: _text(value) for k, value in cell.as_json().items() if k in CSV_HEAD},
                **_worth_in_csv(cell),
                **{name: _inert("; ".join(getattr(cell, name))) or MISSING for name in MODELS},
                "label": _inert(names[cell.row]),
                "benchmark": _inert(view.plain(f"{column.benchmark}, {column.printed}")),
                "unit": column.unit,
                "paper": cell.paper_printed or MISSING,
            })  # fmt: skip
    return text.getvalue()


def _worth_in_csv(cell: Cell) -> dict[str, str]:
    """Return what a cell's score, and the paper's, are worth in human prompts."""
    ours, paper = cell.worth, cell.paper_worth
    return {
        "worth": _text(ours and ours.times),
        "worth_low": _text(ours and ours.low),
        "worth_high": _text(ours and ours.high),
        "worth_beyond": _text(ours and ours.beyond),
        "paper_worth": _text(paper and paper.times),
        "paper_worth_beyond": _text(paper and paper.beyond),
    }


def _inert(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _text(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, list):
        return " ".join(map(str, value)) or MISSING
    return repr(value) if isinstance(value, float) else str(value)


def as_json(cells: Sequence[Cell]) -> str:
    """Return cells as a JSON list, with a final newline."""
    return dumps([cell.as_json() for cell in cells])


LATEX_HEAD = r"""\documentclass[a4paper]{article}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs}
\begin{document}
"""

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\char36{}",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "{''}",
    "`": r"\`{}",
    # Two hyphens in a row would become one dash.
    "-": "{-}",
    "±": r"$\pm$",
    "−": r"$-$",
    "·": r"$\cdot$",
    "→": r"$\rightarrow$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "×": r"$\times$",
    "–": "--",
    "—": "---",
    "“": "{``}",
    "”": "{''}",
    "’": "'",
    "…": r"\ldots{}",
    "\u00b2": r"$^2$",
}

_GREEK = "alpha beta gamma delta eta theta lambda mu pi rho sigma tau phi".split()

_SYMBOLS = _SPECIAL | {
    unicodedata.lookup(f"GREEK SMALL LETTER {'LAMDA' if n == 'lambda' else n.upper()}"): rf"$\{n}$"
    for n in _GREEK
}

_BARRED = re.compile("(.)\u0304")


_SAID = ("Inadmissible", "Intervals", "Power", "Controls")
"""What the first caption of a report says of its numbers."""


def as_latex(reports: Iterable[Report]) -> str:
    """Return reports as one LaTeX document of booktabs tables, one for each column of each report.

    It compiles by itself with pdfLaTeX and needs only `booktabs` and `geometry`; a table can be
    lifted out of it as it is. Every text that is data is escaped; a letter that the document's font
    may lack is written as its code point.
    """
    # LaTeX holds back a limited number of tables that found no place yet.
    parts = ["".join(_latex_tables(report)) + "\n\\clearpage\n" for report in reports]
    return f"{LATEX_HEAD}{''.join(parts)}\n\\end{{document}}\n"


def _latex_tables(report: Report) -> Iterable[str]:
    more = [*view.worth_blocks(report), *view.control_blocks(report)]
    said = {name: text for name, text in view.facts(report) if name in _SAID}
    about = " ".join(f"{name}: {text}." for name, text in said.items())
    for block in [*view.column_blocks(report), *more, view.summary_block(report)]:
        title = block.title.removesuffix(".")
        notes = " ".join(block.notes)
        yield _latex_table(block, f"{view.heading(report)}. {title}. {notes} {about}".rstrip())
        about = ""  # once a report


def _latex_table(block: view.Block, caption: str) -> str:
    head = " & ".join(_label(text.replace("\n", " ")) for text in block.head)
    rows = "".join(f"{' & '.join(map(_label, row))} \\\\\n" for row in block.rows)
    return (
        "\n\\begin{table}[htbp]\n\\centering\n\\small\n"
        f"\\caption{{{latex_escape(caption)}}}\n"
        f"\\begin{{tabular}}{{l{'r' * (len(block.head) - 1)}}}\n"
        f"\\toprule\n{head} \\\\\n\\midrule\n{rows}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _label(text: str) -> str:
    """Return a text with its indices set low."""
    parts = (
        rf"\textsubscript{{{latex_escape(part.text)}}}" if part.low else latex_escape(part.text)
        for part in view.label_parts(text)
    )
    return "".join(parts)


def latex_escape(text: str) -> str:
    """Return a text that LaTeX prints as it is, on one line."""
    plain = view.plain(text)
    shown = []
    end = 0
    for match in _BARRED.finditer(plain):
        shown += [_characters(plain[end : match.start()]), rf"$\bar{{{_bare(match[1])}}}$"]
        end = match.end()
    return "".join([*shown, _characters(plain[end:])])


def _bare(character: str) -> str:
    """Return what stands under a bar, in mathematics."""
    return character if character.isascii() and character.isalnum() else r"\cdot"


def _characters(text: str) -> str:
    return "".join(_SYMBOLS.get(character) or _letter(character) for character in text)


def _letter(character: str) -> str:
    """Return a letter that the font has, accents included, or the code point of another."""
    if character.isascii():
        return character
    accented = (
        "\u00c0" <= character <= "\u00ff" and len(unicodedata.normalize("NFD", character)) == 2
    )
    return character if accented else f"[U+{ord(character):04X}]"
