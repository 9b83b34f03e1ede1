"""Names that stand for several tables, where a command takes them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.registry.schema import Table

GROUPS: Final[Mapping[str, str]] = {
    "all-offline": "every table that needs no online training",
    "all": "every table",
}
"""The groups, and what is in them."""


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
