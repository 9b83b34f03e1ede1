"""Figures of the paper as data: what each shows, and which table rows it is drawn from.

A figure trains nothing of its own. It names rows as `table/row`, and what is plotted:

    gains         gains of rows over their baseline rows, in some columns
    iterations    a column over the iterations of chains of rows
    ratings       a score over the categories of a benchmark's prompts
    shares        topics of a row's training prompts over its iterations
    densities     informativeness metrics over the prompts that an iteration starts from
    correlation   one of those metrics against another
    topics        share, mean reward and reward gap of the topics of those prompts

A file is checked on its own, and against the tables whose rows it names.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from harness.project import figures_dir
from harness.registry import documents
from harness.registry.paper import RowRef
from harness.registry.profile import Profile, benchmark_of, table_unsupported
from harness.registry.recipe import Metric
from harness.registry.schema import Id, Row, ScoreId, Table
from harness.strict import Strict

PLACEHOLDERS = ("profile", "scale", "seeds", "numbers")
"""Placeholders allowed in alt text."""


class FigureSource(Strict):
    section: str
    """Section, `4.2.4`, or appendix, `D`."""
    figure: int = Field(ge=1)
    caption: str


class Figure(Strict):
    id: Id
    kind: str
    title: str
    question: str
    source: FigureSource
    alt: str
    """Alt text, with `{profile}`, `{scale}`, `{seeds}` and `{numbers}`."""
    notes: tuple[str, ...] = ()
    """Notes for the reader, and interpretations chosen where the paper is ambiguous."""

    @model_validator(mode="after")
    def _known_placeholders(self) -> Figure:
        for _, name, _, _ in string.Formatter().parse(self.alt):
            if name is not None and name not in PLACEHOLDERS:
                near = documents.nearest(name, PLACEHOLDERS)
                raise ValueError(f"`alt` names `{{{name}}}`{near}")
        try:
            self.alt.format(**dict.fromkeys(PLACEHOLDERS, ""))
        except LookupError as error:  # a placeholder within the format of another
            raise ValueError(f"`alt` cannot be filled in: {error}") from None
        return self

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows it is drawn from, as `table/row`, without duplicates."""
        named = (getattr(self, name, ()) for name in ("row", "groups", "panels", "lines"))
        return tuple(dict.fromkeys(_refs(tuple(named))))

    @property
    def reads(self) -> tuple[str, ...]:
        return ()


def _refs(named: Any) -> Iterator[str]:
    if isinstance(named, str):
        yield named
    else:
        for part in named.values() if isinstance(named, Mapping) else named:
            yield from _refs(part)


Some = Field(min_length=1)

Labelled = Annotated[dict[str, RowRef], Some]
"""Rows by label, in order."""

Chain = Annotated[dict[int, RowRef], Some]
"""The row after each number of training iterations, each one iteration longer than the last."""


class GainsFigure(Figure):
    kind: Literal["gains"]
    columns: Annotated[tuple[Id, ...], Some]
    """Column ids, the same in every table that is read."""
    groups: Annotated[dict[str, Labelled], Some]
    """The rows of each group, by title."""
    reward_model_accuracy: bool = False
    """Whether to show the held-out accuracy of each row's reward model."""

    @property
    def reads(self) -> tuple[str, ...]:
        return self.columns


class IterationsFigure(Figure):
    kind: Literal["iterations"]
    column: Id
    """Column id, the same in every table that is read."""
    panels: Annotated[dict[str, Annotated[dict[str, Chain], Some]], Some]
    """The lines of each panel, by title and label."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)


class RatingsFigure(Figure):
    kind: Literal["ratings"]
    score: ScoreId
    """Per-prompt score of a benchmark whose prompts have categories."""
    lines: Labelled
    """The rows after 0, 1, ... training iterations."""


class SharesFigure(Figure):
    kind: Literal["shares"]
    row: RowRef


class RewardsFigure(Figure):
    """A plot of the rewards of the prompts that an iteration chooses from, or trains on."""

    row: RowRef
    iteration: int = Field(ge=1)


class DensitiesFigure(RewardsFigure):
    kind: Literal["densities"]
    metrics: Annotated[tuple[Metric, ...], Some]
    """The metrics, each min-max normalized like the sampling weights."""
    bins: int = Field(ge=2)
    """Equal-width bins between the smallest and the largest value."""


class CorrelationFigure(RewardsFigure):
    kind: Literal["correlation"]
    x: Metric
    y: Metric


class TopicsFigure(RewardsFigure):
    kind: Literal["topics"]
    gap: Metric


AnyFigure = (
    GainsFigure
    | IterationsFigure
    | RatingsFigure
    | SharesFigure
    | DensitiesFigure
    | CorrelationFigure
    | TopicsFigure
)

MODELS: Mapping[str, type[Figure]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(AnyFigure)
}
"""The model of each kind of figure."""


def load_figures(
    tables: Mapping[str, Table] | None, folder: Path | None = None
) -> dict[str, Figure]:
    """Read and check a folder's figures, in order; without tables, no references."""
    problems: list[documents.Problem] = []
    figures: list[Figure] = []
    files = documents.yaml_files(figures_dir() if folder is None else folder)
    for document, figure in documents.read_files(files, Figure, problems, "a figure", _model_of):
        figures.append(figure)
        if tables is not None:
            problems += reference_problems(document, figure, tables)
    if problems:
        raise documents.RegistryError(problems)
    return {figure.id: figure for figure in sorted(figures, key=lambda f: f.source.figure)}


