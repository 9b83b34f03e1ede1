"""All that is declared, read once; names of several tables; and files of the user's own.

A group is a name that stands for several tables, where a command takes them together. A table or a
profile more can be declared in a file that is named in place of it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from harness.errors import UserError
from harness.registry.figures import Figure, load_figures
from harness.registry.load import find_table, load_tables
from harness.registry.profile import Profile, find_profile, load_profiles
from harness.registry.schema import Table

GROUPS: Final[Mapping[str, str]] = {
    "all-offline": "every table that needs no online training",
    "all": "every table",
}
"""The groups, and what is in them."""


@functools.cache
def all_tables() -> Mapping[str, Table]:
    """Return the declared tables by id, read once.

    Raises:
        RegistryError: Anything is wrong in any file.
    """
    return load_tables()


@functools.cache
def all_figures() -> Mapping[str, Figure]:
    """Return the declared figures by id, read once.

    Raises:
        RegistryError: Anything is wrong in any file, or in a table's.
    """
    return load_figures(all_tables())


@functools.cache
def all_profiles() -> Mapping[str, Profile]:
    """Return the declared profiles by name, read once.

    Raises:
        RegistryError: Anything is wrong in any file.
    """
    return load_profiles()


def named_profile(name: str) -> Profile:
    """Return a profile by its name, or the one that a file declares.

    Raises:
        UserError: There is no such profile or file, or the file has the name of a declared one.
        RegistryError: The file is wrong.
    """
    path = own_file(name)
    if path is None:
        _look_beside("profile", name, all_profiles())
        return find_profile(all_profiles(), name)
    (profile,) = load_profiles(path).values()
    shipped = all_profiles().get(profile.name)
    if shipped is not None and shipped.model_dump() != profile.model_dump():
        raise UserError(
            f"`{name}` declares another profile `{profile.name}` than the shipped one; what they "
            "compute could not be told apart, so give yours a name of its own"
        )
    return profile


def named_table(name: str) -> tuple[Table, Mapping[str, Table]]:
    """Return a table by its name, or the one that a file declares; and all declared tables.

    Raises:
        UserError: There is no such table or file.
        RegistryError: The file is wrong, alone or against the declared tables.
    """
    path = own_file(name)
    if path is None:
        _look_beside("table", name, all_tables())
        return find_table(all_tables(), name), all_tables()
    tables = load_tables(more=path)
    return tables[path.stem], tables


def _look_beside(what: str, name: str, known: Collection[str]) -> None:
    """Raise where a name is not declared, but is that of a file in the current folder."""
    file = f"{name}.yaml"
    if name not in known and os.path.isfile(file):
        raise UserError(f"there is no {what} `{name}`; did you mean the file `{file}`?")


def own_file(name: str) -> Path | None:
    """Return the file that a name is, None where it is a name and no file's.

    A file's name ends in `.yaml` or `.yml`.

    Raises:
        UserError: There is no such file.
    """
    if not name.endswith((".yaml", ".yml")):
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"there is no file `{name}`; correct the path, or name what is declared")
    return path.resolve()


def trains_online(table: Table) -> bool:
    """Return whether any row of a table is trained online."""
    return any(recipe.is_online for row in table.rows for recipe in table.recipes(row).values())


def members(group: str, tables: Mapping[str, Table]) -> list[Table]:
    """Return the tables of a group, in their order.

    Raises:
        KeyError: there is no such group.
    """
    if group not in GROUPS:
        raise KeyError(group)
    return [table for table in tables.values() if group == "all" or not trains_online(table)]
