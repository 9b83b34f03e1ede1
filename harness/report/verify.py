"""Verify published results: all that the index names is there, and its numbers are recomputed.

No model or training library is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from harness.errors import HarnessError
from harness.registry.declared import CONTROLS, all_profiles, all_tables
from harness.registry.profile import table_at
from harness.report.build import published_tables, with_controls
from harness.report.controls import KnownControls
from harness.report.figures.published import FIGURE, published_pictures
from harness.report.model import Count, Report
from harness.report.publication import (
    ARCHIVED,
    DIGESTS,
    INDEX,
    REPORT,
    Index,
    IndexEntry,
    Publication,
    archived_entry,
    changed_place,
    files_below,
    read_digests,
    read_index,
)
from harness.report.publish import TABLE
from harness.report.render import as_findings
from harness.report.sweep import SWEEP
from harness.report.view import grouped
from harness.runtime.files import sha256_of
from harness.strict import Strict
from harness.worlds.freeze import freeze_of

FINDINGS = "README.md"
"""The page on all that is published, in the results folder."""

KINDS: Mapping[str, Publication[Any]] = {kind.name: kind for kind in (TABLE, FIGURE, SWEEP)}
"""The kinds of publication whose numbers this version recomputes, by name."""


class Verified(Strict):
    """What was checked and matches, by location within the results folder."""

    ok: Literal[True] = True
    difference: None = None
    tables: tuple[str, ...]
    sweeps: tuple[str, ...]
    cells: Count
    """Number of cells recomputed, including those of sweep winners."""
    figures: tuple[str, ...]
    points: Count
    archived: tuple[str, ...]
    """Folders whose files alone were checked; an earlier version recomputes their numbers."""
    not_covered: tuple[str, ...]
    """Files in the results folder that no command published."""


class Different(Strict):
    ok: Literal[False] = False
    difference: str


def verify(results_dir: Path) -> Verified:
    index = read_index(results_dir)
    if not index:
        raise HarnessError(f"nothing is published in {results_dir}; publish something first")
    reports = {place: _verified(results_dir, place, entry) for place, entry in index.items()}
    verify_controls(results_dir, [it for it in reports.values() if isinstance(it, Report)])
    verify_findings(results_dir)
    places = grouped((entry.kind, place) for place, entry in index.items())
    kinds = (TABLE.name, FIGURE.name, SWEEP.name, ARCHIVED)
    tables, figures, sweeps, archived = (places.get(kind, []) for kind in kinds)
    verify_freeze({place: reports[place].origin for place in (*tables, *figures)})
    return Verified(
        tables=tuple(tables),
        sweeps=tuple(sweeps),
        cells=sum(index[place].numbers for place in (*tables, *sweeps)),
        figures=tuple(figures),
        points=sum(index[place].numbers for place in figures),
        archived=tuple(archived),
        not_covered=_not_covered(results_dir, index),
    )


def verify_controls(results_dir: Path, reports: Collection[Report]) -> None:
    """Check that what tables report of the controls follows from the published ones.

    Published controls of other runs than a table's do not apply to it.
    """
    names = {report.profile for report in reports} & all_profiles().keys()
    known = {name: KnownControls(all_profiles()[name], None, results_dir) for name in names}
    for report in reports:
        table, name = all_tables().get(report.table), report.profile
        if table is None or table.controls or name not in known:
            continue
        own = table_at(table, known[name].profile)
        again = with_controls(report, own, known[name])
        place = changed_place(report.model_dump(mode="json"), again)
        if place is not None:
            raise HarnessError(
                f"{results_dir / name / report.table / REPORT}: {place} is not what the published "
                f"{name}/{CONTROLS} give; publish it again: harness report {report.table} "
                f"--profile {name} --published --publish"
            )


def findings(results_dir: Path) -> str:
    """Return `results/README.md`: what is published, by profile, as generated sentences."""
    worlds = []
    for profile in sorted(all_profiles().values(), key=lambda it: not it.in_embedded_world):
        folder = results_dir / profile.name
        tables = [table_at(table, profile) for table in all_tables().values()]
        if any((folder / table.id).is_dir() for table in tables):
            drawn = published_pictures(folder, {table.id for table in tables})
            worlds.append((published_tables(tables, profile, results_dir), drawn))
    return as_findings(worlds, results_dir)


def verify_findings(results_dir: Path) -> None:
    """Check that the findings, if there are any, are those of the published scores."""
    page = results_dir / FINDINGS
    if not page.is_file():
        return
    lines = (text.split("\n") for text in (findings(results_dir), page.read_text("utf-8")))
    for line, other in zip_longest(*lines, fillvalue="no more"):
        if line != other:
            raise HarnessError(
                f"{page} does not say what the published scores give (“{line}”); write it again: "
                "harness report --all --published --format markdown --output "
                f"results/{FINDINGS}"
            )


def verify_freeze(origins: Mapping[str, Any]) -> None:
    """Check that our worlds were frozen before an eva metric chose any prompts in them."""
    profiles = all_profiles()
    for name in dict.fromkeys(place.partition("/")[0] for place in origins):
        found = freeze_of(profiles[name]) if name in profiles else None
        if found is None:
            continue
        freeze, now = found
        again = f"freeze it again (tools/build_micro.py freeze --profile {name}), rerun eva's rows"
        if changed := freeze.changed(now):
            raise HarnessError(
                f"the world of `{name}` was frozen at {freeze.at}, and is another now "
                f"({', '.join(changed)}); restore it, or {again}"
            )
        for place, origin in origins.items():
            own, _, table = place.partition("/")
            if own != name or table == CONTROLS:
                continue  # a world is frozen by its controls, which have no row of eva
            since = origin.by_metric_since
            if since is not None and since < freeze.at:
                raise HarnessError(
                    f"{place} has prompts that a metric chose at {since}, before the world of "
                    f"`{name}` was frozen at {freeze.at}; {again}"
                )


def _verified(results_dir: Path, place: str, entry: IndexEntry) -> Any:
    """Check one index entry and return its report, or None if it is archived."""
    folder, kind = results_dir / place, KINDS.get(entry.kind)
    restore = "restore both from version control or publish it again"
    if kind is None and entry.kind != ARCHIVED:
        raise HarnessError(f"{results_dir / INDEX}: nothing of the kind of `{place}` is published")
    if not (folder / DIGESTS).is_file():
        raise HarnessError(
            f"{folder / DIGESTS if folder.is_dir() else folder} is missing, and {INDEX} says that "
            "it was published; restore it from version control, or publish it again"
        )
    if sha256_of(folder / DIGESTS) != entry.digests:
        raise HarnessError(
            f"{folder / DIGESTS} is not what was published (its digest differs from that in "
            f"{INDEX}); {restore}"
        )
    report = None if kind is None else kind.check(folder)
    if (archived_entry(folder) if kind is None else kind.entry(report, folder)) != entry:
        raise HarnessError(f"{folder} has other rows, seeds or counts than {INDEX}; {restore}")
    return report


def _not_covered(results_dir: Path, index: Index) -> tuple[str, ...]:
    """Return the files that belong to no publication in the index."""
    known = {INDEX, FINDINGS}
    for place in index:
        names = read_digests(results_dir / place).files
        known |= {f"{place}/{name}" for name in (DIGESTS, *names)}
    files = [path.relative_to(results_dir) for path in files_below(results_dir)]
    for path in files:
        place = path.parent.as_posix()
        # Hidden folders are unfinished publications.
        unfinished = any(part.startswith(".") for part in path.parts)
        if path.name == REPORT and place not in index and not unfinished:
            raise HarnessError(
                f"{results_dir / place} is not in {INDEX}; publish it again, or remove it"
            )
    return tuple(name for path in files if (name := path.as_posix()) not in known)
