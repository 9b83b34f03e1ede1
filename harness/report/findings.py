"""`results/README.md`: what is published, and what it says in one computed sentence each.

The page has no number of its own: sentences come from the verdicts on the published scores
(`harness.report.page.finding`), gains from the published cells. It is written by

    harness report --all --published --format markdown --output results/README.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from harness.report import view
from harness.report.claims import share_tested, totals
from harness.report.page.contents import Contents, Section
from harness.report.page.finding import claimed_column, finding
from harness.report.publication import PAGE
from harness.report.render import template

_HEADING = re.compile(r"^# +(.+)$", re.MULTILINE)


def as_findings(contents: Contents, results_dir: Path) -> str:
    """Return the findings as Markdown whose links lead from the folder of results.

    Args:
        contents: What is published of all tables at one profile.
        results_dir: The folder of published results.
    """
    profile = contents.profile
    shown = [section for section in contents.sections if section.has_numbers]
    tables = {section.report.table.id for section in shown}
    pages = sorted((results_dir / profile.name).rglob(PAGE))
    others = [path for path in pages if path.parent.name not in tables]
    return template("findings.md.j2").render(
        profile=profile.name,
        scale=profile.scale,
        verdicts=totals(contents.verdicts),
        tested=share_tested(contents.verdicts),
        claims=len(contents.verdicts),
        sections=[_section(section) for section in shown],
        figures=list(_others(others, results_dir, contents)),
    )


def _section(section: Section) -> dict[str, object]:
    report = section.report
    column = claimed_column(report, section.verdicts)
    decimals, printed = view.our_decimals(report, column), view.printed_decimals(report, column)
    cells = {cell.row: cell for cell in report.cells if cell.column == column.id}
    names = view.row_names(report)
    rows = [
        (names[row.id], view.gain(cell, decimals), view.paper_gain(cell, printed))
        for row in report.table.rows
        if (cell := cells[row.id]).gain is not None
    ]
    return {
        "heading": report.table.heading,
        "link": f"{report.profile.name}/{report.table.id}/{PAGE}",
        "question": report.table.question,
        "finding": finding(report, section.verdicts),
        "seeds": view.seeds_text(report.seeds),
        "column": f"{column.benchmark}, {column.printed}",
        "rows": rows,
        "ours": report.table.is_ours,
    }


def _others(
    pages: Iterable[Path], results_dir: Path, contents: Contents
) -> Iterable[tuple[str, str, tuple[str, ...]]]:
    """Yield heading, link and findings of each published page that is no table."""
    said = {shown.picture.title: shown.picture.findings for shown in contents.pictures}
    for page in pages:
        heading = _HEADING.search(page.read_text(encoding="utf-8"))
        title = page.parent.name if heading is None else heading[1]
        yield title, page.relative_to(results_dir).as_posix(), said.get(view.plain(title), ())
