"""Tables of the paper, or our own, as data: columns, rows with recipes, and printed values.

A cell's recipe is its row's settings over its table's, with its column's over both
(`harness.registry.recipe.layered`). Values stay strings as printed, so that `57.10` keeps its zero
and hence its precision. A gain is a row's value minus its baseline row's in the same column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PrivateAttr, RootModel, field_validator, model_validator

from harness.errors import UserError
from harness.extensions import SCORES
from harness.registry.claims import Claim, Qualitative, places
from harness.registry.documents import nearest
from harness.registry.paper import the_paper
from harness.registry.recipe import Recipe, choice, chooses_prompts, layered, one_of
from harness.strict import Strict

Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.+-]*$")]

ScoreId = Annotated[str, one_of(SCORES)]

PROMPT_SCORES: Final[tuple[str, ...]] = ("complexity", "quality")
"""Scores of the prompts themselves; all others score answers. Every run and seed has its own
prompts, so two rows of such a column share seeds but no prompts."""

RowKind = Literal["policy", "prompts"]

TrainingKind = Literal["offline", "online"]
TrainingKinds = tuple[TrainingKind, ...]

_PRINTED = re.compile(r"-?\d+(\.\d+)?")


class PaperValue(RootModel[str], frozen=True):
    @field_validator("root", mode="before")
    @classmethod
    def _printed(cls, value: object) -> object:
        if not isinstance(value, str) or not _PRINTED.fullmatch(value):
            raise ValueError(f'write `{value}` as a quoted number, as printed: "57.10"')
        return value

    @property
    def printed(self) -> str:
        return self.root

    @cached_property
    def value(self) -> float:
        """The number, in its column's unit."""
        return float(self.root)

    @property
    def decimals(self) -> int:
        return len(self.root.partition(".")[2])


class PaperSource(Strict):
    section: str
    """Section, `4.2.1`, or appendix, `H.1`."""
    table: int = Field(ge=1)
    caption: str


class Column(Strict):
    """What is measured, its unit, and which direction is better."""

    id: Id
    benchmark: str
    metric: str
    """What is computed from the answers."""
    printed: str
    """Heading in the paper."""
    unit: str
    """Unit of the values: `%`, `1-10`, `1-5` or `tokens`."""
    direction: Literal["higher", "lower", "none"]
    """Which values are better; `none` if neither."""
    panel: str | None = None
    """The column's panel, if the paper divides the table."""
    score: ScoreId | None = None
    """The per-prompt score this column reads; null means the column's id."""
    recipe: dict[str, Any] = Field(default={})
    """Settings that override those of every row except the base model's."""
    optional: bool = False
    """Whether the table's rows also run at profiles that do not measure this column."""

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
        """Whether it scores prompts rather than a policy's answers."""
        return self.reads in PROMPT_SCORES


class Row(Strict):
    """A table row: a label, a recipe, and the paper's printed values."""

    id: Id
    label: str
    reading: str | None = None
    """The training path the label stands for, where the paper's bars over evolved sets are lost."""
    kind: RowKind = "policy"
    """What is measured: the trained policy, or the prompts of the chain's last iteration."""
    run: Id | None = None
    """The run behind every cell; rows of different tables with the same run are one trained
    model."""
    run_by_column: dict[Id, Id] | None = None
    """The run behind each cell, if columns change the recipe."""
    baseline: Id | None = None
    """Row that gains are measured against; null for a baseline row."""
    recipe: dict[str, Any] = Field(default={})
    values: dict[Id, PaperValue] = Field(default={})
    printed_notes: dict[Id, str] = Field(default={})
    """Annotations that the paper prints next to numbers, by column."""
    paper_sign: Literal[-1, 0, 1] | None = None
    """The sign of the paper's gain in its main column, where a profile has columns of its own."""

    @model_validator(mode="after")
    def _one_way_to_name_runs(self) -> Row:
        if (self.run is None) == (self.run_by_column is None):
            raise ValueError("name the run with either `run` or `run_by_column`")
        return self

    def run_id(self, column: Column) -> str:
        return self.run if self.run is not None else (self.run_by_column or {})[column.id]


