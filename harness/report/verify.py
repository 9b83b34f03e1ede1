"""Everything published, checked: it is all there, and its numbers follow from single prompts.

The index says what must be there (`harness.report.publication`). Beyond that each kind of
publication is checked by itself: numbers are computed again from the values of single prompts,
where those were published. No model or training library is needed. A store, where there is one,
holds the stages the values came from, and the digest of each of their files can be checked too.

`ro-crate-metadata.json` beside the index (RO-Crate 1.1, https://w3id.org/ro/crate/1.1) describes
the results as a data set that others can read: every published file with its size, type and sha256.
It follows from the index and the files alone, so that it is made again and compared as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from harness.errors import HarnessError, UserError
from harness.report import publication
from harness.report.figures.drawing import FIGURE
from harness.report.measurements import ERROR_RATES, OVER_OPTIMISATION
from harness.report.model import Count
from harness.report.publication import DIGESTS, INDEX, KEPT, REPORT, Entry, Index, Kind
from harness.report.publish import TABLE
from harness.report.sweep import SWEEP
from harness.runtime import Store
from harness.runtime.files import sha256_of, write_whole
from harness.strict import Output

CRATE = "ro-crate-metadata.json"

SPECIFICATION = "https://w3id.org/ro/crate/1.1"
LICENCE = "https://spdx.org/licenses/Apache-2.0"
PAPER = "https://arxiv.org/abs/2411.00062"

TYPES = {
    ".json": "application/json",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""What a file holds, by its ending."""

DESCRIPTION = (
    "Tables and figures of the eva paper (arXiv 2411.00062) as eva-harness computed them: reports, "
    "and behind each number the scores of single prompts with the fingerprints of the stages they "
    "came from. The profile `micro` is a toy in an embedded world; none of its values can be "
    "compared with the paper's."
)

KINDS: dict[str, Kind[Any]] = {
    kind.name: kind for kind in (TABLE, FIGURE, SWEEP, ERROR_RATES, OVER_OPTIMISATION)
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
    kept: tuple[str, ...]
    """Files kept by hand, of which the digest was checked."""
    not_covered: tuple[str, ...]
    """Other files under the results, which nothing is known of."""
    stages: Count | None = None
    """Stages of the store whose files were checked; null where no store was."""
    absent: Count | None = None
    """Stages behind published tables and figures that the store does not hold."""


class Different(Output):
    """That something is not as it was published."""

    ok: Literal[False] = False
    """Whether the published numbers follow from the values of single prompts."""
    difference: str
    """The first difference."""


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
    check_crate(results_dir)

    def of(*kinds: str) -> tuple[str, ...]:
        return tuple(place for place, entry in index.items() if entry.kind in kinds)

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
        pages=of(ERROR_RATES.name, OVER_OPTIMISATION.name),
        kept=of(KEPT),
        not_covered=not_covered,
        stages=stages,
        absent=absent,
    )


def record(results_dir: Path, places: Sequence[str]) -> None:
    """Let the index take what stands at some places for what was published, be it nothing.

    Places are those of publications (`micro/table4`), which are checked by themselves first, or of
    files kept by hand.

    Raises:
        UserError: Nothing stands at a place and the index does not name it either, or it is no
            place of its own.
        HarnessError: A publication is not as it says itself, or the index is broken.
    """
    known = publication.read_index(results_dir) if (results_dir / INDEX).exists() else {}
    entries = {place: _found(results_dir, place, known) for place in places}
    publication.enter(results_dir, entries)


