"""A table of the paper, or one of ours, as data: columns, rows with recipes, values as printed.

A cell's recipe is its row's settings laid over its table's, with its column's laid over both
(`harness.registry.recipe.layered`). Values are kept as the strings the paper prints, so that
`57.10` keeps its zero and says how exactly it is known. A gain is a row's value minus that of its
baseline row in the same column; a baseline row has no baseline of its own and no gain.
A table of ours goes beyond the paper: its source is `ours`, and it has no printed values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PrivateAttr, RootModel, field_validator, model_validator

from harness.errors import UserError
from harness.extensions import BENCHMARKS
from harness.registry.claims import Claim, Qualitative, places
from harness.registry.documents import nearest
from harness.registry.paper import the_paper
from harness.registry.recipe import OneOf, Recipe, choice, chooses_prompts, layered
from harness.strict import Strict, refuse

Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.+-]*$")]

SHIPPED_SCORES: Final[tuple[str, ...]] = (
    "ah_wr", "ah_len", "ah_exact", "mt_avg", "mt_t1", "mt_t2", "ae_lc", "ae_wr",
    "complexity", "quality", "musr_ta", "tqa_gen", "wmdp", "gsm8k", "gsm_plus", "mmlu_pro",
)  # fmt: skip
"""The per-prompt scores that the shipped benchmarks yield."""


class _Added:
    """The per-prompt scores that plug-ins' benchmarks yield."""

    def __iter__(self) -> Iterator[str]:
        for name in BENCHMARKS:
            if name not in BENCHMARKS.shipped and (added := BENCHMARKS.added(name)) is not None:
                yield from added.thing.columns.values()

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, score: object) -> bool:
        return score in list(iter(self))


ScoreId = Annotated[str, OneOf(SHIPPED_SCORES, _Added())]
"""A per-prompt score; a column reads one of them."""

PROMPT_SCORES: Final[tuple[str, ...]] = ("complexity", "quality")
"""The scores of prompts themselves; all others are of answers. Every run and seed has prompts of
its own, so that two rows of such a column have seeds in common and no prompts."""

RowKind = Literal["policy", "prompts"]

TrainingKind = Literal["offline", "online"]
TrainingKinds = tuple[TrainingKind, ...]

BASE: Final = Recipe()
"""The base model's recipe."""

_PRINTED = re.compile(r"-?\d+(\.\d+)?")


class PaperValue(RootModel[Annotated[str, Field(pattern=rf"^{_PRINTED.pattern}$")]], frozen=True):
    @field_validator("root", mode="before")
    @classmethod
    def _printed(cls, value: object) -> object:
        if not isinstance(value, str) or not _PRINTED.fullmatch(value):
            raise ValueError(f'write `{value}` as a quoted number, as printed: "57.10"')
        return value

    @property
    def printed(self) -> str:
        """The characters in the paper."""
        return self.root

    @cached_property
    def value(self) -> float:
        """The number, in the unit of its column."""
        return float(self.root)

    @property
    def decimals(self) -> int:
        return len(self.root.partition(".")[2])


class PaperSource(Strict):
    """Where the paper prints a table."""

    section: str
    """Section, `4.2.1`, or appendix, `H.1`."""
    table: int = Field(ge=1)
    caption: str