class Control(Strict):
    """A result that must hold if experiments about prompts can detect anything at a profile."""

    id: Id
    statement: str
    training: TrainingKind
    """Kind of training whose tables depend on it."""
    kind: Literal["rising", "alike", "less"]
    """`rising`: scores rise from each row to the next; `alike`: they differ by less than `share` of
    an `edge`; `less`: of three rows, the second's gain over the first is less than `share` of the
    third's."""
    column: Id
    rows: Annotated[tuple[Id, ...], Field(min_length=2)]
    """The rows, lowest to highest."""
    doses: tuple[int, ...] = ()
    """For a dose-response: human prompts of each row, in multiples of x."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """For `less`: the fraction of the third row's gain; for `alike`: of the edge."""
    edge: tuple[Id, Id] | None = None
    """For `alike`: the rows whose difference, second minus first, is what could be found at all."""
    standard_errors: float = Field(ge=0)
    """`rising`: minimum distance of the last row from the first; `alike`: distance from which the
    rows differ; `less`: minimum distance of the gain below the fraction of the other."""

    @property
    def compared(self) -> tuple[str, ...]:
        """Every row that decides it, each once."""
        return tuple(dict.fromkeys((*self.rows, *(self.edge or ()))))

    @model_validator(mode="after")
    def _consistent(self) -> Control:
        less, alike, rows = self.kind == "less", self.kind == "alike", len(self.rows)
        if (self.share is not None) != (less or alike):
            raise ValueError("`less` and `alike` need a `share`, and nothing else has one")
        if (self.edge is not None) != alike:
            raise ValueError("`alike` needs an `edge`, and nothing else has one")
        if less and rows != 3:
            raise ValueError("`less` compares the gains of two `rows` over the first of three")
        if not less and self.standard_errors == 0:
            raise ValueError("`standard_errors` of rows that rise or are alike are above 0")
        if self.doses and (self.kind != "rising" or len(self.doses) != rows):
            raise ValueError("`doses` are those of `rows`, one each, which are `rising`")
        if sorted(set(self.doses)) != list(self.doses):
            raise ValueError("`doses` must rise")
        if self.kind == "alike" and rows != 2:
            raise ValueError("`alike` compares exactly two `rows`")
        return self


class LeagueRows(Strict):
    """The rows of a table that choose prompts from the same pool on the same budget."""

    id: Id
    title: str
    uniform: Id
    """The row that draws uniformly, which all others are compared with."""
    start: Id
    """The untrained row: the score at zero budget."""
    twin: Id
    """A second uniform row, with different random numbers."""
    above: tuple[Id, ...]
    """Control rows that must score above `uniform`."""
    below: tuple[Id, ...]
    """Control rows that must score below it."""
    controls: tuple[Id, ...] = ()
    """Further rows that are not methods."""
    margin: float = Field(gt=0)
    """Differences from `uniform` within this are negligible; in the columns' unit."""

    @property
    def no_methods(self) -> set[str]:
        return {self.uniform, self.start, self.twin, *self.above, *self.below, *self.controls}


