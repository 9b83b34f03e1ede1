"""What is on the page, before any of it is laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.registry.deviations import Deviations
from harness.registry.profile import Profile, benchmark_of
from harness.registry.schema import Row, Table
from harness.report.cells import Cell
from harness.report.costs import RowCost
from harness.report.error_rates import ErrorRates
from harness.report.origin import Origin
from harness.report.page.answers import Judged
from harness.report.page.examples import Lineage
from harness.report.page.pictures import Picture
from harness.report.page.provenance import Traces
from harness.report.report import Report
from harness.report.summary import compared_signs
from harness.report.verdicts import Verdict

Source = Literal["store", "results"]
"""Whether a page is made from what was computed here, or from what is published."""


@dataclass(frozen=True)
class Section:
    """One table on the page.

    Attributes:
        report: Its report, with every row that is declared.
        verdicts: The verdicts on its claims.
        absent: Why rows have no numbers here, by row; those that just have not run are not in it.
        costs: What its rows cost; None where that is not known.
        pictures: Its figures.
        failures: Why cells failed.
    """

    report: Report
    verdicts: tuple[Verdict, ...]
    absent: Mapping[str, str]
    costs: tuple[RowCost, ...] | None
    pictures: tuple[Picture, ...]
    failures: tuple[str, ...]

    @property
    def has_numbers(self) -> bool:
        """Whether any cell has a number of ours."""
        return any(cell.mean is not None for cell in self.report.cells)


@dataclass(frozen=True)
class Contents:
    """Everything on the page.

    Attributes:
        profile: The profile.
        source: What the page is made from.
        sections: The tables, in the paper's order.
        figure_verdicts: The verdicts on the claims that belong to no table.
        pictures: The figures that belong to no table.
        error_rates: What `harness.report.error_rates` measured; None where it was not.
        deviations: Where paper and code part, and what is open.
        lineages: Prompts on their way; None where the page is not made from a store.
        judged: Benchmark answers before and after; None as above.
        traces: The runs behind the numbers.
    """

    profile: Profile
    source: Source
    sections: tuple[Section, ...]
    figure_verdicts: tuple[Verdict, ...]
    pictures: tuple[Picture, ...]
    error_rates: ErrorRates | None
    deviations: Deviations
    lineages: tuple[Lineage, ...] | None
    judged: tuple[Judged, ...] | None
    traces: Traces

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts on all claims."""
        of_tables = [verdict for section in self.sections for verdict in section.verdicts]
        return [*of_tables, *self.figure_verdicts]


def with_all_rows(report: Report) -> Report:
    """Return a report that has the rows of its table that were left out as well, without numbers.

    What is said of whole columns is then about all of them.
    """
    known = {(cell.row, cell.column): cell for cell in report.cells}
    said = {summary.column: summary for summary in report.summaries}
    cells = [
        known.get((row.id, column.id)) or _empty(report, row, column.id)
        for row in report.table.rows
        for column in report.table.columns
    ]
    return replace(
        report,
        rows=report.table.rows,
        cells=tuple(cells),
        # A row that was left out changes nothing where the paper prints no value of it; where it
        # does, its column lacks a number, and then there is only a count.
        summaries=tuple(
            said[of_all.column]
            if of_all.column in said and of_all.rows == said[of_all.column].rows
            else of_all
            for of_all in compared_signs(cells)
        ),
    )


def without_runs(table: Table, profile: Profile, seeds: Sequence[int]) -> Report:
    """Return the report of a table of which nothing can be said but what the paper prints."""
    read = dict.fromkeys(benchmark_of(profile, column.reads) for column in table.columns)
    judges = {name: profile.benchmarks[name].judge for name in read if name is not None}
    origin = Origin((), (), (), (), judges, (), (), (), 0, 0, None)
    empty = Report(table, profile, tuple(seeds), (), (), (), (), (), (), {}, None, origin, (), {})
    return with_all_rows(empty)


def _empty(report: Report, row: Row, column: str) -> Cell:
    """Return a cell of which only the paper's side is known."""
    table, profile = report.table, report.profile
    declared = table.column(column)
    printed = row.values.get(column)
    available = benchmark_of(profile, declared.reads) is not None
    nothing: dict[str, Any] = dict.fromkeys(Cell.__dataclass_fields__)
    return Cell(
        **nothing
        | {
            "table": table.id,
            "row": row.id,
            "column": column,
            "profile": profile.name,
            "scale": profile.scale,
            "seeds": report.seeds,
            "baseline_row": row.baseline,
            "paper": None if printed is None else printed.value,
            "paper_printed": None if printed is None else printed.printed,
            "paper_gain": table.paper_gain(row, declared),
            "state": "not_run" if available else "not_available",
            "runs": (),
            "reward_models": (),
            "creators": (),
        }
    )
