"""All that is declared, read once; and one table or profile more, as a file of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UserError
from harness.registry.figure_files import load_figures
from harness.registry.figures import Figure
from harness.registry.load import find_table, load_tables
from harness.registry.profile import Profile, find_profile, load_profiles
from harness.registry.schema import Table


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
        return find_table(all_tables(), name), all_tables()
    tables = load_tables(more=path)
    return tables[path.stem], tables


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
