"""`claims`: the ledger of the paper's claims, each with what our runs say of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import DEFAULT_PROFILE, JsonOption, ProfileOption, parse_seeds
from harness.cli.report_command import AskedSeedsOption, shown

if TYPE_CHECKING:
    from harness.catalogue.profile import Profile
    from harness.catalogue.schema import Table
    from harness.report.verdicts import Verdict

TablesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TABLE...",
        help="Tables, figures, or `all-offline`, the tables without online training.",
        show_default="all",
    ),
]


PublishedOption = Annotated[
    bool, typer.Option("--published", help="Judge the published scores, not those of the store.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("claims", epilog="Example: harness claims table4")(claims)


def claims(
    tables: TablesArgument = None,
    profile: ProfileOption = DEFAULT_PROFILE,
    seeds: AskedSeedsOption = None,
    published: PublishedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Judge the paper's claims by what has been computed, without computing anything.

    The seeds are the most complete ones of each table; those left out are named.
    """
    from harness.errors import UserError
    from harness.report import claims as ledger

    if published and seeds is not None:
        raise UserError("published scores have the seeds they have; leave out `--seeds`")
    asked = None if seeds is None else parse_seeds(seeds)
    of: dict[str, Sequence[int]] = {}
    by_table = (
        functools.partial(_published, of) if published else functools.partial(_stored, asked, of)
    )
    verdicts = judged(_spelt_out(tables or []), profile, by_table)
    if as_json:
        sys.stdout.write(ledger.as_json(verdicts))
    else:
        _print(verdicts, of)
    _note_judges(profile)


def _note_judges(profile: str) -> None:
    """Say which real judges of a profile have not passed a calibration."""
    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_profiles
    from harness.cli.output import note
    from harness.evaluation.calibration_record import states
    from harness.project import calibrations_dir

    found = states(find_profile(all_profiles(), profile), calibrations_dir())
    lacking = [name for name, held in found.items() if held is None or not held.passed]
    if lacking:
        note(
            f"no passed calibration of the judge of {', '.join(lacking)}: their verdicts rest on "
            f"judges held against nothing (harness calibrate --profile {profile})"
        )


def _spelt_out(names: Sequence[str]) -> list[str]:
    """Return names with each group's tables in its place; in that of `all`, figures as well."""
    from harness.catalogue.claims import figure_claims
    from harness.catalogue.groups import GROUPS, members
    from harness.cli.asking import all_tables

    found: list[str] = []
    for name in names:
        if name in GROUPS:
            found += [table.id for table in members(name, all_tables())]
            found += [figure.id for figure in figure_claims().figures] if name == "all" else []
        else:
            found.append(name)
    return found


def judged(
    names: Sequence[str], profile: str, by_table: Callable[[Table, Profile], list[Verdict]]
) -> list[Verdict]:
    """Return the verdicts on the claims of some tables and figures, of all where none is named.

    Args:
        names: Tables, and figures or other places of the paper.
        profile: Name of the profile.
        by_table: Judges the claims of a table at a profile.

    Raises:
        UserError: There is no table, figure or profile of a name.
    """
    from harness.catalogue.claims import Qualitative, figure_claims
    from harness.catalogue.documents import nearest
    from harness.catalogue.profile import find_profile
    from harness.cli.asking import all_profiles, all_tables
    from harness.errors import UserError
    from harness.report.claims import judge_figures

    scale = find_profile(all_profiles(), profile)
    declared, tables = figure_claims(), all_tables()
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
    needed = [
        table
        for table in tables.values()
        if table.id in wanted or any(claim.id in measured_by for claim in table.claims)
    ]
    verdicts = [verdict for table in needed for verdict in by_table(table, scale)]
    verdicts += judge_figures(declared, verdicts, scale.scale)
    return [verdict for verdict in verdicts if verdict.table in wanted]


def _stored(
    asked: Sequence[int] | None, of: dict[str, Sequence[int]], table: Table, profile: Profile
) -> list[Verdict]:
    """Judge a table by what the store holds, of seeds or of the most complete; `of` gets them."""
    from harness.cli.asking import planned
    from harness.project import store_dir
    from harness.report.claims import judge_runs, lacking_rows
    from harness.report.verdicts import judge_without
    from harness.store import Store

    lacking = lacking_rows(table, profile)
    rows = [row.id for row in table.rows if row.id not in lacking]
    if not rows:
        return judge_without(table, profile.scale, lacking[table.rows[0].id])
    seeds = shown(table.id, profile.name) if asked is None else asked
    of[table.id] = seeds
    return judge_runs(planned(table.id, profile.name, seeds, rows), Store(store_dir()), lacking)


def _published(of: dict[str, Sequence[int]], table: Table, profile: Profile) -> list[Verdict]:
    """Judge a table by what is published of it; `of` gets its seeds."""
    from harness.project import results_dir
    from harness.report.claims import judge_published
    from harness.report.published import read_published
    from harness.report.verdicts import judge_without

    folder = results_dir() / profile.name / table.id
    if not folder.is_dir():
        return judge_without(table, profile.scale, f"`{table.id}` is not published")
    found = read_published(folder)
    of[table.id] = found.report["seeds"]
    return judge_published(table, found)


def _print(verdicts: Sequence[Verdict], of: Mapping[str, Sequence[int]]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from harness.cli.output import console, counted
    from harness.report.ledger import PRIMARY, totals
    from harness.report.view import seeds_text

    out = console()
    for table in dict.fromkeys(verdict.table for verdict in verdicts):
        seeds = f", seeds {seeds_text(of[table])}" if table in of else ""
        out.print(f"{table}{seeds}", style="bold")
        for verdict in verdicts:
            if verdict.table == table:
                first, *rest = _sentences(verdict)
                out.print(first)
                out.print(Padding(Text("\n".join(rest)), (0, 0, 0, 2)))
        out.print()
    if not verdicts:
        out.print("The paper claims nothing there.")
        return
    out.print(f"{counted(len(verdicts), 'claim')}: {totals(verdicts)}.")
    out.print(PRIMARY)


def _sentences(verdict: Verdict) -> list[str]:
    """Return a verdict as lines of a few words or sentences each, of which any width makes sense.

    First the claim with its verdict, then what the paper says, what was measured, and why it is
    not decided; what there is not is left out.
    """
    from harness.report.ledger import NONE, line

    said = line(verdict)
    measures = {
        "ours": said.margin,
        "95% interval": said.interval,
        "p": said.p,
        "adjusted": said.adjusted,
        "detectable": said.detectable,
        "paper": said.paper,
    }
    numbers = ", ".join(f"{name} {text}" for name, text in measures.items() if text != NONE)
    if verdict.paper_within_noise:
        numbers += " (within its own noise)"
    reasons = [verdict.reason] if verdict.reason else []
    if verdict.by_construction:
        reasons.append(f"by construction here: {verdict.by_construction}")
    return [
        f"{said.name}: {said.verdict}",
        said.statement,
        *([numbers] if numbers else []),
        *(f"{reason.removesuffix('.')}." for reason in reasons),
    ]
