"""The finding of a table: one sentence, computed from its verdicts and cells.

The primary claim comes first, with our margin and the paper's. Then it says how the rows of the
claim's column fare against their baselines: a row gains or loses where the interval of its gain
lies on one side of zero, and shows no difference where it holds zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.registry.claims import Qualitative, places
from harness.registry.schema import Column
from harness.report.model import Cell, Report, Study, Verdict
from harness.report.reward_study import CALLED
from harness.report.view import our_decimals, plain, signed


def finding(report: Report, verdicts: Sequence[Verdict]) -> str:
    """Return what a table's runs say, in one sentence.

    Args:
        report: The table's report.
        verdicts: The verdicts on its claims.
    """
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
    """Return the column that a table's primary claim is about, the first one where there is none.

    Args:
        report: The table's report.
        verdicts: The verdicts on its claims.
    """
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
        rows = _counted(len(done), "row")
        return f"{where} nothing is concluded from the gain of {rows} with one seed"
    sign = -1 if column.direction == "lower" else 1
    sides = [sign * _side(cell) for cell in done]
    words = ("above", "below") if column.direction == "none" else ("better than", "worse than")
    said = _sides(sides, *words)
    lacking = len(cells) - len(done)
    said += [f"{_counted(lacking, 'row')} {_has(lacking)} no numbers"] if lacking else []
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


def _has(count: int) -> str:
    return "have" if count > 1 else "has"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _side(cell: Cell) -> int:
    """Return on which side of zero the interval of a gain lies; 0 where it holds zero."""
    assert cell.gain_ci_low is not None
    assert cell.gain_ci_high is not None
    return (cell.gain_ci_low > 0) - (cell.gain_ci_high < 0)


def _sentence(text: str) -> str:
    return f"{plain(text)}."
