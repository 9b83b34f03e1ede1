"""Claims of the paper, as statements that scores can support or contradict.

A testable claim is a conjunction of statements that a weighted sum of cells is above zero: one for
`a > b` (a - b > 0), one per step for a trend, two for `a` within a margin of `b`. A margin that is
a share of a gain is a weighted sum too, so the noise in that gain is part of the test. Each table
has one primary claim, declared before there are results.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from harness.project import project_root
from harness.registry.documents import Document, Loc, Problem, read_declared
from harness.strict import Strict

Place = tuple[str, str]
"""A table cell: row and column."""

Pair = Annotated[tuple[str, str], Field(description="A row and the row it is compared with.")]


@dataclass(frozen=True)
class Sum:
    """A weighted sum of cells."""

    terms: tuple[tuple[float, Place], ...]

    def plus(self, other: Sum, weight: float = 1.0) -> Sum:
        return Sum(self.terms + tuple((weight * w, place) for w, place in other.terms))


def difference(left: str, right: str, column: str, right_column: str | None = None) -> Sum:
    return Sum(((1.0, (left, column)), (-1.0, (right, right_column or column))))


class Margin(Strict):
    """How far apart two rows may be and still count as equal: a share of a gain, or points."""

    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Fraction of the gain `of`, measured in the claim's own column."""
    of: Pair | None = None
    """The gain: first row minus second. A negative gain means a margin of zero."""
    points: Annotated[float, Field(gt=0)] | None = None
    """The margin itself, in the column's unit, for scores that training moves too little."""

    @model_validator(mode="after")
    def _one_form(self) -> Margin:
        share, points = self.share is not None, self.points is not None
        if share != (self.of is not None) or share == points:
            raise ValueError("give a margin as `share` and `of`, or as `points`")
        return self


class Measured(Strict):
    @cached_property
    def shown(self) -> tuple[Sum, ...]:
        raise NotImplementedError

    @property
    def sign(self) -> int:
        """The sign that the claim predicts for the shown margins."""
        return -1 if getattr(self, "op", None) in ("<", "decreasing") else 1

    @property
    def upper(self) -> Place:
        """The cell claimed to be above, or not below, all others."""
        highest = self.shown[-1 if self.sign > 0 else 0]
        return next(place for weight, place in highest.terms if weight == self.sign)


class Compare(Measured):
    """One row against another: above, below, not below, or equal within a margin."""

    kind: Literal["compare"]
    left: str
    op: Literal[">", "<", ">=", "within"]
    """`>`, `<`: strict difference; `>=`: not below by more than the margin; `within`: two-sided."""
    right: str
    column: str
    right_column: str | None = None
    tolerance: Annotated[float, Field(gt=0)] | None = None
    """Largest difference at which the printed numbers count as equal, in the paper's unit."""
    margin: Margin | None = None
    """The margin at any scale; only for `>=` and `within`."""

    @model_validator(mode="after")
    def _margin_where_needed(self) -> Compare:
        if (self.margin is not None) != (self.op in (">=", "within")):
            raise ValueError("`>=` and `within` need a `margin`, and nothing else has one")
        if (self.tolerance is not None) != (self.op == "within"):
            raise ValueError("`within` needs a `tolerance`, and nothing else has one")
        return self

    @cached_property
    def shown(self) -> tuple[Sum, ...]:
        """The margins shown: left minus right."""
        return (difference(self.left, self.right, self.column, self.right_column),)


class Trend(Measured):
    """Every step along a sequence of rows goes the same way."""

    kind: Literal["trend"]
    rows: Annotated[tuple[str, ...], Field(min_length=2)]
    column: str
    op: Literal["increasing", "decreasing"]

    @cached_property
    def shown(self) -> tuple[Sum, ...]:
        return tuple(difference(row, before, self.column) for before, row in pairwise(self.rows))


class BestOf(Measured):
    kind: Literal["best_of"]
    row: str
    among: Annotated[tuple[str, ...], Field(min_length=2)]
    """The rows compared, `row` included."""
    column: str

    @model_validator(mode="after")
    def _among_others(self) -> BestOf:
        if not {self.row} < {*self.among}:
            raise ValueError(f"`among` must hold `{self.row}` itself and another row")
        return self

    @cached_property
    def shown(self) -> tuple[Sum, ...]:
        others = [other for other in self.among if other != self.row]
        return tuple([difference(self.row, other, self.column) for other in others])


class CompareGains(Measured):
    """One gain against another: a difference of differences."""

    kind: Literal["compare_gains"]
    left: Pair
    """A gain: first row minus second."""
    op: Literal[">", "<"]
    right: Pair
    column: str

    @cached_property
    def shown(self) -> tuple[Sum, ...]:
        left, right = (difference(*pair, self.column) for pair in (self.left, self.right))
        return (left.plus(right, -1.0),)


class Qualitative(Strict):
    """A statement that no score can decide, or that other claims measure."""

    kind: Literal["qualitative"]
    reason: str | None = None
    measured_by: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _reason_or_measurement(self) -> Qualitative:
        if (self.reason is None) == (self.measured_by is None):
            raise ValueError("give either the `reason` it cannot be tested or `measured_by`")
        return self