class Column(Strict):
    """What is measured, in which unit, and which way is better."""

    id: Id
    benchmark: str
    metric: str
    """What is computed from the answers."""
    printed: str
    """Heading in the paper."""
    unit: str
    """Unit of the values: `%`, `1-10`, `1-5` or `tokens`."""
    direction: Literal["higher", "lower", "none"]
    """Which values are better; `none` where neither is."""
    panel: str | None = None
    """Part of the table the column belongs to, where the paper divides it."""
    score: ScoreId | None = None
    """The per-prompt score this column reads; null means the one of the column's own id."""
    recipe: dict[str, Any] = Field(default={})
    """Settings laid over those of every row but the base model's."""
    optional: bool = False
    """Whether the table's rows also run at a profile that does not measure this column."""

    @model_validator(mode="before")
    @classmethod
    def _own_score(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("score") is None and "id" in data:
            return data | {"score": data["id"]}
        return data

    @cached_property
    def reads(self) -> str:
        return self.score or self.id

    @cached_property
    def of_prompts(self) -> bool:
        """Whether prompts are scored, and not a policy's answers."""
        return self.reads in PROMPT_SCORES


class Row(Strict):
    """One line of a table: a label, a recipe, and what the paper prints."""

    id: Id
    label: str
    reading: str | None = None
    """The path the label stands for, where the paper's bars over evolved sets are lost."""
    kind: RowKind = "policy"
    """What is measured: the trained policy, or the prompts of the chain's last iteration."""
    run: Id | None = None
    """The run behind every cell; rows of different tables with one run are one trained model."""
    run_by_column: dict[Id, Id] | None = None
    """The run behind each cell, where columns change the recipe."""
    baseline: Id | None = None
    """Row that gains are measured against; null on that row itself."""
    recipe: dict[str, Any] = Field(default={})
    values: dict[Id, PaperValue] = Field(default={})
    printed_notes: dict[Id, str] = Field(default={})
    """What the paper prints beside a number."""

    @model_validator(mode="after")
    def _one_way_to_name_runs(self) -> Row:
        both = (self.run is None) == (self.run_by_column is None)
        refuse((both, "name the run with either `run` or `run_by_column`"))
        return self

    def run_id(self, column: Column) -> str:
        return self.run if self.run is not None else (self.run_by_column or {})[column.id]


class TableStudy(Strict):
    """What is measured of a table's rows beside their columns."""

    of: Literal["reward_models"]
    """Each row's reward model: its accuracy on held-out pairs, and the oracle score of its best of
    n answers of the base policy; and how both rank the reward models beside the rows' gains."""
    column: Id
    """The column whose gains are ranked."""


class Control(Strict):
    """What must come out if experiments about prompts can find anything at a profile."""

    id: Id
    statement: str
    training: TrainingKind
    """Kind of training whose tables rest on it."""
    kind: Literal["rising", "alike", "less"]
    """The scores rise from each row to the next; or do not differ; or, of three rows, the gain of
    the second over the first is less than a share of that of the third."""
    column: Id
    rows: Annotated[tuple[Id, ...], Field(min_length=2)]
    """The rows, from the lowest to the highest."""
    doses: tuple[int, ...] = ()
    """Of a dose-response: the human prompts of each row, in multiples of x."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of a gain that is less than another: the share of it."""
    standard_errors: float = Field(ge=0)
    """Least distance of the last row from the first; of rows that are alike, the largest; of a gain
    that is less than a share of another, how far at least."""

    @model_validator(mode="after")
    def _consistent(self) -> Control:
        less, rows = self.kind == "less", len(self.rows)
        refuse(
            ((self.share is not None) != less, "`less` needs a `share`, and nothing else has one"),
            (less and rows != 3, "`less` compares the gains of two `rows` over the first of three"),
            (not less and self.standard_errors == 0,
             "`standard_errors` of rows that rise or are alike are above 0"),
            (self.doses and (self.kind != "rising" or len(self.doses) != rows),
             "`doses` are those of `rows`, one each, which are `rising`"),
            (sorted(set(self.doses)) != list(self.doses), "`doses` must rise"),
            (self.kind == "alike" and rows != 2, "two `rows` are `alike`, no more"),
        )  # fmt: skip
        return self


class LeagueRows(Strict):
    """The rows of a table that choose prompts from the same pool on the same budget.

    Its members are the rows with `uniform` as baseline. Columns are the parts of the budget, in
    order, of one score.
    """

    id: Id
    title: str
    uniform: Id
    """The row that draws evenly, which all others are compared with."""
    start: Id
    """The row that is not trained: the score at a budget of nothing."""
    twin: Id
    """The row that draws evenly as well, by other random numbers."""
    above: tuple[Id, ...]
    """Rows, no methods, that must be above `uniform`."""
    below: tuple[Id, ...]
    """Rows, no methods, that must be below it."""
    controls: tuple[Id, ...] = ()
    """Further rows that are no methods."""
    margin: float = Field(gt=0)
    """A difference from `uniform` within this does not matter; in the columns' unit."""

    @property
    def no_methods(self) -> set[str]:
        """The rows that are not ranked."""
        return {self.uniform, self.start, self.twin, *self.above, *self.below, *self.controls}


class Table(Strict):
    """One table: its question, columns, rows, known problems, and what the paper says of it."""

    id: Id
    kind: Literal["experiment", "ablation"]
    title: str
    question: str
    source: PaperSource | None
    """Where the paper prints it; `ours` in a file, and None here, where it does not."""
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    """What is measured, in printed order."""
    recipe: dict[str, Any] = Field(default={})
    """Settings all rows share, but for the base model."""
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]
    study: TableStudy | None = None
    controls: tuple[Control, ...] = ()
    """What must come out for verdicts about prompts to be admissible; only the controls have it."""
    leagues: tuple[LeagueRows, ...] = ()
    notes: tuple[str, ...] = ()
    """Known problems of the printed numbers, and readings chosen where the paper is open."""
    claims: tuple[Claim, ...] = ()

    @field_validator("source", mode="before")
    @classmethod
    def _ours(cls, value: object) -> object:
        return None if value == "ours" else value

    @model_validator(mode="after")
    def _nothing_printed_of_ours(self) -> Table:
        printed = [row.id for row in self.rows if row.values or row.printed_notes]
        refuse(
            (self.is_ours and printed,
             f"the paper prints no value of `{''.join(printed[:1])}`, a row of ours"),
            (self.is_ours and self.claims, "the paper claims nothing of a table of ours"),
        )  # fmt: skip
        return self

    @property
    def is_ours(self) -> bool:
        """Whether the table goes beyond the paper."""
        return self.source is None

    @property
    def heading(self) -> str:
        """The title, after its number in the paper where it has one."""
        return self.title if self.source is None else f"Table {self.source.table}: {self.title}"

    @property
    def named(self) -> str:
        """What it is called in a sentence: `table 2`, or, of one of ours, its name."""
        return self.id if self.source is None else f"table {self.source.table}"

    @property
    def place(self) -> str:
        """Where the paper prints the table, in words; of one of ours, that it does not."""
        if self.source is None:
            return "ours, beyond the paper's tables"
        return f"{the_paper().cited}, section {self.source.section}, table {self.source.table}"

    @property
    def paper_values(self) -> int:
        """How many numbers the paper prints in this table."""
        return sum(len(row.values) for row in self.rows)

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row.id: row for row in self.rows}

    @cached_property
    def _columns(self) -> dict[str, Column]:
        return {column.id: column for column in self.columns}

    def row(self, name: str) -> Row:
        if name not in self._rows:
            raise UserError(f"`{self.id}` has no row `{name}`{nearest(name, self._rows)}")
        return self._rows[name]

    def league(self, name: str) -> LeagueRows:
        return next(league for league in self.leagues if league.id == name)

    def column(self, name: str) -> Column:
        if name not in self._columns:
            raise UserError(f"`{self.id}` has no column `{name}`{nearest(name, self._columns)}")
        return self._columns[name]

    def training_of(self, row: Row) -> TrainingKinds:
        """Return how a row's policies are trained: online, offline, or not at all."""
        if row.id not in self._trained:
            found: dict[TrainingKind, None] = {}
            for recipe in self.recipes(row).values():
                if recipe != BASE:
                    found["online" if recipe.is_online else "offline"] = None
            self._trained[row.id] = tuple(found)
        return self._trained[row.id]

    _trained: dict[str, TrainingKinds] = PrivateAttr(default_factory=dict)

    @cached_property
    def about_prompts(self) -> TrainingKinds:
        """The trainings of the rows that choose prompts; none where no row of policies does.

        The controls themselves need none.
        """
        if self.controls:
            return ()
        found = [
            training
            for row in self.rows
            if row.kind == "policy" and any(map(chooses_prompts, self.recipes(row).values()))
            for training in self.training_of(row)
        ]
        return tuple(dict.fromkeys(found))

    def trainings_behind(self, claim: Claim) -> TrainingKinds:
        """Return the trainings of a claim's rows, of those that verdicts about prompts rest on."""
        if isinstance(claim.test, Qualitative):
            return ()
        rows = [self.row(row) for row, _ in places(claim.test)]
        found = {training for row in rows for training in self.training_of(row)}
        return tuple(training for training in self.about_prompts if training in found)

    @property
    def main_place(self) -> tuple[str | None, Column]:
        """The left row and the column of the primary claim; no row and the first without one."""
        for claim in self.claims:
            if claim.primary and not isinstance(claim.test, Qualitative):
                row, column = places(claim.test)[0]
                return row, self.column(column)
        return None, self.columns[0]

    @property
    def main_column(self) -> Column:
        """The column of the primary claim, the first one where there is none."""
        return self.main_place[1]

    def is_about_choosing(self, claim: Claim) -> bool:
        """Return whether a claim compares ways to choose prompts.

        Its rows choose among prompts in two ways: by another metric or sampling, or to evolve what
        is chosen and to train on it as it is. Rows that choose alike, beside others that take
        prompts as they come, do not ask which were chosen.
        """
        if isinstance(claim.test, Qualitative):
            return False
        cells = {place for shown in claim.test.shown for _, place in shown.terms}
        ways = {choice(self.recipe_of(self.row(row), self.column(name))) for row, name in cells}
        return len(ways - {None}) > 1

    # Checking a recipe takes longer than all else that is asked of a table.
    _recipes: dict[tuple[str, str | None], Recipe] = PrivateAttr(default_factory=dict)

    def recipe_of(self, row: Row, column: Column) -> Recipe:
        place = row.id, column.id if column.recipe else None
        if place not in self._recipes:
            settings = layered(self.recipe, row.recipe, column.recipe)
            self._recipes[place] = Recipe.model_validate(settings)
        return self._recipes[place]

    def recipes(self, row: Row) -> Mapping[str, Recipe]:
        """Return the distinct recipes of a row by their run ids, in order of the columns."""
        if row.id not in self._by_run:
            # One run stands in all columns, or each column names its own.
            columns = self.columns if row.run is None else self.columns[-1:]
            self._by_run[row.id] = {row.run_id(c): self.recipe_of(row, c) for c in columns}
        return self._by_run[row.id]

    def read_of(self, row: Row, run_id: str) -> tuple[Column, ...]:
        """Return the columns whose cells of a row are one run's."""
        if row.run is not None:
            return self.columns
        return tuple(column for column in self.columns if row.run_id(column) == run_id)

    _by_run: dict[str, Mapping[str, Recipe]] = PrivateAttr(default_factory=dict)

    def paper_gain(self, row: Row, column: Column) -> float | None:
        """Return the paper's value minus that of the row's baseline, in the column's unit.

        Rounded to the decimals printed; None on a baseline row and where a value is not printed.
        """
        if row.baseline is None:
            return None
        value = row.values.get(column.id)
        base = self.row(row.baseline).values.get(column.id)
        if value is None or base is None:
            return None
        return round(value.value - base.value, max(value.decimals, base.decimals))
