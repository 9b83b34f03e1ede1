"""Lists, shows and validates the declarations; nothing here touches the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from harness.errors import UserError
from harness.foreign import read_json
from harness.project import results_dir
from harness.registry import declared
from harness.registry.claims import figure_claims
from harness.registry.declared import deviations
from harness.registry.documents import Problem, RegistryError, read_document
from harness.registry.figures import AnyFigure, figure_unsupported, load_figures
from harness.registry.paper import the_paper
from harness.registry.profile import Profile, load_profiles, table_unsupported
from harness.registry.schema import Table
from harness.strict import Output, Strict

_Read = TypeVar("_Read")


class Listed(Output):
    tables: list[ListedTable]
    figures: list[ListedFigure]
    profiles: list[ListedProfile]


class ListedTable(Strict):
    id: str
    title: str
    kind: Literal["experiment", "ablation"]
    rows: int
    columns: int
    paper_values: int
    """Number of values the paper prints."""
    runnable: list[str]
    """Profiles that can run every row."""


class ListedFigure(Strict):
    id: str
    title: str
    kind: Literal["figure"] = "figure"
    drawn: str
    """Kind of plot."""
    rows: int
    """Number of rows it is drawn from."""
    runnable: list[str]
    """Profiles that can run all of these rows."""


RUNGS: Mapping[str, tuple[str, str, str]] = {
    "micro": ("2 cores", "1 min", "0"),
    "laptop": ("2 cores, 12 GB", "30 min", "0"),
    "consumer-gpu": ("1 GPU, 24 GB", "5 h", "0"),
    "single-gpu": ("1 GPU, 80 GB", "4 h", "0"),
    "paper": ("8 GPUs, 80 GB", "5 h", "about 520"),
}
"""Machine, and time and dollars of table 4 with one seed. On GPUs nothing was measured: see
`docs/one-gpu.md`."""


class ListedProfile(Strict):
    id: str
    scale: str
    machine: str
    time: str
    """Of table 4 with one seed."""
    dollars: str
    tables: int
    """Published tables."""
    seeds: int
    """Seeds of the published table that has most."""


def _listed_profiles(profiles: Mapping[str, Profile]) -> Iterator[ListedProfile]:
    file = results_dir() / "index.json"
    index = read_json(file.read_bytes()) if file.exists() else {}
    for name, profile in profiles.items():
        seeds = [
            len(entry["seeds"])
            for place, entry in index.items()
            if entry["kind"] == "table" and place.startswith(f"{name}/")
        ]
        machine, time, dollars = RUNGS.get(name, ("", "", ""))
        yield ListedProfile(
            id=name,
            scale=profile.scale,
            machine=machine,
            time=time,
            dollars=dollars,
            tables=len(seeds),
            seeds=max(seeds, default=0),
        )


def list_declared() -> Listed:
    """List the tables and figures with the profiles that can run them, and the profiles."""
    tables, profiles = declared.all_tables(), declared.all_profiles()
    return Listed(
        tables=[
            ListedTable(
                id=table.id,
                title=table.title,
                kind=table.kind,
                rows=len(table.rows),
                columns=len(table.columns),
                paper_values=table.paper_values,
                runnable=[n for n, p in profiles.items() if not table_unsupported(table, p)],
            )
            for table in tables.values()
        ],
        figures=[
            ListedFigure(
                id=figure.id,
                title=figure.title,
                drawn=figure.kind,
                rows=len(figure.rows),
                runnable=[
                    n for n, p in profiles.items() if not figure_unsupported(figure, tables, p)
                ],
            )
            for figure in declared.all_figures().values()
        ],
        profiles=list(_listed_profiles(profiles)),
    )


class ShownTable(Output):
    """A table as declared: what it asks, and what the paper prints."""

    table: Table
    recipes: dict[str, dict[str, dict[str, Any]]]
    """The canonical recipe of each run behind each row."""
    gains: dict[str, dict[str, float]]
    """The paper's values minus the baseline row's, by row and column."""


class ShownFigure(Output):
    figure: AnyFigure


def show_table(table: Table) -> ShownTable:
    """Return a table with the recipe of every run behind it."""
    recipes, gains = {}, {}
    for row in table.rows:
        recipes[row.id] = {run: it.canonical() for run, it in table.recipes(row).items()}
        of_row = {column.id: table.paper_gain(row, column) for column in table.columns}
        gains[row.id] = {column: gain for column, gain in of_row.items() if gain is not None}
    return ShownTable(table=table, recipes=recipes, gains=gains)


class Validation(Output):
    """How much is declared, and every problem with it."""

    ok: bool
    tables: int
    figures: int
    profiles: int
    sweeps: int
    runs: int
    """Distinct runs behind the tables."""
    files: list[str]
    """The user's own files checked with them: tables, profiles and sweeps."""
    problems: list[Problem]


def validate(files: Sequence[str] = ()) -> Validation:
    """Read every declaration, and each of `files` with a further one; collect all problems."""
    from harness.sweep.declaration import load_sweeps

    problems: set[Problem] = set()

    def read(load: Callable[[], _Read], file: str = "") -> _Read | None:
        try:
            return load()
        except RegistryError as error:
            problems.update(error.problems)
        except UserError as error:
            problems.add(Problem(file, 1, str(error)))
        return None

    tables = read(declared.load_tables) or {}
    # With broken tables, figures' references cannot be checked.
    figures = read(lambda: load_figures(tables or None)) or {}
    read(figure_claims)
    read(deviations)
    read(the_paper)
    profiles, sweeps = read(load_profiles) or {}, read(load_sweeps) or {}
    for own in files:
        read(partial(_own, own), own)
    return Validation(
        ok=not problems,
        tables=len(tables),
        figures=len(figures),
        profiles=len(profiles),
        sweeps=len(sweeps),
        runs=len({run for it in tables.values() for row in it.rows for run in it.recipes(row)}),
        files=list(files),
        problems=sorted(problems),
    )


def _own(file: str) -> object:
    from harness.sweep.declaration import Sweep, named_sweep

    path = declared.own_file(file)
    if path is None:
        raise UserError(f"`{file}` is no file of YAML; name one that ends in `.yaml`")
    data = read_document(path).data
    keys = set(data) if isinstance(data, dict) else set()
    readers: dict[type[BaseModel], Callable[[str], object]] = {
        Table: declared.named_table, Profile: declared.named_profile, Sweep: named_sweep
    }  # fmt: skip
    likely = max(readers, key=lambda model: len(keys & model.model_fields.keys()))
    return readers[likely](file)
