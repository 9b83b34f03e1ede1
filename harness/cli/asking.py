"""From what a command was asked to the runs behind it: declarations, profile, stages."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.catalogue.figures import Figure
    from harness.catalogue.profile import Profile
    from harness.catalogue.schema import Table
    from harness.engine import Plan
    from harness.store import Stage
    from harness.trainer.figure_runs import FigureRuns
    from harness.trainer.table_runs import TableRuns

EXPECTED_S: Mapping[str, float] = {
    "prompts": 0.1,
    "generate": 4.0,
    "annotate": 3.0,
    "select": 0.1,
    "evolve": 0.3,
    "pair": 0.1,
    "mix": 0.1,
    "join": 0.1,
    "repeat": 0.1,
    "rewrite": 3.0,
    "train": 12.0,
    "online": 90.0,
    "answer": 1.0,
    "judge": 0.1,
    "rate": 0.1,
    "topics": 0.1,
    "reward_model": 60.0,
    "held_out": 10.0,
    "best_of_n": 0.5,
}
"""Seconds of a stage of each kind on one core of an ordinary machine, at the profile `micro`.

They order the work and estimate its time until a stage of the kind is done and was measured.
"""


@functools.cache
def all_tables() -> Mapping[str, Table]:
    """Return the declared tables by id, read once.

    Raises:
        CatalogueError: Anything is wrong in any file.
    """
    from harness.catalogue.load import load_tables

    return load_tables()


@functools.cache
def all_figures() -> Mapping[str, Figure]:
    """Return the declared figures by id, read once.

    Raises:
        CatalogueError: Anything is wrong in any file, or in a table's.
    """
    from harness.catalogue.figures import load_figures

    return load_figures(all_tables())


@functools.cache
def all_profiles() -> Mapping[str, Profile]:
    """Return the declared profiles by name, read once.

    Raises:
        CatalogueError: Anything is wrong in any file.
    """
    from harness.catalogue.profile import load_profiles

    return load_profiles()


def named_profile(name: str) -> Profile:
    """Return a profile by its name.

    Raises:
        UserError: There is no such profile.
    """
    from harness.catalogue.profile import find_profile

    return find_profile(all_profiles(), name)


def found(table: str, profile: str) -> tuple[Table, Profile]:
    """Return a table and a profile by their names.

    Raises:
        UserError: There is no such table or profile.
    """
    from harness.catalogue.load import find_table
    from harness.catalogue.profile import find_profile

    return find_table(all_tables(), table), find_profile(all_profiles(), profile)


def planned(
    table: str, profile: str, seeds: Sequence[int], rows: Sequence[str] | None = None
) -> TableRuns:
    """Return the runs behind a table, or behind some of its rows and their baselines.

    Raises:
        UserError: There is no such table, profile or row, or the profile cannot run it.
    """
    from harness.trainer.table_runs import plan_table

    return plan_table(*found(table, profile), seeds, rows)


def shared_stages(runs: TableRuns | FigureRuns) -> list[Stage]:
    """Return the stages that more than one run needs; each is computed once."""
    from harness.engine import Plan

    needed: dict[str, int] = {}
    stages: dict[str, Stage] = {}
    for run in runs.runs.values():
        for stage in Plan(run.targets):
            needed[stage.fingerprint] = needed.get(stage.fingerprint, 0) + 1
            stages[stage.fingerprint] = stage
    return [stages[fingerprint] for fingerprint, times in needed.items() if times > 1]


def training_stages(plan: Plan) -> list[Stage]:
    """Return the stages of a plan that train a policy, offline or online."""
    return [stage for stage in plan if stage.kind in ("train", "online")]


def supported_rows(table: Table, profile: Profile, asked: Sequence[str] = ()) -> list[str]:
    """Return the ids of the rows a profile can run, and of those asked for in any case."""
    from harness.catalogue.profile import table_unsupported

    return [
        row.id
        for row in table.rows
        if row.id in asked or not table_unsupported(table, profile, [row])
    ]
