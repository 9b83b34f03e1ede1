"""One report: all that is said of a table at one profile.

`Report` is what is built from a store (`harness.report.build`), `report.json` of a published table,
what is read back from it, and what every way of writing takes; `Report.model_json_schema` is its
schema. A published report holds ids of what is declared; `Report.table` and `Report.profile` are
the declarations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr

from harness.errors import HarnessError
from harness.registry.schema import Id
from harness.report.parts import (
    Count,
    Creation,
    FoundLeague,
    OnlineCost,
    Part,
    PromptDistance,
    RowCost,
    Scale,
    State,
    Study,
)
from harness.statistics.dose import Worth

if TYPE_CHECKING:
    from harness.evaluation.calibration import Calibration
    from harness.registry.profile import Profile
    from harness.registry.schema import Column, Row, Table

VerdictWord = Literal[
    "supported", "contradicted", "inconclusive", "underpowered", "inadmissible", "not_run",
    "not_testable",
]  # fmt: skip
"""What our runs say of a claim."""

JudgedRun = Annotated[str, Field(pattern=r"^[a-z0-9_.+-]+/[a-z0-9_.+-]+/seed[0-9]+@[0-9a-f]{12}$")]


class Cell(Part):
    """One row in one column. It is whole or it has no number, and a state instead."""

    table: str
    row: str
    column: str
    profile: str
    scale: Scale
    """The profile's scale; only at `paper` may ours and the paper's be subtracted."""
    seeds: tuple[Count, ...]
    mean: float | None = None
    """Mean over seeds and prompts, in the column's unit."""
    ci_low: float | None = None
    """95% interval, `low` to `high`; over prompts only with one seed."""
    ci_high: float | None = None
    baseline_row: str | None = None
    """Row that the gain is over; null on a baseline row."""
    gain: float | None = None
    """Mean less the baseline row's, paired by seed and prompt; by seed where prompts are scored."""
    gain_ci_low: float | None = None
    gain_ci_high: float | None = None
    gain_detectable: float | None = None
    """Least gain that is found with 80% probability at 5%; null without a gain, and with one
    seed."""
    paper: float | None = None
    """The paper's value; null where it prints none."""
    paper_printed: str | None = None
    """The same as printed, so `8.90` keeps its zero."""
    paper_gain: float | None = None
    """Printed value less the baseline row's printed value."""
    state: State
    """Whether there are numbers, and why not."""
    runs: tuple[JudgedRun, ...] = ()
    """The judged runs behind the cell, in order of their seeds, each as
    `<run id>/<profile>/seed<seed>@<fingerprint>` with the first 12 digits of the fingerprint of the
    judge's stage."""
    judge: str | None = None
    """What judges it; null where the profile has no benchmark that yields the column."""
    reward_models: tuple[str, ...] = ()
    creators: tuple[str, ...] = ()
    """What evolves the prompts of its runs; empty where nothing does."""
    worth: Worth | None = None
    """What our mean is worth in human prompts; null where the controls do not say it."""
    paper_worth: Worth | None = None
    """What the paper's value is worth on the curve that it prints; null where it prints none."""
    reason: str | None = Field(default=None, exclude=True)
    """Why a cell failed or is not available, where a stage says so; not part of the JSON form."""


class ReportColumn(Part):
    """A column, and the score in `scores.parquet` that it reads."""

    id: Id
    score: Id
    unit: str
    direction: Literal["higher", "lower", "none"]
    by_construction: str | None = None
    """Why the column must come out as the paper says; null where it need not."""

    @classmethod
    def of(cls, column: Column, by_construction: str | None = None) -> ReportColumn:
        return cls(
            id=column.id,
            score=column.reads,
            unit=column.unit,
            direction=column.direction,
            by_construction=by_construction,
        )


class ReportRow(Part):
    id: Id
    label: str
    baseline: Id | None
    runs: Mapping[str, str]
    """The run behind it in each column."""

    @classmethod
    def of(cls, row: Row, table: Table) -> ReportRow:
        runs = {column.id: row.run_id(column) for column in table.columns}
        return cls(id=row.id, label=row.label, baseline=row.baseline, runs=runs)


class ColumnSummary(Part):
    """A column beside the paper's."""

    column: str
    scale: Scale
    rows: Count
    """Rows that are asked for and that the paper prints a value of."""
    done: Count
    """Those of them that have all their numbers."""
    signs_agree: Count | None = None
    """Gains with the sign of the paper's gain; null while a row is missing, and with one seed."""
    signs: Count | None = None
    """Gains compared: those where the paper's is not zero; null as `signs_agree`."""
    ranked: Count | None = None
    """Those of the rows that are no other row's baseline; null as `signs_agree`."""
    spearman: float | None = None
    """Spearman's rank correlation of ours with the paper's over the ranked rows; null as
    `signs_agree`, with fewer than four rows, or where one side is constant."""
    spearman_low: float | None = None
    """95% interval over seeds and prompts, `low` to `high`."""
    spearman_high: float | None = None


