"""A report's numbers, labels, and facts as text, the same in every format.

Missing values are never blank or 0; they read `not run`, `1/3 seeds`, or `failed`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from harness.registry.schema import Column
from harness.report.model import Cell, CheckedControl, Origin, Power, Report, State
from harness.report.results import Results
from harness.words import counted, seeds_text

NO_PAPER = "not printed"
BASELINE = "baseline"
APPLIES_NOT = "–"
NO_COMPARISON = "one seed: no comparison"

ONE_SEED = "95%, over prompts only: one seed says nothing about the recipe"
CROSSED = "95%, over seeds and prompts, which are crossed; gains are paired by both"
"""What the intervals cover."""

OWN_COLUMNS = (
    "the profile's own; the paper's are not available, since its benchmarks cannot run here"
)
NOT_CALIBRATED = "not calibrated (harness evaluate alpaca_eval --calibrate)"

_COMPARED = "only signs of gains and the order of rows are compared, never values"

SCALES = {"toy": f"toy: {_COMPARED}", "reduced": f"reduced: {_COMPARED}", "paper": "paper"}


Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Block:
    """A part of a report as text: notes, a small table of names and figures, and list items."""

    title: str
    notes: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    items: tuple[str, ...] = ()
    level: int = 2


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the distinct values of each key, in order."""
    found: dict[Key, dict[Value, None]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in found.items()}


def plain(text: str) -> str:
    """Return text as one line, with control characters (unsafe in a terminal) replaced."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else "\ufffd" for c in line)


def row_names(report: Report) -> dict[str, str]:
    """Return each row's label as printed, with its id if the label is not unique."""
    times = Counter(row.label for row in report.rows)
    return {
        row.id: plain(row.label if times[row.label] == 1 else f"{row.label} [{row.id}]")
        for row in report.rows
    }


def facts(results: Results) -> list[tuple[str, str]]:
    table, profile, report = results.table, results.profile, results.report
    origin = report.origin
    found = [
        ("Inadmissible", inadmissible_reason(report)),
        ("Question", table.question),
        ("Source", table.place),
        ("Profile", profile.name),
        ("Scale", SCALES[profile.scale]),
        ("Columns", OWN_COLUMNS if _own_columns(results) else ""),
        ("Seeds", ", ".join(map(str, report.seeds)) + fewer_seeds(report)),
        ("Intervals", _intervals(results)),
        ("Power", "; ".join(power_words(found, results) for found in report.power)),
        ("Controls", _controls(report) if report.controls else ""),
        ("Policy", ", ".join(origin.policies)),
        ("Prompts", ", ".join(origin.prompts)),
        *(_made_with(report) if origin.stages else ()),  # else its runs are not known
        ("Judge", judges_text(origin)),
        *(
            (f"Calibration of {name}", NOT_CALIBRATED if held is None else held.text)
            for name, held in results.calibrations.items()
        ),
        *computed_by(origin),
    ]
    return [(name, plain(text)) for name, text in found if text]


def _own_columns(results: Results) -> bool:
    """Return whether the profile's columns, or its main score, replace those of the table."""
    table, profile = results.table, results.profile
    by_recipe = any(column.recipe for column in table.columns)
    return bool(profile.columns) and (by_recipe or table.columns == profile.columns)


def fewer_seeds(report: Report) -> str:
    """List the rows with other seeds than the report, as ` (rows: seeds)`; empty if none have."""
    own = grouped(
        (seeds_text(cell.seeds), cell.row) for cell in report.cells if cell.seeds != report.seeds
    )
    said = "; ".join(f"{', '.join(rows)}: {seeds}" for seeds, rows in own.items())
    return f" ({said})" if said else ""


def _made_with(report: Report) -> list[tuple[str, str]]:
    return [
        ("Reward model", _with_rows(report, lambda cell: cell.reward_models) or "none"),
        ("Creator", _with_rows(report, lambda cell: cell.creators) or "none: nothing evolves"),
    ]


def _with_rows(report: Report, models: Callable[[Cell], Sequence[str]]) -> str:
    """List the models behind the rows that ran, each with its rows unless all of these use it.

    Before any row has run, list those of all rows.
    """
    ran = {cell.row for cell in report.cells if cell.runs} or {cell.row for cell in report.cells}
    cells = [cell for cell in report.cells if cell.row in ran]
    rows = grouped((name, cell.row) for cell in cells for name in models(cell))
    return "; ".join(
        name if {*having} == ran else f"{name} ({', '.join(having)})"
        for name, having in sorted(rows.items())
    )


def computed_by(origin: Origin) -> list[tuple[str, str]]:
    if not origin.stages:  # its runs are not known
        return []
    nothing = "nothing is computed yet"
    return [
        ("Stages", f"{origin.stages_done} of {origin.stages} done"),
        ("Commit", ", ".join(origin.commits) or nothing),
        ("Computed with", "; ".join(origin.libraries) or nothing),
    ]


def judges_text(origin: Origin) -> str:
    by_judge = grouped((judge, benchmark) for benchmark, judge in origin.judges.items())
    return "; ".join(f"{judge} ({', '.join(where)})" for judge, where in by_judge.items())