def _model_of(document: documents.Document) -> type[Figure]:
    if not isinstance(document.data, dict):
        raise documents.RegistryError(
            [document.problem((), "the file holds no figure; declare one")]
        )
    kind = document.data.get("kind")
    if isinstance(kind, str) and kind in MODELS:
        return MODELS[kind]
    wrong = "this key is missing; add it" if kind is None else f"`{kind}` is not known"
    near = documents.nearest(str(kind), MODELS)
    raise documents.RegistryError([document.wrong(("kind",), f"{wrong}{near}")])


def reference_problems(
    document: documents.Document, figure: Figure, tables: Mapping[str, Table]
) -> Iterator[documents.Problem]:
    declared = {f"{table.id}/{row.id}": (table, row) for table in tables.values()
                for row in table.rows}  # fmt: skip
    for ref in figure.rows:
        line = document.text.partition(ref)[0].count("\n") + 1
        if ref not in declared:
            known = [name for name in declared if name.split("/")[0] == ref.split("/")[0]]
            wrong = [f"there is no row `{ref}`{documents.nearest(ref, known or declared)}"]
        else:
            wrong = list(_reference_faults(figure, ref, *declared[ref]))
        yield from (documents.Problem(document.name, line, message) for message in wrong)


def _reference_faults(figure: Figure, ref: str, table: Table, row: Row) -> Iterator[str]:
    columns = [column.id for column in table.columns]
    for column in figure.reads:
        if column not in columns:
            yield f"`{table.id}` has no column `{column}`{documents.nearest(column, columns)}"
    if isinstance(figure, GainsFigure) and row.baseline is None:
        yield f"`{ref}` is a baseline row and has no gain"
    if not figure.reads and row.run is None:
        yield f"`{ref}` has another run in each column; name one with a single run"
    elif isinstance(figure, RewardsFigure | SharesFigure):
        recipe = table.recipe_of(row, table.columns[0])
        least = figure.iteration if isinstance(figure, RewardsFigure) else 1
        if len(recipe.chain) < least:
            yield f"`{ref}` has {len(recipe.chain)} offline iterations and {least} are needed"
        elif (
            isinstance(figure, RewardsFigure)
            and recipe.creator.oracle is not None
            and least in recipe.choosing
        ):
            yield f"`{ref}` has no rewards to show: the oracle chooses its prompts"


def figure_unsupported(
    figure: Figure, tables: Mapping[str, Table], profile: Profile
) -> dict[str, str]:
    """Return why a profile cannot run a figure's rows, keyed by reference; empty if it can."""
    lacking: dict[str, str] = {}
    for ref in figure.rows:
        table, row = find_row(tables, ref)
        needed = [row] if row.baseline is None else [row, table.row(row.baseline)]
        scores = [table.column(name).reads for name in figure.reads]
        scores += [figure.score] if isinstance(figure, RatingsFigure) else []
        reasons = table_unsupported(table, profile, needed)
        reasons += [
            f"`{profile.name}` has no score `{score}`"
            for score in scores
            if benchmark_of(profile, score) is None
        ]
        if reasons:
            lacking[ref] = "; ".join(dict.fromkeys(reasons))
    return lacking


def find_row(tables: Mapping[str, Table], ref: str) -> tuple[Table, Row]:
    name, _, row = ref.partition("/")
    return tables[name], tables[name].row(row)