class CheckedControl(Part):
    """What came out of a control: whether a difference between prompts can be seen."""

    id: str
    statement: str
    training: Literal["offline", "online"]
    kind: Literal["rising", "alike", "less"]
    """Whether the scores must rise from row to row, or not differ, or one gain be less than a share
    of another."""
    column: str
    rows: tuple[str, ...]
    """From the lowest to the highest."""
    doses: tuple[int, ...] = ()
    """Of a dose-response: the human prompts of each row, in multiples of x."""
    share: float | None = Field(default=None, exclude_if=lambda share: share is None)
    """Of a gain that is less than another, the share of it; absent for other kinds."""
    needed: float
    """Least distance of the last row from the first in standard errors; of rows that are alike, the
    largest."""
    state: Literal["passed", "failed", "not_run", "not_available"]
    """What came out; `not_available` where the profile cannot run a row."""
    means: tuple[float, ...] = ()
    """Mean of each row, in the column's unit; none where any is missing."""
    distance: float | None = None
    """Mean of the last row less that of the first, paired by seed and prompt; of a gain that is
    less than a share of another, that share less the gain."""
    standard_errors: float | None = None
    """The same in standard errors; null without a number, or where chance was not measured."""
    reason: str | None = None


class Pooled(Part):
    """How far the intervals of a column's gains over one row borrow from each other."""

    column: str
    baseline: str
    df: float
    """Degrees of freedom that the other rows add to those of the seeds (d0)."""


class Power(Part):
    """The least gain that would be found, in a table's main column."""

    column: str
    training: Literal["offline", "online"]
    seeds: Count
    detectable: float
    """Gain that is found with 80% probability at 5%, in the column's unit: median of the rows."""
    dose: float | None = None
    """Gain of three times as many human prompts over 1x in the controls; null while unknown."""

    @property
    def in_doses(self) -> float | None:
        """The detectable gain over that of tripling the human prompts; None unless it gains."""
        return self.detectable / self.dose if self.dose is not None and self.dose > 0 else None


class Origin(Part):
    """Where numbers come from; every tuple in order, each item once."""

    policies: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    reward_models: tuple[str, ...] = ()
    """Reward models that annotate; of published ones that have annotated, with whether their
    weights were ever verified."""
    creators: tuple[str, ...] = ()
    """What evolves prompts; empty where nothing evolves."""
    judges: Mapping[str, str]
    """Judge of each benchmark that the columns read, by benchmark."""
    commits: tuple[str, ...] = ()
    """Commits of the code behind the stages that are done, `(changed)` where the checkout had
    changes."""
    libraries: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    stages: Count = 0
    stages_done: Count = 0
    finished: str | None = None
    """When the last of them was finished, ISO 8601 in UTC; null where none is."""
    by_metric_since: str | None = None
    """When the first stage began in which a metric of eva chose prompts; null where none has."""


class Assumption(Part):
    name: str
    value: str
    group: str
    """Who sets it: `paper`, `code` (the authors') or `ours`."""
    source: str


GROUPS: Mapping[str, str] = {
    "paper": "From the paper",
    "code": "From the authors' code",
    "ours": "Ours",
}
"""Who sets what numbers rest on, in words."""

TESTED: tuple[VerdictWord, ...] = ("supported", "contradicted", "inconclusive", "underpowered")
"""The verdicts on claims that were tested; but for the last, with enough power."""


class ClaimVerdict(Part):
    """A claim of the paper and what our runs say of it."""

    id: str
    table: str
    statement: str
    verdict: VerdictWord
    scale: Scale
    """Scale of the profile; only at `paper` is a verdict one on the paper."""
    primary: bool
    margin: float | None = None
    """Ours, left minus right in the column's unit; of a claim with several statements, that of the
    weakest."""
    ci_low: float | None = None
    """95% interval of the margin; over prompts only with one seed."""
    ci_high: float | None = None
    p: float | None = None
    """Two-sided p-value; null with one seed."""
    p_adjusted: float | None = None
    """The same after Holm's correction; that of a primary claim is not corrected."""
    detectable: float | None = None
    """Smallest margin that these runs would have found with 80% power, at 5% for a primary claim
    and at 5% over the size of the family for another; of a claim with several statements, that
    which suffices for each. See `harness.statistics.Interval.detectable`."""
    paper_margin: str | tuple[str, ...] | None = None
    """The paper's margin as printed; of a trend, each step."""
    paper_within_noise: bool | None = None
    """Whether that is no larger than the noise of its benchmark."""
    reason: str | None = None
    """Why there is no decision, or what the verdict rests on."""
    by_construction: str | None = None
    """Why the claim could not have failed here; null where it could."""

    @property
    def name(self) -> str:
        """Its id, with a star where it is primary."""
        return f"{self.id} *" if self.primary else self.id

    @property
    def text(self) -> str:
        """The verdict for people: with the scale outside `paper`, and `by construction`."""
        word = self.verdict.replace("_", " ")
        decided = self.verdict in TESTED
        marks: list[str] = [self.scale] if decided and self.scale != "paper" else []
        if self.verdict == "supported" and self.by_construction is not None:
            marks.append("by construction")
        return f"{word} ({', '.join(marks)})" if marks else word


PerPrompt = dict[tuple[str, int, str], dict[str, float]]
"""The value of each prompt, by run, seed and score."""