def _intervals(results: Results) -> str:
    if len(results.report.seeds) == 1:
        return ONE_SEED
    if all(column.of_prompts for column in results.table.columns):
        return "95%, over seeds and the prompts that each has of its own; gains are paired by seed"
    return CROSSED


def inadmissible_reason(report: Report) -> str:
    """Say why all verdicts, or those on choosing prompts, are inadmissible; empty if they count."""
    if report.inadmissible is None:
        why = report.inadmissible_choosing
        return "" if why is None else f"no verdict on which prompts are chosen counts: {why}"
    return (
        f"whether a difference between prompts can be seen at `{report.profile}` is not "
        f"shown, and no verdict on this table counts: {report.inadmissible}"
    )


def power_words(found: Power, results: Results) -> str:
    column = results.table.column(found.column)
    decimals = our_decimals(results, column)
    unit = "points" if column.unit == "%" else f"on {column.unit}"
    said = (
        f"smallest detectable gain (80% power) of {found.training} rows with "
        f"{counted(found.seeds, 'seed')} in {results.profile.called(column)}, {column.printed}: "
        f"{found.detectable:.{decimals}f} {unit}"
    )
    if found.dose is None:
        return f"{said}; what tripling the original prompts gains is not known here"
    tripled, times = signed(found.dose, decimals), found.in_doses
    if times is None:
        return f"{said}; tripling the original prompts gains {tripled}"
    return f"{said}, {times:.1f} of a tripling of original prompts ({tripled})"


def controls_passed(controls: Iterable[CheckedControl]) -> str:
    """Count the controls that passed, among those that the profile can run."""
    states = Counter(control.state for control in controls)
    return f"{states['passed']} of {states.total() - states['not_available']}"


def _controls(report: Report) -> str:
    others = [
        f"{control.id}: {control.state.replace('_', ' ')}"
        for control in report.controls
        if control.state != "passed"
    ]
    said = f"{controls_passed(report.controls)} passed"
    return f"{said}; {', '.join(others)}" if others else said


def printed_decimals(results: Results, column: Column) -> int:
    """Return the paper's decimals in a column, or 2 if it prints nothing there."""
    if results.table.is_ours:
        return 0
    values = (results.table.row(row.id).values for row in results.report.rows)
    printed = [found[column.id].decimals for found in values if column.id in found]
    return max(printed, default=2)


def our_decimals(results: Results, column: Column) -> int:
    """Return our decimals: the paper's, or more to show three digits of the largest mean."""
    ours = [abs(cell.mean) for cell in results.report.of_column(column.id) if cell.mean]
    enough = 2 - math.floor(math.log10(max(ours))) if ours else 0
    return max(printed_decimals(results, column), enough)


def ours(cell: Cell, decimals: int) -> str:
    if cell.mean is None or cell.ci_high is None:
        return state(cell)
    return with_half(cell.mean, cell.ci_high, decimals)


def gain(cell: Cell, decimals: int) -> str:
    if cell.baseline_row is None:
        return BASELINE
    if (own := cell.gain_estimate) is None:
        return state(cell) if cell.mean is None else "no baseline"
    return with_half(own.mean, own.high, decimals, "+")


def paper_gain(cell: Cell, decimals: int) -> str:
    """Format the paper's gain, or the sign of one in a column that this profile does not have."""
    if cell.baseline_row is None:
        return APPLIES_NOT
    if cell.paper_sign is not None:
        return "0+-"[cell.paper_sign]
    return NO_PAPER if cell.paper_gain is None else signed(cell.paper_gain, decimals)


def beyond_paper(cell: Cell, decimals: int) -> str:
    if cell.mean is None or cell.paper is None:
        return state(cell)
    return signed(cell.mean - cell.paper, decimals)


def with_half(mean: float, high: float, decimals: int, sign: Literal["", "+"] = "") -> str:
    """Format a mean, or a difference with its sign, with its interval's half-width."""
    return f"{mean:{sign}z.{decimals}f} ±{high - mean:.{decimals}f}"


def between(low: float, high: float, decimals: int) -> str:
    return f"{signed(low, decimals)} to {signed(high, decimals)}"


def signed(value: float, decimals: int) -> str:
    """Format a difference with its sign; values that round to zero are `+0.0`."""
    return f"{value:+z.{decimals}f}"


def side(cell: Cell) -> int:
    """Return the sign of a gain if its interval excludes zero, else 0."""
    own = cell.gain_estimate
    return 0 if own is None else (own.low > 0) - (own.high < 0)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def probability(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def state(cell: Cell) -> str:
    return state_words(cell.state, len(cell.runs), len(cell.seeds))


def state_words(name: State, done: int, asked: int) -> str:
    if name == "partial":
        return f"{done}/{asked} seeds"
    return name.replace("_", " ")


def heading(results: Results) -> str:
    profile = results.profile
    return plain(f"{results.table.heading} ({profile.name}, scale: {profile.scale})")
