"""What stands behind a selection once seeds are known: a table's runs, a figure's, or a group's.

A `TableRuns` and a `FigureRuns` come from the trainer; a `GroupRuns` is several tables planned
together, each distinct stage once, whichever tables need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.errors import UserError
from harness.registry import declared
from harness.registry.profile import Profile, table_unsupported
from harness.registry.schema import Table
from harness.runtime import Stage
from harness.trainer.plan import Run
from harness.trainer.runs import FigureRuns, TableRuns, plan_table


@dataclass(frozen=True)
class GroupRuns:
    """The runs behind the tables of a group at one profile.

    Attributes:
        id: Name of the group.
        profile: The profile.
        seeds: Root seeds, in order.
        tables: The runs behind each table.
        left_out: Tables that the profile cannot run, each with the reasons.
    """

    id: str
    profile: Profile
    seeds: tuple[int, ...]
    tables: tuple[TableRuns, ...]
    left_out: Mapping[str, Sequence[str]]

    @cached_property
    def targets(self) -> list[Stage]:
        """The stages that complete every table."""
        return [stage for runs in self.tables for stage in runs.targets]

    @cached_property
    def runs(self) -> Mapping[tuple[str, int], Run]:
        """The distinct runs, by run id and seed."""
        return {key: run for runs in self.tables for key, run in runs.runs.items()}


Work = TableRuns | FigureRuns | GroupRuns


def parts_of(work: Work) -> list[TableRuns]:
    """Return the runs behind some work, table by table."""
    if isinstance(work, TableRuns):
        return [work]
    return list(work.parts.values() if isinstance(work, FigureRuns) else work.tables)


def plan_group(
    group: str,
    tables: Mapping[str, Table],
    profile: Profile,
    seeds: Sequence[int],
    *,
    skip_unsupported: bool,
) -> GroupRuns:
    """Plan the runs behind all tables of a group.

    Args:
        group: A name in `harness.registry.declared.GROUPS`.
        tables: The declared tables.
        profile: The profile.
        seeds: Root seeds.
        skip_unsupported: Leave out tables that the profile cannot run.

    Raises:
        UserError: The profile can run none of the tables, or cannot run one that is not to be left
            out; the message names each such table with the reasons.
    """
    runnable, left_out = sorted_out(group, tables, profile)
    if left_out and not skip_unsupported:
        raise UserError(
            f"the profile `{profile.name}` cannot run every table of `{group}`; choose tables, or "
            f"leave these out with `--skip-unsupported`:{_listed(left_out)}"
        )
    runs = tuple(plan_table(table, profile, seeds) for table in runnable)
    return GroupRuns(group, profile, tuple(seeds), runs, left_out)


def sorted_out(
    group: str, tables: Mapping[str, Table], profile: Profile
) -> tuple[list[Table], dict[str, list[str]]]:
    """Return the tables of a group that a profile can run, and why it cannot run the others.

    Raises:
        UserError: It can run none of them.
    """
    found = declared.members(group, tables)
    reasons = {table.id: table_unsupported(table, profile) for table in found}
    left_out = {name: why for name, why in reasons.items() if why}
    if len(left_out) == len(found):
        raise UserError(
            f"the profile `{profile.name}` can run no table of `{group}`:{_listed(left_out)}"
        )
    return [table for table in found if not reasons[table.id]], left_out


def _listed(left_out: Mapping[str, Sequence[str]]) -> str:
    return "".join(f"\n  {name}: {'; '.join(reasons)}" for name, reasons in left_out.items())
