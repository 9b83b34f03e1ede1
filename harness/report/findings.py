"""What the runs of a table say, in one computed sentence, and `results/README.md`, which has all.

The primary claim of a table comes first, with our margin and the paper's. Then it is said how the
rows of the claim's column fare against their baselines: a row gains or loses where the interval of
its gain lies on one side of zero, and shows no difference where it holds zero.

The page has no number of its own: sentences come from the verdicts on the published scores
gains from the published cells. It is written by

    harness report --all --published --format markdown --output results/README.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.registry.claims import Qualitative, places
from harness.registry.schema import Column
from harness.report import view
from harness.report.claims import counts, share_tested, totals
from harness.report.model import TESTED, Cell, Report, Study, Verdict
from harness.report.page.contents import Contents, Section
from harness.report.publication import PAGE
from harness.report.render import template
from harness.report.reward_study import CALLED
from harness.report.view import our_decimals, plain, signed
from harness.words import counted

_HEADING = re.compile(r"^# +(.+)$", re.MULTILINE)


def finding(report: Report, verdicts: Sequence[Verdict]) -> str:
    """Return what a table's runs say, in one sentence."""
    primary = _primary(verdicts)
    column = _column(report, primary)
    if not any(cell.mean is not None for cell in report.cells):
        return _sentence(_nothing(primary))
    rows = _rows(report, column)
    if primary is None:
        said = rows if report.study is None else f"{_study(report.study)}; {rows}"
        return _sentence(said[:1].upper() + said[1:])
    if primary.margin is None:
        return _sentence(f"Not decided, because {primary.reason}: {_quoted(primary)}; {rows}")
    word = primary.text[:1].upper() + primary.text[1:]
    if primary.verdict == "inadmissible":
        word = f"Inadmissible, because {primary.reason}"
    margins = _margins(primary, our_decimals(report, column))
    return _sentence(f"{word}: {_quoted(primary)} ({margins}); {rows}")


def claimed_column(report: Report, verdicts: Sequence[Verdict]) -> Column:
    """Return the column that a table's primary claim is about, or else the first one."""
    return _column(report, _primary(verdicts))


def _primary(verdicts: Sequence[Verdict]) -> Verdict | None:
    return next((verdict for verdict in verdicts if verdict.primary), None)


def _nothing(primary: Verdict | None) -> str:
    """Return what is said where there is no number."""
    if primary is None:
        return "Nothing of this table has run here"
    return f"Nothing to say yet, because {primary.reason}: {_quoted(primary)} is its primary claim"


def _column(report: Report, primary: Verdict | None) -> Column:
    """Return the column that the primary claim is about, the first one where it is not known."""
    if primary is not None:
        claim = next(claim for claim in report.table.claims if claim.id == primary.id)
        if not isinstance(claim.test, Qualitative):
            return report.table.column(places(claim.test)[0][1])
    return report.table.columns[0]


def _quoted(primary: Verdict) -> str:
    return f"“{primary.statement.strip().removesuffix('.')}”"


def _margins(primary: Verdict, decimals: int) -> str:
    """Return our margin with what it rests on, and the paper's."""
    assert primary.margin is not None
    assert primary.ci_low is not None
    assert primary.ci_high is not None
    low, high = signed(primary.ci_low, decimals), signed(primary.ci_high, decimals)
    parts = [f"ours {signed(primary.margin, decimals)}, 95% from {low} to {high}"]
    if primary.p is None:
        parts.append(primary.reason or "no p-value")
    else:
        parts.append("p < 0.001" if primary.p < 0.001 else f"p = {primary.p:.2g}")
    paper = primary.paper_margin
    if paper is not None:
        steps = paper if isinstance(paper, str) else ", ".join(paper)
        noise = {True: ", within its own noise", False: "", None: ""}[primary.paper_within_noise]
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
    sides = [sign * _side(cell) for cell in done]
    words = ("above", "below") if column.direction == "none" else ("better than", "worse than")
    said = _sides(sides, *words)
    lacking = len(cells) - len(done)
    said += (
        [f"{counted(lacking, 'row')} {'have' if lacking > 1 else 'has'} no numbers"]
        if lacking
        else []
    )
    all_but_last = ", ".join(said[:-1])
    return f"{where} {all_but_last} and {said[-1]}" if all_but_last else f"{where} {said[-1]}"


def _sides(sides: Sequence[int], better: str, worse: str) -> list[str]:
    """Return how many rows lie on each side of their baseline: 1 better, -1 worse, 0 neither."""
    if len(sides) == 1:
        how = {1: f"is {better}", -1: f"is {worse}", 0: "cannot be told apart from"}[sides[0]]
        return [f"the one row with a gain {how} the baseline"]
    ups, downs, same = (sides.count(side) for side in (1, -1, 0))
    said = [f"{ups or 'none'} of {len(sides)} rows {_is(ups)} {better} the baseline"]
    said += [f"{downs} {_is(downs)} {worse} it"] if downs else []
    said += [f"{same} cannot be told apart from it"] if same else []
    return said


def _is(count: int) -> str:
    return "are" if count > 1 else "is"


def _side(cell: Cell) -> int:
    """Return on which side of zero the interval of a gain lies; 0 where it holds zero."""
    assert cell.gain_ci_low is not None
    assert cell.gain_ci_high is not None
    return (cell.gain_ci_low > 0) - (cell.gain_ci_high < 0)


def _sentence(text: str) -> str:
    return f"{plain(text)}."


def as_findings(contents: Contents, results_dir: Path) -> str:
    """Return the findings as Markdown whose links lead from the folder of results."""
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
        power=[line for section in shown for line in _power(section)],
        silent=[verdict for verdict in contents.verdicts if verdict.verdict not in TESTED],
        sections=[_section(section) for section in shown],
        figures=list(_others(others, results_dir, contents)),
    )


def _power(section: Section) -> Iterable[tuple[str, ...]]:
    """Yield a line for each kind of training in a table: what its seeds can find, and did."""
    report, found = section.report, counts(section.verdicts)
    passed = sum(control.state == "passed" for control in report.controls)
    controls = f"{passed} of {len(report.controls)}" if report.controls else view.APPLIES_NOT
    verdicts = [str(found[word]) if section.verdicts else view.APPLIES_NOT for word in TESTED]
    name, seeds = report.table.heading.partition(":")[0], view.seeds_text(report.seeds)
    if not report.power:
        yield (name, seeds, controls, view.APPLIES_NOT, view.APPLIES_NOT, *verdicts)
    for power in report.power:
        which = f"{name}, {power.training}" if len(report.power) > 1 else name
        doses = view.APPLIES_NOT if power.in_doses is None else f"{power.in_doses:.1f}"
        yield (which, seeds, controls, f"{power.detectable:.1f}", doses, *verdicts)


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