@dataclass(frozen=True)
class Beside:
    """What belongs to a report and is no part of its JSON form.

    The declarations are those of now, the calibrations the last one of each real judge that the
    columns read, by benchmark, None where there is none. Verdicts are made, and scores read, when
    they are first asked for.
    """

    table: Table
    profile: Profile
    calibrations: Mapping[str, Calibration | None] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    judge: Callable[[], Sequence[ClaimVerdict]] = tuple
    scores: Callable[[], PerPrompt] = dict

    @cached_property
    def verdicts(self) -> Sequence[ClaimVerdict]:
        return self.judge()


class Report(Part):
    """All that is said of a table at one profile: what every way of writing it down takes."""

    table_id: Id = Field(alias="table")
    profile_id: Id = Field(alias="profile")
    scale: Scale
    seeds: tuple[Count, ...]
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    cells: tuple[Cell, ...]
    summary: tuple[ColumnSummary, ...]
    distances: tuple[PromptDistance, ...] = ()
    creation: tuple[Creation, ...] = ()
    """What the creator did behind each row that is trained offline."""
    online: tuple[OnlineCost, ...] = ()
    costs: tuple[RowCost, ...] | None = Field(default=None, exclude_if=lambda costs: costs is None)
    """What each row cost; absent where it was not counted."""
    study: Study | None = Field(default=None, exclude_if=lambda study: study is None)
    """What the table's study of reward models found; absent where it has none."""
    leagues: tuple[FoundLeague, ...] = Field(default=(), exclude_if=lambda found: not found)
    """What the table's leagues of selectors found; absent where it has none."""
    inadmissible: str | None = Field(default=None, exclude_if=lambda why: why is None)
    """Why verdicts on the table are inadmissible; absent where they are not."""
    inadmissible_choosing: str | None = Field(default=None, exclude_if=lambda why: why is None)
    """Why verdicts on which prompts are chosen are inadmissible; absent where they are not."""
    controls: tuple[CheckedControl, ...] = Field(default=(), exclude_if=lambda found: not found)
    """The controls that the table rests on, or has itself; absent where there are none."""
    pooled: tuple[Pooled, ...] = Field(default=(), exclude_if=lambda found: not found)
    """Where the intervals of gains borrow from other rows; absent where none does."""
    power: tuple[Power, ...] = Field(default=(), exclude_if=lambda found: not found)
    """What gains would be found; absent with one seed, or without gains."""
    failures: tuple[str, ...] = ()
    origin: Origin
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()

    _beside: Beside | None = PrivateAttr(default=None)

    def beside(self, table: Table, profile: Profile, **more: Any) -> Self:
        """Return the report with what is no part of its JSON form: the fields of `Beside`.

        Raises:
            HarnessError: The report does not fit the declarations.
        """
        if [column.id for column in self.columns] != [column.id for column in table.columns]:
            raise HarnessError(
                f"the columns of `{table.id}` have changed since it was published; publish the "
                "table again"
            )
        gone = {row.id for row in self.rows} - {row.id for row in table.rows}
        if gone:
            raise HarnessError(
                f"`{table.id}` has no row `{min(gone)}` any more; publish the table again"
            )
        found = self.model_copy()
        found._beside = Beside(table, profile, **more)
        return found

    @property
    def table(self) -> Table:
        """The table, as declared.

        Raises:
            HarnessError: It is not declared, or was when it had other columns.
        """
        return self._known.table

    @property
    def profile(self) -> Profile:
        return self._known.profile

    @property
    def calibrations(self) -> Mapping[str, Calibration | None]:
        """The last calibration of each real judge, by benchmark; none where it was read back."""
        return {} if self._beside is None else self._beside.calibrations

    @property
    def verdicts(self) -> Sequence[ClaimVerdict]:
        return () if self._beside is None else self._beside.verdicts

    @property
    def measured(self) -> PerPrompt:
        """The per-prompt scores; none where it was read back alone."""
        return {} if self._beside is None else self._beside.scores()

    @property
    def absent(self) -> Mapping[str, str]:
        """Why rows have no numbers, but for those that just have not run."""
        return {} if self._beside is None else self._beside.absent

    @property
    def has_numbers(self) -> bool:
        return any(cell.mean is not None for cell in self.cells)

    @property
    def _known(self) -> Beside:
        if self._beside is None:
            from harness.registry import declared

            tables, profiles = declared.all_tables(), declared.all_profiles()
            if self.table_id not in tables or self.profile_id not in profiles:
                raise HarnessError(
                    f"`{self.table_id}` or the profile `{self.profile_id}` is not declared"
                )
            self._beside = self.beside(tables[self.table_id], profiles[self.profile_id])._beside
        assert self._beside is not None
        return self._beside

    def cell(self, row: ReportRow, column: Column) -> Cell:
        return next(c for c in self.cells if (c.row, c.column) == (row.id, column.id))

    def run_of(self, row: str, column: str) -> str:
        return next(found.runs[column] for found in self.rows if found.id == row)

    def score_of(self, column: str) -> str:
        return next(found.score for found in self.columns if found.id == column)