def _found(results_dir: Path, place: str, known: Index) -> Entry | None:
    """Return the entry of what stands at a place, None where nothing does and something did."""
    path, there = results_dir / place, set(_publications(results_dir))
    files = {
        file.relative_to(results_dir).as_posix() for file in publication.files_below(results_dir)
    }
    if place in there:
        kind = kind_of(path)
        kind.check(path)
        return kind.entry(kind.read(path), place, path)
    made = {INDEX, CRATE}
    if place in files - made and not any(place.startswith(f"{other}/") for other in there):
        return Entry(KEPT, {place: sha256_of(path)})
    if place in known and not path.exists():
        return None
    near = get_close_matches(place, {*there, *known, *files}, 1)
    raise UserError(
        f"`{place}` is neither a publication nor a file kept by hand in {results_dir}"
        + (f"; did you mean `{near[0]}`?" if near else "; name it by its path below that folder")
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
    record = f"take it as it is with `harness verify --record {place}`"
    again = record if entry.kind == KEPT else "publish it again"
    gone = f"is missing, and {INDEX} says that it was published; restore it from version control"
    if not (results_dir / place).exists():
        raise HarnessError(f"{results_dir / place} {gone}, publish it again, or {record}")
    files = {results_dir / name: digest for name, digest in entry.files.items()}
    for path in files:
        if not path.is_file():
            raise HarnessError(f"{path} {gone} or {again}")
    said = {
        path: f"{path} is not what was published (its digest differs from that in {INDEX}); "
        f"restore both from version control or {again}"
        for path, digest in files.items()
        if sha256_of(path) != digest
    }
    try:
        number = _check_by_itself(results_dir, place, entry)
    except HarnessError as error:
        more = [text for path, text in said.items() if str(path) not in str(error)]
        raise HarnessError("; ".join([*more[:1], str(error)])) from error
    for text in said.values():
        raise HarnessError(text)
    return number


def _check_by_itself(results_dir: Path, place: str, entry: Entry) -> int:
    """Check that a publication is as it says itself, and has what the index says; 0 for a file.

    Raises:
        HarnessError: It is not, or has not.
    """
    if entry.kind == KEPT:
        return 0
    folder, kind = results_dir / place, KINDS.get(entry.kind)
    if kind is None:
        raise HarnessError(f"{results_dir / INDEX}: nothing of the kind of `{place}` is published")
    number = kind.check(folder)
    found = kind.extent(kind.read(folder))
    if found != entry.extent:
        lost = [] if entry.extent is None else found.less_than(entry.extent)
        other = f"has lost {', '.join(lost)}" if lost else "has other rows, seeds or counts"
        raise HarnessError(
            f"{folder} {other}, as {INDEX} has it; restore both from version control or publish "
            "it again"
        )
    return number


def _not_covered(results_dir: Path, index: Index) -> tuple[str, ...]:
    """Return the files that the index does not name.

    Raises:
        HarnessError: There is a whole publication among them, which readers would take for one.
    """
    for place in _publications(results_dir):
        if place not in index:
            raise HarnessError(
                f"{results_dir / place} is not in {INDEX}; publish it again, or let it count as "
                f"published with `harness verify --record {place}`"
            )
    known = {INDEX, CRATE, *(name for entry in index.values() for name in entry.files)}
    files = (
        path.relative_to(results_dir).as_posix() for path in publication.files_below(results_dir)
    )
    return tuple(name for name in files if name not in known)


def _publications(results_dir: Path) -> list[str]:
    """Return the places that hold a report; folders that publishing has not finished hold none."""
    folders = (path.parent.relative_to(results_dir) for path in results_dir.rglob(REPORT))
    return sorted(
        folder.as_posix()
        for folder in folders
        if not any(part.startswith(".") for part in folder.parts)
    )


# --- The results as a data set ---


def write_crate(results_dir: Path) -> Path:
    """Write the metadata of the published results beside their index; return the file.

    Raises:
        HarnessError: A file that the index names is not there, or nothing is published.
    """
    path = results_dir / CRATE
    write_whole(path, _text(results_dir))
    return path


def check_crate(results_dir: Path) -> None:
    """Check that the metadata, where it is there, says what the index and the files say.

    Raises:
        HarnessError: It says something else.
    """
    path = results_dir / CRATE
    if path.is_file() and path.read_text(encoding="utf-8") != _text(results_dir):
        raise HarnessError(
            f"{path} is not what follows from the index; write it again with `harness verify "
            "--write-crate`"
        )


def _text(results_dir: Path) -> str:
    return publication.dumps(crate_of(results_dir, publication.read_index(results_dir)))


def crate_of(results_dir: Path, index: Mapping[str, Entry]) -> dict[str, Any]:
    """Return the metadata of all that an index names, as JSON-LD.

    Raises:
        HarnessError: A file is not there, or the index names none.
    """
    if not index:
        raise HarnessError(f"nothing is published in {results_dir}; publish something first")
    publications = {place: entry for place, entry in index.items() if entry.kind != KEPT}
    alone = [name for e in index.values() if e.kind == KEPT for name in e.files]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": "eva-harness: published results",
        "description": DESCRIPTION,
        "license": {"@id": LICENCE},
        "isBasedOn": {"@id": PAPER},
        "hasPart": [{"@id": place} for place in (*(f"{p}/" for p in publications), *alone)],
    }
    descriptor = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": SPECIFICATION},
        "about": {"@id": "./"},
    }
    parts = [
        {
            "@id": f"{place}/",
            "@type": "Dataset",
            "name": place,
            "description": _said(entry),
            "hasPart": [{"@id": name} for name in entry.files],
        }
        for place, entry in publications.items()
    ]
    files = [
        _file(results_dir, name, digest)
        for entry in index.values()
        for name, digest in entry.files.items()
    ]
    paper = "Evolving Alignment via Asymmetric Self-Play"
    others = [
        {"@id": LICENCE, "@type": "CreativeWork", "name": "Apache License 2.0"},
        {"@id": PAPER, "@type": "ScholarlyArticle", "name": paper},
    ]
    # RO-Crate 1.1 knows schema.org as it was in 2020, before `sha256`.
    context = [f"{SPECIFICATION}/context", {"sha256": "https://schema.org/sha256"}]
    return {"@context": context, "@graph": [descriptor, root, *parts, *files, *others]}


def _said(entry: Entry) -> str:
    """Return in words what kind a publication is, its seeds, and how much it has."""
    said = f"kind: {entry.kind}"
    if entry.extent is not None:
        seeds = ", ".join(map(str, entry.extent.seeds))
        said += f"; {len(entry.extent.rows)} rows" + (f"; seeds {seeds}" if seeds else "")
    return said


def _file(results_dir: Path, name: str, digest: str) -> dict[str, Any]:
    path = results_dir / name
    if not path.is_file():
        raise HarnessError(f"{path} is in the index and not there; publish it again")
    return {
        "@id": name,
        "@type": "File",
        "name": path.name,
        "contentSize": str(path.stat().st_size),
        "encodingFormat": TYPES.get(path.suffix, "application/octet-stream"),
        "sha256": digest,
    }
