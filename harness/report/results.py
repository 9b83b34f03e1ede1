"""What was measured of a table at a profile, with its declarations as they are now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from harness.evaluation.calibration import Calibration
from harness.pipeline.runs import TableRuns
from harness.registry.claims import Claim
from harness.registry.profile import Profile
from harness.registry.schema import Table
from harness.report.model import Report, RowFacts, Verdict
from harness.report.scores import Measured, RunScores
from harness.runtime import Store


@dataclass(frozen=True)
class Results:
    """What was measured of a table at a profile: whatever is shown of it is a function of this."""

    table: Table
    profile: Profile
    report: Report
    """The numbers, without facts if they are from a store."""
    judge: Callable[[Sequence[Claim], str], Sequence[Verdict]]
    """Judge claims about its rows; the place is their table or figure."""
    measured: Measured = field(default_factory=dict)
    read_facts: Callable[[], Sequence[RowFacts]] = tuple
    runs: tuple[TableRuns, Store] | None = None
    """Its runs and their store, if it is from one."""
    folder: Path | None = None
    """Its folder, if it is published."""
    lacking: str | None = None
    """Why nothing was measured."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why rows have no numbers, except rows that simply have not run."""
    calibrations: Mapping[str, Calibration | None] = field(default_factory=dict)
    """The latest calibration of each real judge that the columns read, by benchmark."""

    @cached_property
    def scores(self) -> RunScores:
        return RunScores(self.measured, self.report.seeds, self.report.rows, self.report.columns)

    @cached_property
    def verdicts(self) -> Sequence[Verdict]:
        return self.judge(self.table.claims, self.table.id)

    @cached_property
    def facts(self) -> Sequence[RowFacts]:
        """What the stages of every row record besides scores; slow to read."""
        return self.report.facts or self.read_facts()

    @property
    def whole_report(self) -> Report:
        return self.report.model_copy(update={"facts": tuple(self.facts)})
