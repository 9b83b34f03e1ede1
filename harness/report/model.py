"""The data model of a report, which is also the schema of a published `report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field

from harness.registry.claims import Mark
from harness.registry.schema import Column, Id, Row, Table, TrainingKind
from harness.statistics import Interval
from harness.statistics.comparisons import RankCorrelation
from harness.strict import Strict

Scale = Literal["toy", "reduced", "paper"]
State = Literal["ok", "partial", "not_run", "failed", "not_available"]
STATES: tuple[State, ...] = get_args(State)

Count = Annotated[int, Field(ge=0)]


class Part(Strict):
    """An immutable part of a report; its fields are its JSON form."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class RowFacts(Part):
    """What the stages of one run of a row record besides scores (`harness.report.facts`)."""

    row: str
    run: str
    """A row whose columns change the recipe has several."""
    state: State
    """As for a cell; `not_available` if nothing is trained or made."""
    done: Count
    """Number of seeds whose stages are all done."""
    values: Mapping[str, float]
    """Means over seeds by name; absent while the run is incomplete, or if a stage lacks one."""


WithInterval = tuple[float, float, float]
"""A mean with both ends of its 95% interval."""

LeagueVerdict = Literal["above", "below", "alike", "open", "no method", "missing"]
"""How a row's area compares with even draws: above or below (Holm-adjusted p under 5%), alike if
its whole interval is within the margin, else open. Only complete methods are compared."""


class LeagueMember(Part):
    """A row in a league; numbers are null while seeds are missing."""

    row: str
    verdict: LeagueVerdict
    area: float | None = None
    """Mean score over the budget minus the score at its start."""
    gain: WithInterval | None = None
    """The area minus that of even draws; null with one seed and for even draws themselves."""
    early: WithInterval | None = None
    """The same of the area up to the league's early mark."""
    p_holm: float | None = None
    """Two-sided, adjusted over the league's methods."""
    final: float | None = None
    detectable: float | None = None
    """With 80% power, unadjusted."""


class FoundLeague(Part):
    id: str
    why_not: str | None
    early_mark: Count | None = None
    """The mark by which even draws have made 60% of their gain; null if they gain nothing."""
    said: str
    members: tuple[LeagueMember, ...]


class StudiedModel(Part):
    row: str
    """The row whose policy was trained on this reward model."""
    model: str
    run: str
    baseline: str
    state: State
    done: Count
    measures: Mapping[str, WithInterval] | None = None
    """Accuracy (its interval is over pairs), best of n, and gain; null while any is missing."""


class Agreement(Part):
    first: str
    second: str
    found: RankCorrelation | None = None


class Study(Part):
    column: str
    """The column whose gains are ranked."""
    score: str
    n: Count
    """Answers per prompt in best of n."""
    seeds: tuple[Count, ...]
    models: tuple[StudiedModel, ...]
    agreements: tuple[Agreement, ...]

    @property
    def whole(self) -> bool:
        return all(model.measures is not None for model in self.models)


class Estimate(Part):
    """A mean with its 95% interval; with one seed, over prompts only."""

    mean: float
    low: float
    high: float
    detectable: float | None = None
    """Smallest size that would have been found with 80% power; null with one seed."""

    @classmethod
    def of(cls, own: Interval, detectable: float | None = None) -> Estimate:
        return cls(mean=own.mean, low=own.low, high=own.high, detectable=detectable)


VerdictWord = Literal["supported", "contradicted", "inconclusive", "inadmissible", "not_run"]

JudgedRun = Annotated[str, Field(pattern=r"^[a-z0-9_.+-]+/[a-z0-9_.+-]+/seed[0-9]+@[0-9a-f]{12}$")]


def seed_of(run: str) -> int:
    """Return the seed of a judged run, `run/profile/seed0@fingerprint`."""
    return int(run.rpartition("/seed")[2].partition("@")[0])


class Cell(Part):
    """One row in one column; either complete or without numbers, as `state` says."""

    table: str
    row: str
    column: str
    profile: str
    scale: Scale
    """Our values are comparable with the paper's only at `paper`."""
    seeds: tuple[Count, ...]
    mean: float | None = None
    """Over seeds and prompts, in the column's unit."""
    ci_low: float | None = None
    """Of the 95% interval, which is over prompts only with one seed."""
    ci_high: float | None = None
    baseline_row: str | None = None
    gain: float | None = None
    """Mean minus the baseline row's, paired by seed and prompt; by seed if prompts are scored."""
    gain_ci_low: float | None = None
    gain_ci_high: float | None = None
    gain_detectable: float | None = None
    """Smallest gain detectable with 80% power at 5%; null without a gain or with one seed."""
    paper: float | None = None
    paper_printed: str | None = None
    """As printed, so `8.90` keeps its zero."""
    paper_gain: float | None = None
    paper_sign: Literal[-1, 0, 1] | None = Field(default=None, exclude_if=lambda sign: sign is None)
    """Of the paper's gain in its main column, where a profile has columns of its own."""
    state: State
    runs: tuple[JudgedRun, ...] = ()
    """The judged runs in seed order, each with 12 digits of its judge stage's fingerprint."""
    judge: str | None = None
    reward_models: tuple[str, ...] = ()
    creators: tuple[str, ...] = ()
    reason: str | None = Field(default=None, exclude=True)
    """Why it failed or is not available, if a stage says so; not in the JSON form."""

    @property
    def gain_estimate(self) -> Estimate | None:
        mean, low, high = self.gain, self.gain_ci_low, self.gain_ci_high
        if mean is None or low is None or high is None:
            return None
        return Estimate(mean=mean, low=low, high=high)


