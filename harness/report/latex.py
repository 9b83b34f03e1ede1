"""Reports as LaTeX: a document of booktabs tables, one for each column of each report.

It compiles by itself with pdfLaTeX and needs only `booktabs` and `geometry`; a table can be lifted
out of it as it is. Every text that is data is escaped; a letter that the document's font may lack
is written as its code point.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from harness.report import view
from harness.report.model import Report
from harness.report.view import label_parts

HEAD = r"""\documentclass[a4paper]{article}
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


SAID = ("Inadmissible", "Intervals", "Power", "Controls")
"""What the first caption of a report says of its numbers."""


def as_latex(reports: Iterable[Report]) -> str:
    """Return reports as one LaTeX document."""
    # LaTeX holds back a limited number of tables that found no place yet.
    parts = ["".join(_tables(report)) + "\n\\clearpage\n" for report in reports]
    return f"{HEAD}{''.join(parts)}\n\\end{{document}}\n"


def _tables(report: Report) -> Iterable[str]:
    more = [*view.worth_blocks(report), *view.control_blocks(report)]
    said = {name: text for name, text in view.facts(report) if name in SAID}
    about = " ".join(f"{name}: {text}." for name, text in said.items())
    for block in [*view.column_blocks(report), *more, view.summary_block(report)]:
        title = block.title.removesuffix(".")
        notes = " ".join(block.notes)
        yield _table(block, f"{view.heading(report)}. {title}. {notes} {about}".rstrip())
        about = ""  # once a report


def _table(block: view.Block, caption: str) -> str:
    head = " & ".join(_label(text.replace("\n", " ")) for text in block.head)
    rows = "".join(f"{' & '.join(map(_label, row))} \\\\\n" for row in block.rows)
    return (
        "\n\\begin{table}[htbp]\n\\centering\n\\small\n"
        f"\\caption{{{escape(caption)}}}\n"
        f"\\begin{{tabular}}{{l{'r' * (len(block.head) - 1)}}}\n"
        f"\\toprule\n{head} \\\\\n\\midrule\n{rows}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _label(text: str) -> str:
    """Return a text with its indices set low."""
    parts = (
        rf"\textsubscript{{{escape(part.text)}}}" if part.low else escape(part.text)
        for part in label_parts(text)
    )
    return "".join(parts)


def escape(text: str) -> str:
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
