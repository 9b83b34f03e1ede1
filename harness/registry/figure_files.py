"""The files that declare the paper's figures, read and checked against the tables they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.project import figures_dir
from harness.registry.documents import (
    Document,
    Problem,
    RegistryError,
    at_least_one,
    checked,
    few,
    nearest,
    read_document,
    yaml_files,
)
from harness.registry.figures import MODELS, Figure, GainsFigure, RewardsFigure, SharesFigure
from harness.registry.schema import Table
from harness.registry.yaml_reader import Loc


def load_figures(
    tables: Mapping[str, Table] | None, folder: Path | None = None
) -> dict[str, Figure]:
    """Read and check every figure declared in a folder.

    Args:
        tables: The declared tables; None checks each file alone, not what it refers to.
        folder: The folder; the project's own by default.

    Returns:
        The figures by id, in order of their numbers.

    Raises:
        RegistryError: Anything is wrong in any file; it carries every problem found.
    """
    problems: list[Problem] = []
    figures: list[Figure] = []
    searched = figures_dir() if folder is None else folder
    for path in at_least_one(yaml_files(searched), [searched], "figure"):
        document = read_document(path)
        figure = _read(document, problems)
        if figure is None:
            continue
        figures.append(figure)
        if figure.id != path.stem:
            message = f"id: `{figure.id}` differs from the name of the file; rename one"
            problems.append(document.problem(("id",), message))
        if tables is not None:
            problems += few(reference_problems(document, figure, tables))
    if problems:
        raise RegistryError(problems)
    return {figure.id: figure for figure in sorted(figures, key=lambda f: f.source.figure)}


def _read(document: Document, problems: list[Problem]) -> Figure | None:
    data = document.data
    if not isinstance(data, dict):
        none = document.problem((), "the file holds no figure; declare one")
        problems += document.problems or [none]
        return None
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in MODELS:
        problems += document.problems
        wrong = "this key is missing; add it" if kind is None else f"`{kind}` is not known"
        problems.append(document.problem(("kind",), f"kind: {wrong}{nearest(str(kind), MODELS)}"))
        return None
    return checked(document, MODELS[kind], problems, "a figure")


def reference_problems(
    document: Document, figure: Figure, tables: Mapping[str, Table]
) -> Iterator[Problem]:
    """Yield what is wrong with the rows and columns that a figure names."""
    declared = {f"{table.id}/{row.id}": (table, row) for table in tables.values()
                for row in table.rows}  # fmt: skip
    for ref in figure.rows:
        place = _written(document, ref)
        if ref not in declared:
            known = [name for name in declared if name.split("/")[0] == ref.split("/")[0]]
            message = f"there is no row `{ref}`{nearest(ref, known or declared)}"
            yield document.problem(place, message)
            continue
        table, row = declared[ref]
        columns = [column.id for column in table.columns]
        for column in figure.columns_of(ref):
            if column not in columns:
                message = f"`{table.id}` has no column `{column}`{nearest(column, columns)}"
                yield document.problem(place, message)
        if isinstance(figure, GainsFigure) and row.baseline is None:
            yield document.problem(place, f"`{ref}` is a baseline row and has no gain")
        if not figure.columns_of(ref) and row.run is None:
            yield document.problem(place, f"`{ref}` has another run in each column; name one with "
                                          "a single run")  # fmt: skip
        elif isinstance(figure, RewardsFigure | SharesFigure):
            chain = table.recipe_of(row, table.columns[0]).chain
            least = figure.iteration if isinstance(figure, RewardsFigure) else 1
            if len(chain) < least:
                message = f"`{ref}` has {len(chain)} offline iterations and {least} are needed"
                yield document.problem(place, message)


def _written(document: Document, ref: str) -> Loc:
    """Return where a document writes a reference first."""

    def at(loc: Loc) -> Any:
        found = document.data
        for part in loc:
            found = found[part]
        return found

    return next((loc for loc in document.lines if at(loc) == ref), ())
