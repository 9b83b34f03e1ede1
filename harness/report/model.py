"""The data model of a report: everything about a table at one profile.

`Report` is built from a store (`harness.report.build`), saved as a published table's `report.json`,
and taken by every output format; `Report.model_json_schema` is its schema. A published report holds
the ids of its declarations; `Report.table` and `Report.profile` return the declarations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr

from harness.errors import HarnessError
from harness.registry.claims import Claim, Mark
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

VerdictWord = Literal["supported", "contradicted", "inconclusive", "inadmissible", "not_run"]
"""What our runs show about a claim."""

JudgedRun = Annotated[str, Field(pattern=r"^[a-z0-9_.+-]+/[a-z0-9_.+-]+/seed[0-9]+@[0-9a-f]{12}$")]


class Cell(Part):
    """One row in one column; either complete or without numbers, as `state` says."""

    table: str
    row: str
    column: str
    profile: str
    scale: Scale
    """The profile's scale; our values are comparable with the paper's only at `paper`."""
    seeds: tuple[Count, ...]
    mean: float | None = None
    """Mean over seeds and prompts, in the column's unit."""
    ci_low: float | None = None
    """Lower end of the 95% interval, which is over prompts only with one seed."""
    ci_high: float | None = None
    baseline_row: str | None = None
    """Row that the gain is measured against; null on a baseline row."""
    gain: float | None = None
    """Mean minus the baseline row's, paired by seed and prompt; by seed if prompts are scored."""
    gain_ci_low: float | None = None
    gain_ci_high: float | None = None
    gain_detectable: float | None = None
    """Smallest gain detectable with 80% power at 5%; null without a gain or with one seed."""
    paper: float | None = None
    """The paper's value; null if it prints none."""
    paper_printed: str | None = None
    """The paper's value as printed, so `8.90` keeps its zero."""
    paper_gain: float | None = None
    """The printed value minus the baseline row's."""
    state: State
    """Whether the cell has numbers, and if not, why."""
    runs: tuple[JudgedRun, ...] = ()
    """The judged runs behind the cell, in seed order, each as
    `<run id>/<profile>/seed<seed>@<first 12 digits of the judge stage's fingerprint>`."""
    judge: str | None = None
    """Its judge; null if the profile has no benchmark for the column."""
    reward_models: tuple[str, ...] = ()
    creators: tuple[str, ...] = ()
    """Creators that evolve its runs' prompts; empty if nothing evolves."""
    worth: Worth | None = None
    """Worth of our mean in human prompts; null if the controls do not give it."""
    paper_worth: Worth | None = None
    """Worth of the paper's value on the paper's own curve; null if it prints none."""
    reason: str | None = Field(default=None, exclude=True)
    """Why the cell failed or is not available, if a stage says so; not in the JSON form."""


class ReportColumn(Part):
    """A column and the score it reads from `scores.parquet`."""

    id: Id
    score: Id
    unit: str
    direction: Literal["higher", "lower", "none"]

    @classmethod
    def of(cls, column: Column) -> ReportColumn:
        return cls(
            id=column.id,
            score=column.reads,
            unit=column.unit,
            direction=column.direction,
        )


class ReportRow(Part):
    id: Id
    label: str
    baseline: Id | None
    runs: Mapping[str, str]
    """Its run in each column."""

    @classmethod
    def of(cls, row: Row, table: Table) -> ReportRow:
        runs = {column.id: row.run_id(column) for column in table.columns}
        return cls(id=row.id, label=row.label, baseline=row.baseline, runs=runs)


class ColumnSummary(Part):
    """How a column compares with the paper's."""

    column: str
    scale: Scale
    rows: Count
    """Requested rows for which the paper prints a value."""
    done: Count
    """Those of them that are complete."""
    signs_agree: Count | None = None
    """Gains with the same sign as the paper's; null while a row is missing or with one seed."""
    signs: Count | None = None
    """Gains compared, those where the paper's is nonzero; null as for `signs_agree`."""
    ranked: Count | None = None
    """Rows compared in rank, all but baselines; null as for `signs_agree`."""
    spearman: float | None = None
    """Spearman's rank correlation with the paper over the ranked rows; null as for `signs_agree`,
    with fewer than four rows, or if one side is constant."""
    spearman_low: float | None = None
    """Lower end of the middle 95% over resampled seeds and prompts. It is not an interval around
    `spearman`, which takes few values over few rows and can stand at either end."""
    spearman_high: float | None = None


