"""Everything published, checked: it is all there, and its numbers follow from single prompts.

The index says what must be there (`harness.report.publication`). Beyond that each kind of
publication is checked by itself: numbers are computed again from the values of single prompts,
where those were published. No model or training library is needed. A store, where there is one,
holds the stages the values came from, and the digest of each of their files can be checked too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from harness.errors import HarnessError
from harness.registry.declared import all_profiles
from harness.report import publication
from harness.report.figures.drawing import FIGURE
from harness.report.measurements import OVER_OPTIMISATION
from harness.report.model import Count
from harness.report.publication import DIGESTS, INDEX, REPORT, Entry, Index, Kind
from harness.report.publish import TABLE
from harness.report.sweep import SWEEP
from harness.runtime import Store
from harness.runtime.files import sha256_of
from harness.strict import Output

KINDS: dict[str, Kind[Any]] = {
    kind.name: kind for kind in (TABLE, FIGURE, SWEEP, OVER_OPTIMISATION)
}
"""Every kind of publication, by name."""


class Verified(Output):
    """What was checked and found to be as it was published, by places below the results."""

    ok: Literal[True] = True
    """Whether the published numbers follow from the values of single prompts."""
    difference: None = None
    """The first difference; null where there is none."""
    tables: tuple[str, ...]
    """Published tables, as `profile/table`."""
    sweeps: tuple[str, ...]
    """Published sweeps, whose winners' scores were computed again."""
    cells: Count
    """Cells with numbers that were computed again, those of winners included."""
    figures: tuple[str, ...]
    """Published figures, as `profile/figure`."""
    points: Count
    """Points of figures with numbers that were computed again."""
    pages: tuple[str, ...]
    """Published pages whose files and text were checked, but which have no values of single prompts
    to compute their numbers from."""
    not_covered: tuple[str, ...]
    """Files below the results that no command published."""
    stages: Count | None = None
    """Stages of the store whose files were checked; null where no store was."""
    absent: Count | None = None
    """Stages behind published tables and figures that the store does not hold."""


class Different(Output):
    ok: Literal[False] = False
    """Whether the published numbers follow from the values of single prompts."""
    difference: str


def verify(results_dir: Path, store: Store | None = None) -> Verified:
    """Check everything published, and every stage of a store where one is given.

    Raises:
        HarnessError: Nothing is published, or something is missing or not what was published; the
            message names the first difference.
        StoreError: Something in the store is not what was written; the message names all of it.
    """
    index = publication.read_index(results_dir)
    if not index:
        raise HarnessError(f"nothing is published in {results_dir}; publish something first")
    numbers = {place: _verify_entry(results_dir, place, index[place]) for place in index}
    not_covered = _not_covered(results_dir, index)

    def of(*kinds: str) -> tuple[str, ...]:
        return tuple(place for place, entry in index.items() if entry.kind in kinds)

    _verify_freeze(results_dir, of(TABLE.name, FIGURE.name))

    stages, absent = None, None
    if store is not None:
        held = store.check()
        runs = [
            run
            for place in of(TABLE.name, FIGURE.name)
            for run in publication.read_json(results_dir / place / DIGESTS)["stages"].values()
        ]
        behind = {fingerprint for run in runs for fingerprint in run.values()}
        stages, absent = len(held), len(behind - set(held))
    return Verified(
        tables=of(TABLE.name),
        sweeps=of(SWEEP.name),
        cells=sum(numbers[place] for place in of(TABLE.name, SWEEP.name)),
        figures=of(FIGURE.name),
        points=sum(numbers[place] for place in of(FIGURE.name)),
        pages=of(OVER_OPTIMISATION.name),
        not_covered=not_covered,
        stages=stages,
        absent=absent,
    )


def _verify_freeze(results_dir: Path, places: Sequence[str]) -> None:
    """Check that the embedded world was frozen before a metric of eva chose any prompts in it.

    Raises:
        HarnessError: It is another world now, or a published table or figure is older.
    """
    from harness.worlds.embedded.freeze import frozen

    own = {
        name: (profile, [place for place in places if place.partition("/")[0] == name])
        for name, profile in all_profiles().items()
        if profile.in_embedded_world
    }
    freeze = frozen() if any(found for _, found in own.values()) else None
    if freeze is None:
        return
    again = "freeze it again (`harness micro freeze`) and compute every row of eva anew"
    for profile, found in own.values():
        if found and (changed := freeze.changed(profile)):
            raise HarnessError(
                f"the embedded world was frozen at {freeze.at}, and is another now "
                f"({', '.join(changed)}); restore it, or {again}"
            )
        for folder in (results_dir / place for place in found):
            since = kind_of(folder).read(folder).origin.by_metric_since
            if since is not None and since < freeze.at:
                raise HarnessError(
                    f"{folder} has prompts that a metric chose at {since}, before the embedded "
                    f"world was frozen at {freeze.at}; {again}"
                )


def kind_of(folder: Path) -> Kind[Any]:
    """Return what a folder was published as.

    Raises:
        HarnessError: It holds no report of the harness.
    """
    report = publication.read_json(folder / REPORT, "report")
    for kind in KINDS.values():
        if kind.mark in report:
            return kind
    raise HarnessError(f"{folder / REPORT} is no report of the harness; take it away")


def _verify_entry(results_dir: Path, place: str, entry: Entry) -> int:
    """Check one place of the index; return how many numbers were computed again.

    Raises:
        HarnessError: A file is missing or changed, the publication is not as it says itself, or
            has not what the index says.
    """
    folder, kind = results_dir / place, KINDS.get(entry.kind)
    if kind is None:
        raise HarnessError(f"{results_dir / INDEX}: nothing of the kind of `{place}` is published")
    for path in (folder, folder / DIGESTS):
        if not (path.is_dir() if path is folder else path.is_file()):
            raise HarnessError(
                f"{path} is missing, and {INDEX} says that it was published; restore it from "
                "version control, or publish it again"
            )
    said, number = [], 0
    if sha256_of(folder / DIGESTS) != entry.digests:
        said.append(
            f"{folder / DIGESTS} is not what was published (its digest differs from that in "
            f"{INDEX}); restore both from version control or publish it again"
        )
    try:
        number = kind.check(folder)
        found = kind.extent(kind.read(folder))
    except HarnessError as error:
        raise HarnessError("; ".join([*said, str(error)])) from error
    if found != entry.extent:
        lost = found.less_than(entry.extent)
        other = f"has lost {', '.join(lost)}" if lost else "has other rows, seeds or counts"
        said.append(
            f"{folder} {other}, as {INDEX} has it; restore both from version control or publish "
            "it again"
        )
    if said:
        raise HarnessError("; ".join(said))
    return number


def _not_covered(results_dir: Path, index: Index) -> tuple[str, ...]:
    """Return the files that no publication of the index has.

    Raises:
        HarnessError: There is a whole publication among them, which readers would take for one.
    """
    # Folders that publishing has not finished hold none.
    folders = (path.parent.relative_to(results_dir) for path in results_dir.rglob(REPORT))
    whole = (it for it in folders if not any(part.startswith(".") for part in it.parts))
    for place in sorted(folder.as_posix() for folder in whole):
        if place not in index:
            raise HarnessError(
                f"{results_dir / place} is not in {INDEX}; publish it again, or take it away"
            )
    known = {INDEX}
    for place in index:
        names = publication.read_json(results_dir / place / DIGESTS)["files"]
        known |= {f"{place}/{name}" for name in (DIGESTS, *names)}
    files = (
        path.relative_to(results_dir).as_posix() for path in publication.files_below(results_dir)
    )
    return tuple(name for name in files if name not in known)
