"""What the runs of a table say, in one computed sentence, and `results/README.md`, which has all.

The primary claim of a table comes first, with our margin and the paper's. Then it is said how the
rows of the claim's column fare against their baselines: a row gains or loses where the interval of
its gain lies on one side of zero, and shows no difference where it holds zero.

The page has no number of its own: sentences come from the verdicts on the published scores, gains
from the published cells. It is written by

    harness report --all --published --format markdown --output results/README.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.registry.schema import Column
from harness.report import view
from harness.report.build import main_column
from harness.report.claims import counts, share_tested, totals
from harness.report.model import TESTED, Report, Study, Verdict
from harness.report.page.contents import Contents
from harness.report.publication import PAGE
from harness.report.render import template
from harness.report.reward_study import CALLED
from harness.report.view import plain, signed
from harness.words import counted


def finding(report: Report, verdicts: Sequence[Verdict]) -> str:
    """Return what a table's runs say, in one sentence."""
    primary, column = primary_of(verdicts), main_column(report.table)
    claim = "" if primary is None else f"“{primary.statement.strip().removesuffix('.')}”"
    if not any(cell.mean is not None for cell in report.cells):
        if primary is None:
            return "Nothing of this table has run here."
        why = f"because {primary.reason}: {claim} is its primary claim"
        return plain(f"Nothing to say yet, {why}") + "."
    said = _rows(report, column)
    if primary is None:
        said = said if report.study is None else f"{_study(report.study)}; {said}"
    elif primary.margin is None:
        said = f"not decided, because {primary.reason}: {claim}; {said}"
    else:
        word = primary.text
        if primary.verdict == "inadmissible":
            word = f"inadmissible, because {primary.reason}"
        margins = _margins(primary, view.our_decimals(report, column))
        said = f"{word}: {claim} ({margins}); {said}"
    return f"{plain(view.capital(said))}."


