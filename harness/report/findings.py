"""`results/README.md`: the answer, and what the runs of each table say.

The page has no number of its own: sentences come from the verdicts on the published scores, gains
from the published cells. It is written by

    harness report --all --published --format markdown --output results/README.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.report import view
from harness.report.answer import answer_to, finding
from harness.report.claims import counts, share_tested
from harness.report.model import TESTED, Report
from harness.report.page.contents import Contents
from harness.report.publication import PAGE
from harness.report.render import template
from harness.report.view import plain
from harness.words import seeds_text


def as_findings(contents: Contents, results_dir: Path) -> str:
    profile = contents.profile
    shown = [report for report in contents.reports if report.has_numbers]
    tables = {report.table.id for report in shown}
    pages = sorted((results_dir / profile.name).rglob(PAGE))
    others = [path for path in pages if path.parent.name not in tables]
    return template("findings.md.j2").render(
        profile=profile.name,
        scale=profile.scale,
        answer=answer_to(contents.reports, contents.verdicts).lines,
        tested=share_tested(contents.verdicts),
        power=[line for report in shown for line in _power(report)],
        silent=[verdict for verdict in contents.verdicts if verdict.verdict not in TESTED],
        sections=[_section(report) for report in shown],
        figures=list(_others(others, results_dir, contents)),
    )


def _power(report: Report) -> Iterator[tuple[str, ...]]:
    found, nothing = counts(report.verdicts), view.APPLIES_NOT
    passed = sum(control.state == "passed" for control in report.controls)
    controls = f"{passed} of {len(report.controls)}" if report.controls else nothing
    verdicts = [str(found[word]) if report.verdicts else nothing for word in TESTED]
    name, seeds = report.table.heading.partition(":")[0], seeds_text(report.seeds)
    if not report.power:
        yield (name, seeds, controls, nothing, nothing, *verdicts)
    for power in report.power:
        which = f"{name}, {power.training}" if len(report.power) > 1 else name
        doses = nothing if power.in_doses is None else f"{power.in_doses:.1f}"
        decimals = view.our_decimals(report, report.table.column(power.column))
        yield (which, seeds, controls, f"{power.detectable:.{decimals}f}", doses, *verdicts)


def _section(report: Report) -> dict[str, object]:
    table, column = report.table, report.table.main_column
    decimals, printed = view.our_decimals(report, column), view.printed_decimals(report, column)
    cells = {cell.row: cell for cell in report.cells if cell.column == column.id}
    names = view.row_names(report)
    judged_by = f"{column.benchmark}, {column.printed}"
    rows = [
        (names[row.id], view.gain(cell, decimals), view.paper_gain(cell, printed))
        for row in table.rows
        if (cell := cells[row.id]).gain is not None
    ]
    if report.leagues:
        judged_by = f"{column.benchmark}, area over even draws"
        members = (own for league in report.leagues for own in league.members)
        rows = [(names[own.row], view.area(own), "") for own in members if own.gain is not None]
    return {
        "heading": table.heading,
        "link": f"{report.profile.name}/{table.id}/{PAGE}",
        "question": table.question,
        "finding": finding(report, report.verdicts),
        "seeds": seeds_text(report.seeds),
        "column": judged_by,
        "rows": rows,
        "ours": table.is_ours,
    }


def _others(
    pages: Iterable[Path], results_dir: Path, contents: Contents
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    said = {shown.title: shown.findings for shown in contents.pictures}
    for page in pages:
        heading = re.search(r"^# +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        title = page.parent.name if heading is None else heading[1]
        yield title, page.relative_to(results_dir).as_posix(), said.get(plain(title), ())