Measurable = Compare | Trend | BestOf | CompareGains
"""Tests that scores can decide."""

Test = Annotated[Measurable | Qualitative, Field(discriminator="kind")]


MarkWord = Literal["trivial", "by construction", "tuned against", "repeats", "printed otherwise"]
"""Why a verdict counts apart: more training is compared with less; the world leaves no other
outcome; a setting was chosen by a criterion that works against the claim; another claim measures
the same; or the paper's own numbers contradict the claim."""

MARKS: tuple[MarkWord, ...] = get_args(MarkWord)


class Mark(Strict):
    """Why a claim's verdict says less than another's."""

    word: MarkWord
    because: str
    at: tuple[str, ...] = ()
    """The profiles where it holds; none named means all."""


class Manipulation(Strict):
    """That one reward model orders more held-out pairs right than another, clear of zero."""

    better: str
    """A row of the table that studies reward models."""
    than: str


_NUMBER = r"[+-]?\d+(\.\d+)?"


class Claim(Strict):
    """What the paper says, how it is tested, and whether the printed numbers bear it out."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    """Name of the claim, unique across tables."""
    primary: bool = False
    """Whether this is the table's one claim tested without multiple-comparison correction."""
    statement: str
    source: str
    test: Test
    paper_margin: str | tuple[str, ...] | None = None
    """Left minus right in the printed numbers; for a trend, one per step."""
    holds_in_paper: bool | None = None
    within_noise: bool | None = None
    """Whether the printed margin is no larger than the benchmark's noise, where known."""
    marks: tuple[Mark, ...] = ()
    needs: Manipulation | None = None

    @field_validator("paper_margin")
    @classmethod
    def _as_printed(cls, given: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for margin in (given,) if isinstance(given, str) else given or ():
            if not re.fullmatch(rf"{_NUMBER}( against {_NUMBER})?", margin):
                raise ValueError(f"write `{margin}` as `+2.6` or `+0.4 against +0.1`")
        return given

    def marks_at(self, profile: str) -> tuple[Mark, ...]:
        found = [mark for mark in self.marks if not mark.at or profile in mark.at]
        if self.holds_in_paper is False:
            printed = self.paper_margin
            said = printed if isinstance(printed, str) else ", ".join(printed or ())
            found.append(Mark(word="printed otherwise", because=f"the paper prints {said}"))
        return tuple(found)


class Noise(Strict):
    """How far apart two printed numbers of a benchmark can be by chance."""

    half_width_95: Annotated[float, Field(gt=0)]
    """Half-width of the 95% interval of a difference, in the columns' unit."""
    source: str


class FigurePlace(Strict):
    """A figure, or another part of the paper without a table."""

    id: str
    table: str | None = None
    """The table whose rows its claims compare."""
    claims: Annotated[tuple[Claim, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _scores_of_a_table(self) -> FigurePlace:
        for claim in self.claims:
            if not isinstance(claim.test, Qualitative) and self.table is None:
                raise ValueError(f"`{claim.id}` compares scores; name the `table` that has them")
        return self


class FigureClaims(Strict):
    noise: dict[str, Noise] = Field(default={})
    """Noise of the printed numbers, keyed by the first part of a column's id."""
    figures: tuple[FigurePlace, ...] = ()


FILE = Path("experiments") / "claims" / "figures.yaml"
"""The file of figure claims, relative to the project root."""


def figure_claims(path: Path | None = None) -> FigureClaims:
    file = path or project_root() / FILE
    if not os.path.lexists(file):
        return FigureClaims()
    return read_declared(file, FigureClaims, "claims")[1]


def claim_problems(
    document: Document, claims: Sequence[Claim], rows: Sequence[str], columns: Sequence[str]
) -> Iterator[Problem]:
    """Yield problems with a table's claims: unknown names, or not exactly one primary claim."""
    for i, claim in enumerate(claims):
        if isinstance(claim.test, Qualitative):
            if claim.primary:
                text = f"`{claim.id}` cannot be tested; name another one"
                yield document.wrong(("claims", i, "primary"), text)
            continue
        yield from name_problems(document, ("claims", i, "test"), claim.test, rows, columns)
    testable = [claim for claim in claims if not isinstance(claim.test, Qualitative)]
    primary = [claim.id for claim in testable if claim.primary]
    if testable and len(primary) != 1:
        said = ", ".join(f"`{name}`" for name in primary) or "none"
        yield document.wrong(("claims",), f"exactly one claim is `primary: true`, not {said}")


def name_problems(
    document: Document, place: Loc, test: Measurable, rows: Sequence[str], columns: Sequence[str]
) -> Iterator[Problem]:
    named = [list(dict.fromkeys(names)) for names in zip(*places(test), strict=True)]
    for what, names, known in zip(("row", "column"), named, (rows, columns), strict=True):
        for name in names:
            yield from document.unknown(place, what, name, known)


def places(test: Measurable) -> list[Place]:
    """Return the cells that decide a claim, without duplicates."""
    found = [place for shown in test.shown for _, place in shown.terms]
    if isinstance(test, Compare) and test.margin is not None:
        found += [(row, test.column) for row in test.margin.of or ()]
    return list(dict.fromkeys(found))
