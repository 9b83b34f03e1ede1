"""The paper's claims, each judged by what the store holds or by what is published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness import project
from harness.errors import UserError
from harness.registry.claims import Qualitative, figure_claims
from harness.registry.declared import GROUPS, all_tables, members, named_table, own_file
from harness.registry.documents import nearest
from harness.registry.profile import Profile, lacking_rows
from harness.registry.schema import Table
from harness.report.claims import judge_figures, judge_published, judge_runs
from harness.report.model import Verdict
from harness.report.publish import read_published
from harness.report.verdicts import judge_without
from harness.runtime import Store
from harness.selection.selection import select
from harness.trainer.runs import plan_table


@dataclass(frozen=True)
class Judged:
    """Verdicts on claims.

    Attributes:
        verdicts: The verdicts.
        seeds: The seeds of each table that they rest on.
    """

    verdicts: Sequence[Verdict]
    seeds: Mapping[str, Sequence[int]]


def judge(
    names: Sequence[str],
    profile: Profile,
    seeds: Sequence[int] | None,
    *,
    published: bool,
    on_note: Callable[[str], None],
) -> Judged:
    """Judge the claims of some tables, groups and figures, of all that are declared by default.

    A table may be the path of a file of the user's own.

    They are judged by the store, of the seeds given or the most complete ones of each table, or by
    what is published. `on_note` hears of seeds that are left out.

    Raises:
        UserError: There is no table or figure of a name.
    """
    tables, declared = dict(all_tables()), figure_claims()
    names, files = _spelt_out(names), {}
    for i, name in enumerate(names):
        if own_file(name) is not None:
            table, _ = named_table(name)
            tables[table.id], files[table.id], names[i] = table, name, table.id
    known = [*tables, *(figure.id for figure in declared.figures)]
    for name in names:
        if name not in known:
            raise UserError(f"there is no table or figure `{name}`{nearest(name, known)}")
    wanted = set(names or known)
    # A figure's claim may be measured by claims of tables that were not asked for.
    measured_by = {
        claim
        for figure in declared.figures
        if figure.id in wanted
        for c in figure.claims
        if isinstance(c.test, Qualitative)
        for claim in c.test.measured_by or ()
    }
    of: dict[str, Sequence[int]] = {}
    verdicts: list[Verdict] = []
    for table in tables.values():
        if table.id in wanted or any(claim.id in measured_by for claim in table.claims):
            verdicts += (
                _published(of, table, profile)
                if published
                else _stored(of, files.get(table.id, table.id), table, profile, seeds, on_note)
            )
    verdicts += judge_figures(declared, verdicts, profile.scale)
    return Judged([verdict for verdict in verdicts if verdict.table in wanted], of)


def _spelt_out(names: Sequence[str]) -> list[str]:
    """Return names with each group's tables in its place; in that of `all`, figures as well."""
    found: list[str] = []
    for name in names:
        if name in GROUPS:
            found += [table.id for table in members(name, all_tables())]
            found += [figure.id for figure in figure_claims().figures] if name == "all" else []
        else:
            found.append(name)
    return found


def _stored(
    of: dict[str, Sequence[int]],
    name: str,
    table: Table,
    profile: Profile,
    asked: Sequence[int] | None,
    on_note: Callable[[str], None],
) -> list[Verdict]:
    """Judge a table by what the store holds, of seeds or of the most complete; `of` gets them."""
    lacking = lacking_rows(table, profile)
    rows = [row.id for row in table.rows if row.id not in lacking]
    if not rows:
        return judge_without(table, profile.scale, lacking[table.rows[0].id])
    seeds = select(name, profile.asked_as).shown(table, on_note) if asked is None else asked
    of[table.id] = seeds
    return judge_runs(plan_table(table, profile, seeds, rows), Store(project.store_dir()), lacking)


def _published(of: dict[str, Sequence[int]], table: Table, profile: Profile) -> list[Verdict]:
    """Judge a table by what is published of it; `of` gets its seeds."""
    folder = project.results_dir() / profile.name / table.id
    if not folder.is_dir():
        return judge_without(table, profile.scale, f"`{table.id}` is not published")
    found = read_published(folder)
    of[table.id] = found.report.seeds
    return judge_published(table, found, profile)