class Table(Strict):
    """One table: its question, columns, rows, known problems, and the paper's claims about it."""

    id: Id
    kind: Literal["experiment", "ablation"]
    title: str
    question: str
    source: PaperSource | None
    """Where the paper prints it; None (`ours` in the file) if it does not."""
    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    """What is measured, in printed order."""
    recipe: dict[str, Any] = Field(default={})
    """Settings shared by all rows except the base model."""
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]
    reward_model_study: Id | None = None
    """Column by whose gains each row's reward model is ranked, as it is by its accuracy on held-out
    pairs and by the oracle's score of its best of n base-policy answers; null for no study."""
    controls: tuple[Control, ...] = ()
    """What must hold for verdicts about prompts to be admissible; only in the `controls` table."""
    leagues: tuple[LeagueRows, ...] = ()
    notes: tuple[str, ...] = ()
    """Known problems with the printed numbers, and interpretations where the paper is
    ambiguous."""
    claims: tuple[Claim, ...] = ()

    @field_validator("source", mode="before")
    @classmethod
    def _ours(cls, value: object) -> object:
        return None if value == "ours" else value

    @model_validator(mode="after")
    def _nothing_printed_of_ours(self) -> Table:
        printed = [row.id for row in self.rows if row.values or row.printed_notes]
        if self.is_ours and printed:
            raise ValueError(
                f"the paper prints no value of `{''.join(printed[:1])}`, a row of ours"
            )
        if self.is_ours and self.claims:
            raise ValueError("the paper claims nothing of a table of ours")
        return self

    @property
    def is_ours(self) -> bool:
        """Whether the table goes beyond the paper."""
        return self.source is None

    @property
    def heading(self) -> str:
        """The title, prefixed with its number in the paper, if any."""
        return self.title if self.source is None else f"Table {self.source.table}: {self.title}"

    @property
    def place(self) -> str:
        """Where the paper prints the table, in words, or that it is ours."""
        if self.source is None:
            return "ours, beyond the paper's tables"
        return f"{the_paper().cited}, section {self.source.section}, table {self.source.table}"

    @property
    def paper_values(self) -> int:
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
        trained = [recipe.is_online for recipe in self.recipes(row).values() if not recipe.is_base]
        return tuple("online" if online else "offline" for online in dict.fromkeys(trained))

    @cached_property
    def about_prompts(self) -> TrainingKinds:
        """Kinds of training of the policy rows that choose prompts; empty for the controls."""
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
        """Return which of `about_prompts` the rows of a claim use."""
        if isinstance(claim.test, Qualitative):
            return ()
        rows = [self.row(row) for row, _ in places(claim.test)]
        found = {training for row in rows for training in self.training_of(row)}
        return tuple(training for training in self.about_prompts if training in found)

    @property
    def main_place(self) -> tuple[str | None, Column]:
        """The primary claim's first row and column; without one, None and the first column."""
        for claim in self.claims:
            if claim.primary and not isinstance(claim.test, Qualitative):
                row, column = places(claim.test)[0]
                if column in self._columns:
                    return row, self.column(column)
        return None, self.columns[0]

    @property
    def main_column(self) -> Column:
        return self.main_place[1]

    def is_about_choosing(self, claim: Claim) -> bool:
        """Return whether a claim compares rows that choose among prompts in different ways."""
        if isinstance(claim.test, Qualitative):
            return False
        cells = {place for shown in claim.test.shown for _, place in shown.terms}
        # A profile may have other columns, on which no recipe depends.
        read = [(self.row(row), self._columns.get(name, self.columns[0])) for row, name in cells]
        return len({choice(self.recipe_of(*it)) for it in read} - {None}) > 1

    # Cached: validating a recipe is the slowest operation on a table.
    _recipes: dict[tuple[str, str | None], Recipe] = PrivateAttr(default_factory=dict)

    def recipe_of(self, row: Row, column: Column) -> Recipe:
        place = row.id, column.id if column.recipe else None
        if place not in self._recipes:
            settings = layered(self.recipe, row.recipe, column.recipe)
            self._recipes[place] = Recipe.model_validate(settings)
        return self._recipes[place]

    def recipes(self, row: Row) -> Mapping[str, Recipe]:
        """Return a row's distinct recipes by run id, in column order."""
        return {row.run_id(column): self.recipe_of(row, column) for column in self.columns}

    def read_of(self, row: Row, run_id: str) -> tuple[Column, ...]:
        """Return the columns whose cells in a row belong to a run."""
        return tuple(column for column in self.columns if row.run_id(column) == run_id)

    def paper_gain(self, row: Row, column: Column) -> float | None:
        """Return the paper's gain over the baseline, to the printed decimals, if printed."""
        if row.baseline is None:
            return None
        value = row.values.get(column.id)
        base = self.row(row.baseline).values.get(column.id)
        if value is None or base is None:
            return None
        return round(value.value - base.value, max(value.decimals, base.decimals))