def primary_of(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the verdict on a table's primary claim, None where it has none."""
    return next((verdict for verdict in verdicts if verdict.primary), None)


def _margins(primary: Verdict, decimals: int) -> str:
    """Return our margin with what it rests on, and the paper's."""
    ours, low, high = (
        signed(number or 0.0, decimals)
        for number in (primary.margin, primary.ci_low, primary.ci_high)
    )
    parts = [f"ours {ours}, 95% from {low} to {high}"]
    if primary.p is None:
        parts.append(primary.reason or "no p-value")
    else:
        parts.append("p < 0.001" if primary.p < 0.001 else f"p = {primary.p:.2g}")
    paper = primary.paper_margin
    if paper is not None:
        steps = paper if isinstance(paper, str) else ", ".join(paper)
        noise = ", within its own noise" if primary.paper_within_noise else ""
        parts.append(f"the paper's {steps}{noise}")
    return "; ".join(parts)


def _study(study: Study) -> str:
    """Return which measures of reward models predict which."""
    if not study.whole:
        return "not every reward model has its numbers"
    said = [
        f"{CALLED[a.first].format(n=study.n)} and {CALLED[a.second].format(n=study.n)}: "
        f"ρ = {signed(a.found.rho, 2)}, 95% from {signed(a.found.low, 2)} to "
        f"{signed(a.found.high, 2)}"
        for a in study.agreements
        if a.found is not None
    ]
    return f"Over {len(study.models)} reward models, {', '.join(said)}"


def _rows(report: Report, column: Column) -> str:
    """Return how the rows of a column fare against their baselines."""
    cells = [cell for cell in report.cells if cell.column == column.id and cell.baseline_row]
    done = [cell for cell in cells if cell.gain is not None]
    where = f"in {column.benchmark}, {column.printed},"
    if not cells:
        return f"{where} no row has a baseline"
    if not done:
        return f"{where} none of the {len(cells)} rows with a baseline has a gain yet"
    if len(report.seeds) == 1:
        rows = counted(len(done), "row")
        return f"{where} nothing is concluded from the gain of {rows} with one seed"
    sign = -1 if column.direction == "lower" else 1
    words = ("above", "below") if column.direction == "none" else ("better than", "worse than")
    said = _sides([sign * view.side(cell) for cell in done], *words)
    lacking = len(cells) - len(done)
    if lacking:
        said.append(f"{counted(lacking, 'row')} {'have' if lacking > 1 else 'has'} no numbers")
    first = f"{', '.join(said[:-1])} and " if len(said) > 1 else ""
    return f"{where} {first}{said[-1]}"


def _sides(sides: Sequence[int], better: str, worse: str) -> list[str]:
    """Return how many rows lie on each side of their baseline: 1 better, -1 worse, 0 neither."""
    if len(sides) == 1:
        how = {1: f"is {better}", -1: f"is {worse}", 0: "cannot be told apart from"}[sides[0]]
        return [f"the one row with a gain {how} the baseline"]
    ups, downs, same = (sides.count(side) for side in (1, -1, 0))
    verbs = ["are" if count > 1 else "is" for count in (ups, downs)]
    said = [f"{ups or 'none'} of {len(sides)} rows {verbs[0]} {better} the baseline"]
    said += [f"{downs} {verbs[1]} {worse} it"] if downs else []
    said += [f"{same} cannot be told apart from it"] if same else []
    return said


def as_findings(contents: Contents, results_dir: Path) -> str:
    """Return the findings as Markdown whose links lead from the folder of results."""
    profile = contents.profile
    shown = [report for report in contents.reports if report.has_numbers]
    tables = {report.table.id for report in shown}
    pages = sorted((results_dir / profile.name).rglob(PAGE))
    others = [path for path in pages if path.parent.name not in tables]
    return template("findings.md.j2").render(
        profile=profile.name,
        scale=profile.scale,
        verdicts=totals(contents.verdicts),
        tested=share_tested(contents.verdicts),
        claims=len(contents.verdicts),
        power=[line for report in shown for line in _power(report)],
        silent=[verdict for verdict in contents.verdicts if verdict.verdict not in TESTED],
        sections=[_section(report) for report in shown],
        figures=list(_others(others, results_dir, contents)),
    )


def _power(report: Report) -> Iterator[tuple[str, ...]]:
    """Yield a line for each kind of training in a table: what its seeds can find, and did."""
    found, nothing = counts(report.verdicts), view.APPLIES_NOT
    passed = sum(control.state == "passed" for control in report.controls)
    controls = f"{passed} of {len(report.controls)}" if report.controls else nothing
    verdicts = [str(found[word]) if report.verdicts else nothing for word in TESTED]
    name, seeds = report.table.heading.partition(":")[0], view.seeds_text(report.seeds)
    if not report.power:
        yield (name, seeds, controls, nothing, nothing, *verdicts)
    for power in report.power:
        which = f"{name}, {power.training}" if len(report.power) > 1 else name
        doses = nothing if power.in_doses is None else f"{power.in_doses:.1f}"
        decimals = view.our_decimals(report, report.table.column(power.column))
        yield (which, seeds, controls, f"{power.detectable:.{decimals}f}", doses, *verdicts)


def _section(report: Report) -> dict[str, object]:
    table, column = report.table, main_column(report.table)
    decimals, printed = view.our_decimals(report, column), view.printed_decimals(report, column)
    cells = {cell.row: cell for cell in report.cells if cell.column == column.id}
    names = view.row_names(report)
    rows = [
        (names[row.id], view.gain(cell, decimals), view.paper_gain(cell, printed))
        for row in table.rows
        if (cell := cells[row.id]).gain is not None
    ]
    return {
        "heading": table.heading,
        "link": f"{report.profile.name}/{table.id}/{PAGE}",
        "question": table.question,
        "finding": finding(report, report.verdicts),
        "seeds": view.seeds_text(report.seeds),
        "column": f"{column.benchmark}, {column.printed}",
        "rows": rows,
        "ours": table.is_ours,
    }


def _others(
    pages: Iterable[Path], results_dir: Path, contents: Contents
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield heading, link and findings of each published page that is no table."""
    said = {shown.picture.title: shown.picture.findings for shown in contents.pictures}
    for page in pages:
        heading = re.search(r"^# +(.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        title = page.parent.name if heading is None else heading[1]
        yield title, page.relative_to(results_dir).as_posix(), said.get(plain(title), ())
