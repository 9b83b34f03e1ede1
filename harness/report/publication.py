"""Publishing: the one way into the folder of results, and the index of all that lies there.

    results/index.json                what must be there: rows, seeds, counts, sha256 of each file
            <profile>/<name>/         a table, a figure, `sweeps/<name>`, or a page of its own
                      report.json     everything it says
                      report.md       the same for people
                      digests.json    sha256 of the files, fingerprints of the stages behind them
                      ...             pictures, values of single prompts

A publication is written aside and takes the place of the one before as a whole. It is refused
where it is not whole, or has less than what stands there, unless that is allowed. One process
publishes at a time; what a killed one left behind is put right by the next.

The index follows from the files alone, so that `harness.report.verify` can compare the two:
whatever is missing, changed or too few is a difference between them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from harness import foreign
from harness.errors import HarnessError
from harness.report.plots import Picture
from harness.runtime.files import explained

Model = TypeVar("Model", bound=BaseModel)

REPORT, PAGE, SCORES, DIGESTS = "report.json", "report.md", "scores.parquet", "digests.json"

INDEX = "index.json"

KEPT = "kept by hand"
"""Kind of a single file that is published without a command: a log, a screenshot."""

_DIGITS = 1e-11

_SHOWN = 3
"""How many of the places without a number an error names."""


@dataclass(frozen=True)
class Extent:
    """How much a publication has.

    Attributes:
        rows: What it has numbers for: a table's rows, a figure's series, a sweep's scores.
        seeds: Root seeds.
        counts: How many it has of whatever else counts, by name: numbers, trials.
        lacking: What it should have and has not, each in words; empty where it is whole.
    """

    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    counts: Mapping[str, int]
    lacking: tuple[str, ...] = ()

    def less_than(self, before: Extent) -> list[str]:
        """Return what another extent has and this one has not, each in words."""
        rows = [row for row in before.rows if row not in self.rows]
        seeds = [str(seed) for seed in before.seeds if seed not in self.seeds]
        found = [f"row{'s' * (len(rows) > 1)} {_quoted(rows)}"] if rows else []
        if seeds:
            found.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}")
        for name, number in before.counts.items():
            now = self.counts.get(name, 0)
            if now < number:
                found.append(f"{number - now} of {number} {name}")
        return found


@dataclass(frozen=True)
class Kind:
    """A kind of publication.

    Attributes:
        name: Its name.
        mark: A key that the `report.json` of this kind has and that of no other.
        extent: Returns how much a report has, given the content of its `report.json`.
        check: Checks a folder: its files against the digests beside them, and its numbers against
            what they follow from. Returns how many were computed again; raises HarnessError.
        pictures: Returns the pictures in a folder that a page shows by themselves; raises
            HarnessError.
    """

    name: str
    mark: str
    extent: Callable[[Mapping[str, Any]], Extent]
    check: Callable[[Path], int]
    pictures: Callable[[Path], Sequence[Picture]] = lambda folder: ()


@dataclass(frozen=True)
class Entry:
    """What the index says of one publication.

    Attributes:
        kind: Name of its kind, or `KEPT`.
        files: The sha256 of each of its files, by path below the folder of results.
        extent: How much it has; None for a file kept by hand.
    """

    kind: str
    files: Mapping[str, str]
    extent: Extent | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the entry as JSON data."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.extent is not None:
            found |= {
                "rows": list(self.extent.rows),
                "seeds": list(self.extent.seeds),
                "counts": dict(self.extent.counts),
                "lacking": list(self.extent.lacking),
            }
        return found | {"files": dict(self.files)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        """Return the entry that `as_json` wrote.

        Raises:
            KeyError, TypeError, AttributeError: It was written in another form.
        """
        kind, files = str(data["kind"]), {str(k): str(v) for k, v in data["files"].items()}
        if kind == KEPT:
            return cls(kind, files)
        counts = {str(name): int(number) for name, number in data["counts"].items()}
        rows, seeds = tuple(map(str, data["rows"])), tuple(map(int, data["seeds"]))
        return cls(kind, files, Extent(rows, seeds, counts, tuple(map(str, data["lacking"]))))


Index = dict[str, Entry]
"""All that is published, by its place below the folder of results: `micro/table4`."""


class Refused(HarnessError):
    """A publication that is not whole, or has less than what stands there."""


def publish_folder(
    kind: Kind,
    place: str,
    results_dir: Path,
    write: Callable[[Path], None],
    *,
    stages: Mapping[str, Mapping[str, str]] | None = None,
    allow_fewer: bool = False,
) -> Path:
    """Write `results/<place>/`, in place of what was published before, and name it in the index.

    Args:
        kind: What is published.
        place: Where, below the folder of results: `micro/table4`.
        results_dir: The folder of published results.
        write: Writes the files, `report.json` among them, into an empty folder.
        stages: Fingerprints of the stages behind it, by run.
        allow_fewer: Publish it though it is not whole, or has less than what stands there.

    Returns:
        The folder that was written.

    Raises:
        Refused: It is not whole, or has less than what stands there, and that is not allowed.
        HarnessError: The index is broken.
        StoreError: A stored file is not what was written, the disk is full, or the folder may
            not be written.
    """
    target = results_dir / place
    with explained(f"publishing `{target.name}`", results_dir), _alone(results_dir):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _aside(target) as draft:
            index = read_index(results_dir) if (results_dir / INDEX).exists() else {}
            write(draft)
            digests: dict[str, Any] = {"files": digests_of(draft)}
            if stages is not None:
                digests["stages"] = stages
            (draft / DIGESTS).write_text(dumps(digests), encoding="utf-8")
            entry = entry_of(kind, place, draft)
            if not allow_fewer:
                _refuse_less(place, entry, _standing(kind, place, results_dir, index))
            _replace(target, draft)
            write_index(results_dir, index | {place: entry})
    return target


def read_index(results_dir: Path) -> Index:
    """Return what the index names.

    Raises:
        HarnessError: There is no index, or it is not as publishing writes it.
    """
    path = results_dir / INDEX
    refuse_what_is_no_file(results_dir)
    try:
        text = path.read_text(encoding="utf-8")
        said = foreign.read_json(text)
        found = {str(place): Entry.from_json(data) for place, data in said.items()}
    except FileNotFoundError as error:
        raise HarnessError(
            f"{path} is missing, so nothing says what must be published; restore it from version "
            "control, or publish something"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _broken(path) from error
    if text != _index_text(found):
        raise _broken(path)
    return found


def write_index(results_dir: Path, index: Index) -> None:
    """Write the index, in place of the one before as a whole."""
    draft = results_dir / f".{INDEX}.part"
    draft.write_text(_index_text(index), encoding="utf-8")
    draft.replace(results_dir / INDEX)


def entry_of(kind: Kind, place: str, folder: Path) -> Entry:
    """Return what the index is to say of a publication, given the folder it lies in now.

    Raises:
        HarnessError: Its report cannot be read, or is of another kind.
    """
    report = read_json(folder / REPORT, kind.name)
    try:
        return Entry(kind.name, digests_of(folder, place), kind.extent(report))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise changed_file(folder / REPORT, kind.name) from error


def enter(results_dir: Path, entries: Mapping[str, Entry | None]) -> None:
    """Let the index say something else of some places, None for nothing.

    Raises:
        HarnessError: The index is broken.
        StoreError: The folder may not be written.
    """
    with explained("recording what is published", results_dir), _alone(results_dir):
        index = read_index(results_dir) if (results_dir / INDEX).exists() else {}
        entered = {place: entry for place, entry in entries.items() if entry is not None}
        kept = {place: entry for place, entry in index.items() if place not in entries}
        write_index(results_dir, kept | entered)


def dumps(value: object) -> str:
    """Return JSON for people and programs: indented, every float with all its digits."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n"


