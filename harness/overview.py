"""Lists, shows and validates the declarations; nothing here touches the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from harness import project
from harness.errors import HarnessError, UserError
from harness.foreign import read_json
from harness.registry import declared
from harness.registry.claims import figure_claims
from harness.registry.declared import deviations
from harness.registry.documents import Problem, RegistryError, read_document
from harness.registry.figures import figure_unsupported, load_figures
from harness.registry.paper import the_paper
from harness.registry.profile import Profile, load_profiles, table_unsupported
from harness.registry.schema import Table
from harness.strict import Strict

_Read = TypeVar("_Read")


RUNGS: Mapping[str, tuple[str, str, str]] = {
    "micro": ("2 cores", "1 min", "0"),
    "laptop": ("2 cores, 12 GB", "45 min", "0"),
    "consumer-gpu": ("1 GPU, 24 GB", "5 h", "0"),
    "single-gpu": ("1 GPU, 80 GB", "4 h", "0"),
    "paper": ("8 GPUs, 80 GB", "5 h", "about 520"),
}
"""Machine, and time and dollars of table 4 with one seed. On GPUs nothing was measured: see
`docs/one-gpu.md`."""


def _listed_profiles(profiles: Mapping[str, Profile]) -> Iterator[dict[str, Any]]:
    """Yield each profile, with what table 4 takes there and what is published."""
    file = project.results_dir() / "index.json"
    try:
        index = read_json(file.read_bytes()) if file.exists() else {}
    except ValueError as error:
        raise HarnessError(
            f"{file} cannot be read as JSON ({error}); restore it from version control"
        ) from error
    for name, profile in profiles.items():
        seeds = [
            len(entry["seeds"])
            for place, entry in index.items()
            if entry["kind"] == "table" and place.startswith(f"{name}/")
        ]
        machine, time, dollars = RUNGS.get(name, ("", "", ""))
        yield {
            "id": name,
            "scale": profile.scale,
            "machine": machine,
            "time": time,
            "dollars": dollars,
            "tables": len(seeds),
            "seeds": sorted({*seeds}),
        }


def list_declared() -> dict[str, list[dict[str, Any]]]:
    """List the tables and figures with the profiles that can run them, and the profiles.

    A profile with columns of its own may run some of a table's rows only.
    """
    tables, profiles = declared.all_tables(), declared.all_profiles()
    return {
        "tables": [
            {
                "id": table.id,
                "title": table.title,
                "kind": table.kind,
                "rows": len(table.rows),
                "columns": len(table.columns),
                "paper_values": table.paper_values,
                "runnable": [n for n, p in profiles.items() if not table_unsupported(table, p)],
            }
            for table in tables.values()
        ],
        "figures": [
            {
                "id": figure.id,
                "title": figure.title,
                "kind": "figure",
                "drawn": figure.kind,
                "rows": len(figure.rows),
                "runnable": [
                    n for n, p in profiles.items() if not figure_unsupported(figure, tables, p)
                ],
            }
            for figure in declared.all_figures().values()
        ],
        "profiles": list(_listed_profiles(profiles)),
    }


def show_table(table: Table) -> dict[str, Any]:
    """Return a table, the recipe of every run behind its rows, and the paper's gains."""
    recipes, gains = {}, {}
    for row in table.rows:
        recipes[row.id] = {run: it.canonical() for run, it in table.recipes(row).items()}
        of_row = {column.id: table.paper_gain(row, column) for column in table.columns}
        gains[row.id] = {column: gain for column, gain in of_row.items() if gain is not None}
    return {"table": table, "recipes": recipes, "gains": gains}


class Validation(Strict):
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
    # With broken tables, references to them cannot be checked.
    if tables:
        read(lambda: declared.check_references(tables))
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
        raise UserError(f"`{file}` is not a YAML file; its name must end in `.yaml`")
    data = read_document(path).data
    keys = set(data) if isinstance(data, dict) else set()
    readers: dict[type[BaseModel], Callable[[str], object]] = {
        Table: declared.named_table, Profile: declared.named_profile, Sweep: named_sweep
    }  # fmt: skip
    likely = max(readers, key=lambda model: len(keys & model.model_fields.keys()))
    return readers[likely](file)