class CheckedControl(Part):
    """A control's result: can a difference between prompts be detected?"""

    id: str
    statement: str
    training: Literal["offline", "online"]
    kind: Literal["rising", "alike", "less"]
    """Whether scores must rise from row to row, differ by less than a share of what could be found,
    or one gain be less than a share of another."""
    column: str
    rows: tuple[str, ...]
    """From lowest to highest."""
    doses: tuple[int, ...] = ()
    """For a dose-response, each row's human prompts in multiples of x."""
    share: float | None = Field(default=None, exclude_if=lambda share: share is None)
    """For kind `less`, the share of the other gain; for `alike`, of the edge; absent otherwise."""
    edge: tuple[str, str] | None = Field(default=None, exclude_if=lambda edge: edge is None)
    """For kind `alike`, the rows whose difference is what could be found; absent otherwise."""
    margin: float | None = Field(default=None, exclude_if=lambda margin: margin is None)
    """For kind `alike`, the share of the edge, in the column's unit; absent otherwise."""
    needed: float
    """Required distance in standard errors; for kind `alike`, from where on the rows differ."""
    state: Literal["passed", "failed", "open", "not_run", "not_available"]
    """The result; `open` if rows are neither shown to be alike nor to differ, `not_available` if
    the profile cannot run a row."""
    means: tuple[float, ...] = ()
    """Mean of each row, in the column's unit; empty if any is missing."""
    distance: float | None = None
    """Mean of the last row minus the first, paired by seed and prompt; for kind `less`, the share
    of the larger gain minus the smaller gain."""
    standard_errors: float | None = None
    """The distance in standard errors; null without a distance or if infinite (no variance)."""
    reason: str | None = None


class Power(Part):
    """The smallest detectable gain in a table's main column."""

    column: str
    training: Literal["offline", "online"]
    seeds: Count
    detectable: float
    """Gain detectable with 80% power at 5%, in the column's unit: median over rows."""
    dose: float | None = None
    """Gain of 3x human prompts over 1x in the controls; null while unknown."""

    @property
    def in_doses(self) -> float | None:
        """Detectable gain as a multiple of `dose`; None unless `dose` is positive."""
        return self.detectable / self.dose if self.dose is not None and self.dose > 0 else None


class Origin(Part):
    """Provenance of a report's numbers; tuples are sorted and free of duplicates."""

    policies: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    reward_models: tuple[str, ...] = ()
    """Reward models that annotate; published ones that have run say whether their weights were
    verified."""
    creators: tuple[str, ...] = ()
    """Creators that evolve prompts; empty if nothing evolves."""
    judges: Mapping[str, str]
    """Judge of each benchmark that the columns read."""
    commits: tuple[str, ...] = ()
    """Code commits behind the finished stages, marked `(changed)` if the checkout was dirty."""
    libraries: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    stages: Count = 0
    stages_done: Count = 0
    finished: str | None = None
    """When the last stage finished, ISO 8601 in UTC; null if none has."""
    by_metric_since: str | None = None
    """Start of the first stage in which an eva metric chose prompts; null if there is none."""


class Assumption(Part):
    name: str
    value: str
    group: str
    """Its origin: `paper`, `code` (the authors'), or `ours`."""
    source: str


GROUPS: Mapping[str, str] = {
    "paper": "From the paper",
    "code": "From the authors' code",
    "ours": "Ours",
}
"""Display names of the origins of assumptions."""


class Estimate(Part):
    """A mean with its 95% interval; with one seed, over prompts only."""

    mean: float
    low: float
    high: float
    detectable: float | None = None
    """Smallest size that would have been found with 80% power; null with one seed."""


