"""Cells as CSV: one line for each, every number with all its digits.

What there is not is `NA`, which statistics programs read as missing; `state` says why.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from harness.report import view
from harness.report.report import Report

MISSING = "NA"

HEAD = (
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
    "runs",
    "judge",
    "reward_models",
    "creators",
)
"""The columns; numbers are in the unit of the column, seeds and runs are separated by blanks, and
models, whose names hold blanks, by `; `."""

MODELS = ("reward_models", "creators")


def as_csv(reports: Iterable[Report]) -> str:
    """Return the cells of some reports as CSV, with one line of headings."""
    text = io.StringIO()
    writer = csv.DictWriter(text, HEAD, lineterminator="\n")
    writer.writeheader()
    for report in reports:
        names = view.row_names(report)
        columns = {column.id: column for column in report.table.columns}
        for cell in report.cells:
            column = columns[cell.column]
            writer.writerow({
                **{name: _text(value) for name, value in cell.as_json().items() if name in HEAD},
                **{name: _inert("; ".join(getattr(cell, name))) or MISSING for name in MODELS},
                "label": _inert(names[cell.row]),
                "benchmark": _inert(view.plain(f"{column.benchmark}, {column.printed}")),
                "unit": column.unit,
                "paper": cell.paper_printed or MISSING,
            })  # fmt: skip
    return text.getvalue()


def _inert(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _text(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, list):
        return " ".join(map(str, value)) or MISSING
    return repr(value) if isinstance(value, float) else str(value)
