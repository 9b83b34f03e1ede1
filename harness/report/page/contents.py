"""What is on the page, before any of it is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.registry.deviations import Deviations
from harness.registry.profile import Profile
from harness.report.error_rates import ErrorRates
from harness.report.model import Report, Verdict
from harness.report.page.answers import Judged
from harness.report.page.examples import Lineage
from harness.report.page.pictures import Picture
from harness.report.page.provenance import Traces

Source = Literal["store", "results"]
"""Whether a page is made from what was computed here, or from what is published."""


@dataclass(frozen=True)
class Section:
    """One table on the page.

    Attributes:
        report: Its report, with every row that is declared.
        verdicts: The verdicts on its claims.
        absent: Why rows have no numbers here, by row; those that just have not run are not in it.
        pictures: Its figures.
    """

    report: Report
    verdicts: tuple[Verdict, ...]
    absent: Mapping[str, str]
    pictures: tuple[Picture, ...]

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
