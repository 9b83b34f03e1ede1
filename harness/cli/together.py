"""Several tables planned together: each distinct stage once, whichever tables need it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile
    from harness.catalogue.schema import Table
    from harness.engine import Plan
    from harness.store import Stage, Store
    from harness.trainer.table_runs import TableRuns


@dataclass(frozen=True)
class Together:
    """The runs behind the tables of a group at one profile.

    Attributes:
        group: Name of the group.
        profile: The profile.
        tables: The runs behind each table.
        left_out: Tables that the profile cannot run, each with the reasons.
    """

    group: str
    profile: Profile
    tables: tuple[TableRuns, ...]
    left_out: Mapping[str, Sequence[str]]

    @cached_property
    def targets(self) -> list[Stage]:
        """The stages that complete every table."""
        return [stage for runs in self.tables for stage in runs.targets]

    @property
    def runs(self) -> int:
        """How many distinct runs there are: recipe and seed."""
        return len({key for runs in self.tables for key in runs.runs})


def planned_together(
    group: str, profile: str, seeds: Sequence[int], *, skip_unsupported: bool
) -> Together:
    """Return the runs behind all tables of a group.

    Args:
        group: A name in `harness.catalogue.groups.GROUPS`.
        profile: Name of the profile.
        seeds: Root seeds.
        skip_unsupported: Leave out tables that the profile cannot run.

    Raises:
        UserError: There is no such profile, it can run none of the tables, or it cannot run one
            that is not to be left out; the message names each such table with the reasons.
    """
    from harness.errors import UserError
    from harness.trainer.table_runs import plan_table

    scale, tables, left_out = sorted_out(group, profile)
    if left_out and not skip_unsupported:
        raise UserError(
            f"the profile `{scale.name}` cannot run every table of `{group}`; choose tables, or "
            f"leave these out with `--skip-unsupported`:{_listed(left_out)}"
        )
    runs = tuple(plan_table(table, scale, seeds) for table in tables)
    return Together(group, scale, runs, left_out)


def sorted_out(group: str, profile: str) -> tuple[Profile, list[Table], dict[str, list[str]]]:
    """Return a profile, the tables of a group that it can run, and why it cannot run the others.

    Raises:
        UserError: There is no such profile, or it can run none of the tables.
    """
    from harness.catalogue.groups import members
    from harness.catalogue.profile import find_profile, table_unsupported
    from harness.cli.asking import all_profiles, all_tables
    from harness.errors import UserError

    scale = find_profile(all_profiles(), profile)
    found = members(group, all_tables())
    reasons = {table.id: table_unsupported(table, scale) for table in found}
    runnable = [table for table in found if not reasons[table.id]]
    left_out = {name: why for name, why in reasons.items() if why}
    if not runnable:
        raise UserError(_none_runs(group, scale, left_out))
    return scale, runnable, left_out


def _none_runs(group: str, profile: Profile, left_out: Mapping[str, Sequence[str]]) -> str:
    """Return why a profile can run none of a group's tables, in a sentence."""
    return f"the profile `{profile.name}` can run no table of `{group}`:{_listed(left_out)}"


def _listed(left_out: Mapping[str, Sequence[str]]) -> str:
    return "".join(f"\n  {name}: {'; '.join(reasons)}" for name, reasons in left_out.items())


def summarise(together: Together, plan: Plan, store: Store, jobs: int | None) -> dict[str, Any]:
    """Return what is done and what is left of a group's plan, as JSON data.

    `alone` counts, over the tables, what each would need if it were run by itself; a table's `own`
    stages are those that no other table needs.

    Raises:
        UserError: `jobs` is less than 1.
    """
    from harness.cli.asking import training_stages
    from harness.cli.plan_command import progress_of, state_counts
    from harness.engine import Plan

    states = plan.states(store)
    alone = [Plan(runs.targets) for runs in together.tables]
    needed = Counter(stage.fingerprint for own in alone for stage in own)
    first = together.tables[0]
    return {
        "group": together.group,
        "profile": together.profile.name,
        "scale": together.profile.scale,
        "seeds": list(first.seeds),
        "tables": [
            {
                "table": runs.table.id,
                "rows": len(runs.rows),
                "runs": len(runs.runs),
                "stages": state_counts(own, states),
                "own": sum(needed[stage.fingerprint] == 1 for stage in own),
                "training_stages": state_counts(training_stages(own), states),
            }
            for runs, own in zip(together.tables, alone, strict=True)
        ],
        "left_out": [
            {"table": name, "reasons": list(reasons)} for name, reasons in together.left_out.items()
        ],
        "runs": together.runs,
        "alone": {
            "stages": sum(len(own) for own in alone),
            "training_stages": sum(len(training_stages(own)) for own in alone),
        },
        **progress_of(plan, store, jobs, together.profile),
    }