class Verdict(Part):
    """A claim of the paper and what our runs show about it."""

    claim: str
    """The claim's id."""
    place: str
    """The table or figure that it belongs to."""
    statement: str
    word: VerdictWord
    scale: Scale
    """The profile's scale; only at `paper` is the verdict about the paper itself."""
    primary: bool
    estimate: Estimate | None = None
    """Ours, left minus right in the column's unit; of the weakest statement if several. What would
    have been found is at 5% for a primary claim and at 5% divided by the family size for others;
    with several statements, the largest of theirs (`harness.statistics.Interval.detectable`)."""
    p: float | None = None
    """Two-sided p-value; null with one seed."""
    p_adjusted: float | None = None
    """p-value after Holm's correction; uncorrected for a primary claim."""
    sought: float | None = None
    """An effect of the paper's size in our unit; null if it has none here."""
    excludes: str | None = None
    """What the 95% interval of an inconclusive claim, not adjusted, excludes: `the claim`, or `an
    effect of the paper's size`; null if neither."""
    paper_margin: str | tuple[str, ...] | None = None
    """The paper's margin as printed; for a trend, of each step."""
    paper_within_noise: bool | None = None
    """Whether the paper's margin is no larger than its benchmark's noise."""
    reason: str | None = None
    """Why there is no decision, or the basis of the verdict."""
    marks: tuple[Mark, ...] = ()
    """Why the verdict says less than others; empty if nothing does."""

    @property
    def name(self) -> str:
        """The id, with a star if the claim is primary."""
        return f"{self.claim} *" if self.primary else self.claim

    @property
    def text(self) -> str:
        """Display text: the word, the scale unless it is `paper`, what is excluded, and marks."""
        word = self.word.replace("_", " ")
        decided = self.word not in ("inadmissible", "not_run")
        notes: list[str] = [self.scale] if decided and self.scale != "paper" else []
        notes += [f"excludes {self.excludes}"] if self.excludes else []
        notes += [mark.word for mark in self.marks]
        return f"{word} ({', '.join(notes)})" if notes else word


PerPrompt = dict[tuple[str, int, str], dict[str, float]]
"""Value of each prompt, by run, seed, and score."""


@dataclass(frozen=True)
class Beside:
    """Data that accompanies a report but is not in its JSON form.

    The declarations are the current ones; `calibrations` holds the latest calibration of each real
    judge that the columns read, by benchmark, or None. Verdicts and scores are loaded lazily.
    """

    table: Table
    profile: Profile
    calibrations: Mapping[str, Calibration | None] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    judge: Callable[[Sequence[Claim], str], Sequence[Verdict]] = lambda claims, place: ()
    scores: Callable[[], PerPrompt] = dict

    @cached_property
    def verdicts(self) -> Sequence[Verdict]:
        return self.judge(self.table.claims, self.table.id)


class Report(Part):
    """Everything about a table at one profile, as taken by every output format."""

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
    """The creator's statistics for each offline run."""
    online: tuple[OnlineCost, ...] = ()
    costs: tuple[RowCost, ...] | None = Field(default=None, exclude_if=lambda costs: costs is None)
    """Cost of each row; absent if not computed."""
    study: Study | None = Field(default=None, exclude_if=lambda study: study is None)
    """Results of the table's reward model study; absent if it has none."""
    leagues: tuple[FoundLeague, ...] = Field(default=(), exclude_if=lambda found: not found)
    """Results of the table's selector leagues; absent if it has none."""
    inadmissible: str | None = Field(default=None, exclude_if=lambda why: why is None)
    """Why verdicts on the table are inadmissible; absent if they are admissible."""
    inadmissible_choosing: str | None = Field(default=None, exclude_if=lambda why: why is None)
    """Why verdicts on choosing prompts are inadmissible; absent if they are admissible."""
    controls: tuple[CheckedControl, ...] = Field(default=(), exclude_if=lambda found: not found)
    """The controls that the table relies on or declares; absent if there are none."""
    power: tuple[Power, ...] = Field(default=(), exclude_if=lambda found: not found)
    """Detectable gains; absent with one seed or without gains."""
    failures: tuple[str, ...] = ()
    origin: Origin
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()

    _beside: Beside | None = PrivateAttr(default=None)

    def beside(self, table: Table, profile: Profile, **more: Any) -> Self:
        """Return a copy with the data that is not in its JSON form: the fields of `Beside`.

        Raises:
            HarnessError: The report does not match the declarations.
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
        """The table as currently declared.

        Raises:
            HarnessError: It is no longer declared, or its columns have changed.
        """
        return self._known.table

    @property
    def profile(self) -> Profile:
        return self._known.profile

    @property
    def calibrations(self) -> Mapping[str, Calibration | None]:
        """Latest calibration of each real judge, by benchmark; empty for a report read back."""
        return {} if self._beside is None else self._beside.calibrations

    @property
    def verdicts(self) -> Sequence[Verdict]:
        return () if self._beside is None else self._beside.verdicts

    def judge(self, claims: Sequence[Claim], place: str) -> Sequence[Verdict]:
        """Return the verdicts on a figure's claims about the rows of this table."""
        return () if self._beside is None else self._beside.judge(claims, place)

    @property
    def measured(self) -> PerPrompt:
        """The per-prompt scores; empty for a report read back without them."""
        return {} if self._beside is None else self._beside.scores()

    @property
    def absent(self) -> Mapping[str, str]:
        """Why rows have no numbers, except rows that simply have not run."""
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