class ReportColumn(Part):
    """A column and the score it reads from `scores.parquet`."""

    id: Id
    score: Id
    unit: str
    direction: Literal["higher", "lower", "none"]

    @classmethod
    def of(cls, it: Column) -> ReportColumn:
        return cls(id=it.id, score=it.reads, unit=it.unit, direction=it.direction)


class ReportRow(Part):
    id: Id
    label: str
    baseline: Id | None
    runs: Mapping[str, str]

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
    signs_agree: Count | None = None
    """This and all below are null while a row is missing, or with one seed."""
    signs: Count | None = None
    """Gains compared: those where the paper's is nonzero."""
    ranked: Count | None = None
    """Rows compared in rank: all but baselines."""
    spearman: float | None = None
    """Also null with fewer than four rows, or if one side is constant."""
    spearman_low: float | None = None
    """Of the middle 95% over resampled seeds and prompts, which can end at `spearman`."""
    spearman_high: float | None = None


ControlState = Literal["passed", "failed", "open", "not_run", "not_available"]
"""`open` if rows are neither shown to be alike nor to differ."""


class CheckedControl(Part):
    """A control's result: can a difference between prompts be detected?"""

    id: str
    statement: str
    training: TrainingKind
    kind: Literal["rising", "alike", "less"]
    """Scores must rise from row to row, differ by less than a share of what could be found (the
    `edge` between two rows), or one gain be less than a share of another."""
    column: str
    rows: tuple[str, ...]
    """From lowest to highest."""
    doses: tuple[int, ...] = ()
    """For a dose-response, each row's human prompts in multiples of x."""
    share: float | None = Field(default=None, exclude_if=lambda share: share is None)
    edge: tuple[str, str] | None = Field(default=None, exclude_if=lambda edge: edge is None)
    margin: float | None = Field(default=None, exclude_if=lambda margin: margin is None)
    """The share of the edge, in the column's unit."""
    needed: float
    """Required distance in standard errors; for kind `alike`, from where on the rows differ."""
    state: ControlState
    means: tuple[float, ...] = ()
    distance: float | None = None
    """Last row minus first; for kind `less`, share of the larger gain minus the smaller gain."""
    standard_errors: float | None = None
    """The distance in standard errors; null also without variance."""
    reason: str | None = None


class Power(Part):
    """The smallest detectable gain in a table's main column."""

    column: str
    training: TrainingKind
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
    """Those that give rewards; published ones that have run say if their weights were verified."""
    creators: tuple[str, ...] = ()
    judges: Mapping[str, str]
    """Judge of each benchmark that the columns read."""
    commits: tuple[str, ...] = ()
    """Marked `(changed)` if the checkout was dirty."""
    libraries: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()
    stages: Count = 0
    stages_done: Count = 0
    finished: str | None = None
    """When the last stage finished, ISO 8601 in UTC."""
    by_metric_since: str | None = None
    """Start of the first stage in which an eva metric chose prompts."""


class Assumption(Part):
    name: str
    value: str
    group: str
    """Its origin: `paper`, `code` (the authors'), or `ours`."""
    source: str


GROUPS: Mapping[str, str] = {
    "paper": "From the paper",
    "code": "From the authors' code",
    "ours": "Ours, unless a source is named",
}


class Verdict(Part):
    """A claim of the paper and what our runs show about it."""

    claim: str
    place: str
    """The table or figure that it belongs to."""
    statement: str
    word: VerdictWord
    scale: Scale
    """Only at `paper` is the verdict about the paper itself."""
    primary: bool
    estimate: Estimate | None = None
    """Ours, left minus right in the column's unit; of the weakest statement if several. What would
    have been found is the largest of theirs, at the level of the claim."""
    p: float | None = None
    """Two-sided p-value; null with one seed."""
    p_adjusted: float | None = None
    """After Holm's correction; uncorrected for a primary claim."""
    margin: float | None = None
    """How far apart the claim lets rows be, in the column's unit."""
    sought: float | None = None
    """An effect of the paper's size in our unit."""
    excludes: str | None = None
    """What the 95% interval of an inconclusive claim, not adjusted, excludes."""
    paper_margin: str | tuple[str, ...] | None = None
    """As printed; for a trend, of each step."""
    paper_within_noise: bool | None = None
    """Whether the paper's margin is no larger than its benchmark's noise."""
    reason: str | None = None
    """Why there is no decision, or the basis of the verdict."""
    marks: tuple[Mark, ...] = ()

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


class Report(Part):
    """Everything about a table at one profile, as taken by every output format."""

    table: Id
    profile: Id
    scale: Scale
    seeds: tuple[Count, ...]
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    cells: tuple[Cell, ...]
    summary: tuple[ColumnSummary, ...]
    facts: tuple[RowFacts, ...] = ()
    """Every run of every row; empty if they were not read."""
    study: Study | None = Field(default=None, exclude_if=lambda study: study is None)
    leagues: tuple[FoundLeague, ...] = Field(default=(), exclude_if=lambda found: not found)
    inadmissible: str | None = Field(default=None, exclude_if=lambda why: why is None)
    """Why verdicts on the table are."""
    inadmissible_choosing: str | None = Field(default=None, exclude_if=lambda why: why is None)
    """Why verdicts on choosing prompts are."""
    controls: tuple[CheckedControl, ...] = Field(default=(), exclude_if=lambda found: not found)
    """The controls that the table relies on or declares."""
    power: tuple[Power, ...] = Field(default=(), exclude_if=lambda found: not found)
    failures: tuple[str, ...] = ()
    origin: Origin
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_numbers(self) -> bool:
        return any(cell.mean is not None for cell in self.cells)

    def cell(self, row: str, column: str) -> Cell:
        return next(cell for cell in self.cells if (cell.row, cell.column) == (row, column))

    def of_column(self, column: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.column == column]
