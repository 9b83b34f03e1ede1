"""The rows that a figure shows, and why a profile cannot run one of them."""

from __future__ import annotations

from collections.abc import Mapping

from harness.registry.figures import Figure
from harness.registry.profile import Profile, table_unsupported
from harness.registry.schema import Row, Table


def figure_unsupported(
    figure: Figure, tables: Mapping[str, Table], profile: Profile
) -> dict[str, str]:
    """Return why a profile cannot run rows of a figure, by their references; empty if it can."""
    lacking: dict[str, str] = {}
    for ref in figure.rows:
        table, row = find_row(tables, ref)
        needed = [row] if row.baseline is None else [row, table.row(row.baseline)]
        reasons = table_unsupported(table, profile, needed)
        if reasons:
            lacking[ref] = "; ".join(reasons)
    return lacking


def find_row(tables: Mapping[str, Table], ref: str) -> tuple[Table, Row]:
    """Return the table and the row that a reference `table/row` names."""
    name, _, row = ref.partition("/")
    return tables[name], tables[name].row(row)