def same(a: object, b: object) -> bool:
    """Return whether two published values are equal, numbers to eleven digits.

    Another processor or library may add in another order.
    """
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=_DIGITS, abs_tol=_DIGITS)
    return a == b


def read_json(path: Path, what: str = "table") -> dict[str, Any]:
    """Read a published JSON object.

    Args:
        path: The file.
        what: What was published, for the message.

    Raises:
        HarnessError: It is missing, or holds no object.
    """
    try:
        found = foreign.read_json(path.read_bytes())
    except FileNotFoundError as error:
        raise HarnessError(f"{path} is missing; publish the {what} again") from error
    except ValueError as error:
        raise HarnessError(f"{path} is not JSON; publish the {what} again") from error
    if not isinstance(found, dict):
        raise HarnessError(f"{path} does not hold a report; publish the {what} again")
    return found


def read_model(folder: Path, model: type[Model], what: str) -> Model:
    """Return the report of a publication as the model it was written from.

    Raises:
        HarnessError: It is missing, or is not what was published.
    """
    report = read_json(folder / REPORT, what)
    try:
        return model.model_validate(report)
    except ValueError as error:
        raise changed_file(folder / REPORT, what) from error


def without_numbers(states: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the places that should have a number and have none, each in words.

    Args:
        states: Places, each with its state (`harness.report.cells.State`).
    """
    # What the profile has no benchmark for cannot have a number.
    return tuple(
        f"{place} ({state.replace('_', ' ')})"
        for place, state in states
        if state not in ("ok", "not_available")
    )


def check_files(folder: Path, required: Sequence[str], what: str) -> None:
    """Check the files of a publication against the digests beside them.

    Args:
        folder: Its folder.
        required: Files that it must have, whatever the digests name.
        what: What was published, for the message.

    Raises:
        HarnessError: A file is missing, or is not what was published.
    """
    refuse_what_is_no_file(folder)
    digests = read_json(folder / DIGESTS, what).get("files")
    known = digests if isinstance(digests, dict) else {}
    for name in dict.fromkeys([*required, *known]):
        path = folder / name
        if not path.is_file():
            raise HarnessError(f"{path} is missing; publish the {what} again")
        if sha256(path) != known.get(name):
            raise changed_file(path, what)


def check_page(folder: Path, page: Callable[[], str], what: str) -> None:
    """Check that a published page says what its report says.

    Args:
        folder: Its folder.
        page: Makes the page of the report.
        what: What was published, for the message.

    Raises:
        HarnessError: The page does not follow from the report, or the report is broken.
    """
    try:
        follows = page() == (folder / PAGE).read_text(encoding="utf-8")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise changed_file(folder / REPORT, what) from error
    if not follows:
        raise HarnessError(
            f"{folder / PAGE} does not follow from {REPORT}; publish the {what} again"
        )


def changed_file(path: Path, what: str) -> HarnessError:
    """Return the error that a file is not what was published."""
    return HarnessError(
        f"{path} is not what was published (its digest differs); restore it from version control "
        f"or publish the {what} again"
    )


def sha256(path: Path) -> str:
    """Return a file's sha256 as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_what_is_no_file(folder: Path) -> None:
    """Refuse a folder with anything in it that is neither a file nor a folder.

    A link leads elsewhere, and reading a pipe or a device may never end.

    Raises:
        HarnessError: There is such a thing; the message names the first.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise HarnessError(
                f"{path} is no file but a link, a pipe or a device; restore it from version "
                "control, or take it away"
            )


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, in order."""
    return sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


def digests_of(folder: Path, place: str = "") -> dict[str, str]:
    """Return the sha256 of the files in a folder, by their paths with `place` for the folder."""
    return {
        (Path(place) / path.relative_to(folder)).as_posix(): sha256(path)
        for path in files_below(folder)
    }


def _refuse_less(place: str, entry: Entry, standing: Extent | None) -> None:
    assert entry.extent is not None
    said, lacking = [], entry.extent.lacking
    if lacking:
        more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        said.append(f"it lacks {', '.join(lacking[:_SHOWN])}{more}")
    less = [] if standing is None else entry.extent.less_than(standing)
    if less:
        said.append(f"what stands there has {', '.join(less)} that it has not")
    if said:
        name = place.rpartition("/")[2]
        raise Refused(
            f"`{name}` is not published in {place}: {', and '.join(said)}; run what is missing, or "
            f"publish it as it is with `--allow-fewer {name}`"
        )


def _standing(kind: Kind, place: str, results_dir: Path, index: Index) -> Extent | None:
    """Return how much stands at a place: what the index says, else the report that is there."""
    if place in index:
        return index[place].extent
    with suppress(HarnessError, OSError):  # nothing that can be read
        return entry_of(kind, place, results_dir / place).extent
    return None


@contextmanager
def _alone(results_dir: Path) -> Iterator[None]:
    """Wait until no other process publishes, and let none begin; the folder itself is the lock."""
    results_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(results_dir, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside a target, and remove it at the end.

    A process killed while it publishes leaves its folder. If it was killed between the two renames
    of `_replace`, what was published before lies there, and is put back.
    """
    scratch = _scratch(target)
    if _old(target).exists() and not target.exists():
        _old(target).rename(target)
    shutil.rmtree(scratch, ignore_errors=True)
    draft = scratch / "new"
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _replace(target: Path, draft: Path) -> None:
    """Put a folder in another's place; what was there comes back where that fails."""
    there = target.exists()
    if there:
        target.rename(_old(target))
    try:
        draft.rename(target)
    except OSError:
        if there:
            _old(target).rename(target)
        raise


def _scratch(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _old(target: Path) -> Path:
    return _scratch(target) / "old"


def _index_text(index: Index) -> str:
    return dumps({place: index[place].as_json() for place in sorted(index)})


def _broken(path: Path) -> HarnessError:
    return HarnessError(
        f"{path} is not as publishing writes it; restore it from version control, or take it away "
        "and record what is published with `harness verify --record NAMES`"
    )


def _quoted(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:_SHOWN]) + more
