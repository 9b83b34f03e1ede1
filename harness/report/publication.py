"""Publishing: the one way into the folder of results, and the index of all that lies there.

    results/index.json                what must be there: rows, seeds, counts, sha256 of the digests
            <profile>/<name>/         a table, a figure, `sweeps/<name>`, or a page of its own
                      report.json     everything it says
                      report.md       the same for people
                      digests.json    sha256 of the files, fingerprints of the stages behind them
                      *.svg           pictures
                      *.parquet       the values of single prompts that its numbers follow from

A publication is written aside and takes the place of the one before as a whole. One process
publishes at a time; what a killed one left behind is put right by the next. The index follows from
the files alone, so that `harness.report.verify` can compare the two.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from harness import foreign
from harness.errors import HarnessError
from harness.report.plots import Picture
from harness.runtime.files import dumps, explained, sha256_of, write_whole

Model = TypeVar("Model", bound=BaseModel)

REPORT, PAGE, SCORES, DIGESTS = "report.json", "report.md", "scores.parquet", "digests.json"

INDEX = "index.json"

_DIGITS = 1e-11

_SHOWN = 3
"""How many of the places without a number an error names."""


@pydantic_dataclass(frozen=True)
class Extent:
    """How much a publication has, and what it should have and has not, in words.

    Its rows are what it has numbers for: a table's rows, a figure's series, a sweep's scores. Its
    counts are how many it has of whatever else counts, by name: numbers, trials.
    """

    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    counts: Mapping[str, int]
    lacking: tuple[str, ...] = ()

    @property
    def numbers(self) -> int:
        """How many numbers follow from values of single prompts; of a sweep that is its rows."""
        return self.counts.get("numbers", len(self.rows))

    def less_than(self, before: Extent) -> list[str]:
        rows = [f"`{row}`" for row in before.rows if row not in self.rows]
        seeds = [str(seed) for seed in before.seeds if seed not in self.seeds]
        found = [f"row{'s' * (len(rows) > 1)} {_some(rows)}"] if rows else []
        if seeds:
            found.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}")
        for name, number in before.counts.items():
            now = self.counts.get(name, 0)
            if now < number:
                found.append(f"{number - now} of {number} {name}")
        return found


@pydantic_dataclass(frozen=True)
class Entry:
    """What the index says of one publication.

    `digests` is the sha256 of its `digests.json`, which has those of its files.
    """

    kind: str
    extent: Extent
    digests: str

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self.extent), "digests": self.digests}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Entry:
        """Return the entry that `as_json` wrote; in another form it is an error of any kind."""
        kind, digests, extent = data.pop("kind"), data.pop("digests"), data
        return cls(kind, Extent(**extent), digests)


Index = dict[str, Entry]
"""All that is published, by its place below the folder of results: `micro/table4`."""


class Refused(HarnessError):
    """A publication that is not whole, or has less than what stands there."""


@dataclass(frozen=True)
class Kind(Generic[Model]):
    """A kind of publication: what is written of its report, and how that is checked.

    Attributes:
        mark: A key that the `report.json` of this kind has and that of no other.
        page: Returns its page, and `pictures` the pictures beside it.
        values: Returns the file with the values of single prompts that its numbers follow from.
            Where there is none, the page follows from the report alone.
        difference: Returns the first number, in words, that does not follow from those values,
            given the folder they lie in; None where all do.
    """

    name: str
    mark: str
    model: type[Model]
    extent: Callable[[Model], Extent]
    page: Callable[[Model], str]
    pictures: Callable[[Model], Sequence[Picture]] = lambda report: ()
    values: Callable[[Model], str | None] = lambda report: None
    difference: Callable[[Model, Path], str | None] = lambda report, folder: None

    def publish(
        self,
        report: Model,
        place: str,
        results_dir: Path,
        *,
        values: Callable[[Path], None] | None = None,
        stages: Mapping[str, Mapping[str, str]] | None = None,
        beside: Callable[[Path], None] = lambda folder: None,
        allow_fewer: bool = False,
    ) -> Path:
        """Write `results/<place>/`, in place of what was there, and name it in the index.

        `values` writes the file of values, and `beside` further files into the folder; `stages` are
        the fingerprints of the stages behind the report, by run.

        Raises:
            Refused: It is not whole, or has less than what stands there, and `allow_fewer` is off.
            HarnessError: The index is broken.
            StoreError: A stored file is not what was written, the disk is full, or the folder may
                not be written.
        """
        target = results_dir / place
        with explained(f"publishing `{target.name}`", results_dir), _alone(results_dir):
            target.parent.mkdir(parents=True, exist_ok=True)
            with _aside(target) as draft:
                index = _known(results_dir)
                for picture in self.pictures(report):
                    (draft / picture.file).write_bytes(picture.svg())
                (draft / PAGE).write_text(self.page(report), encoding="utf-8")
                text = dumps(report.model_dump(mode="json"))
                (draft / REPORT).write_text(text, encoding="utf-8")
                file = self.values(report)
                if values is not None and file is not None:
                    values(draft / file)
                beside(draft)
                digests: dict[str, Any] = {"files": digests_of(draft)}
                if stages is not None:
                    digests["stages"] = stages
                (draft / DIGESTS).write_text(dumps(digests), encoding="utf-8")
                entry = self.entry(report, draft)
                if not allow_fewer:
                    _refuse_less(place, entry, self._standing(place, results_dir, index))
                _replace(target, draft)
                write_index(results_dir, index | {place: entry})
        return target

    def entry(self, report: Model, folder: Path) -> Entry:
        return Entry(self.name, self.extent(report), sha256_of(folder / DIGESTS))

    def _standing(self, place: str, results_dir: Path, index: Index) -> Extent | None:
        """Return how much stands at a place: what the index says, else the report there."""
        if place in index:
            return index[place].extent
        with suppress(HarnessError, OSError):  # nothing that can be read
            return self.extent(self.read(results_dir / place))
        return None

    def read(self, folder: Path) -> Model:
        """Return a published report.

        Raises:
            HarnessError: It is missing, is not JSON, or was published in another form.
        """
        data = read_json(folder / REPORT, self.name)
        try:
            return self.model.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = "/".join(map(str, first["loc"]))
            raise HarnessError(
                f"{folder} was published in another form ({where}: {first['msg']}); publish the "
                f"{self.name} again"
            ) from error

    def check(self, folder: Path) -> int:
        """Check a publication: its files against the digests, its numbers against the values.

        Returns how many numbers follow from them.

        Raises:
            HarnessError: A file is missing or changed, or a number does not follow; a file that was
                changed is named with the first number it changes.
        """
        try:
            return self._check(folder)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise changed_file(folder / REPORT, self.name) from error

    def _check(self, folder: Path) -> int:
        try:
            known = check_files(folder, (PAGE, REPORT), self.name)
            report = self.read(folder)
            file = self.values(report)
            for name in (file, *(picture.file for picture in self.pictures(report))):
                if name is not None and name not in known:
                    raise changed_file(folder / name, self.name)
        except HarnessError as error:
            number = self._changed(folder)
            if number is None:
                raise
            raise HarnessError(f"{error}; the first number that changes is the {number}") from error
        again, number = f"publish the {self.name} again", self.difference(report, folder)
        if file is None and self.page(report) != (folder / PAGE).read_text(encoding="utf-8"):
            raise HarnessError(f"{folder / PAGE} does not follow from {REPORT}; {again}")
        if number is not None:
            said = f"the {number} does not follow from {file}"
            raise HarnessError(f"{folder / REPORT}: {said}; {again}")
        return self.extent(report).numbers

    def _changed(self, folder: Path) -> str | None:
        """Return the first published number that does not follow from the values as they are now.

        None where every number does, or where the files cannot be read.
        """
        try:
            return self.difference(self.read(folder), folder)
        except (HarnessError, OSError, LookupError, ValueError, TypeError, StopIteration):
            return None  # the files' own fault is reported by whoever found it


def read_index(results_dir: Path) -> Index:
    """Return what the index names."""
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


def _known(results_dir: Path) -> Index:
    return read_index(results_dir) if (results_dir / INDEX).exists() else {}


def write_index(results_dir: Path, index: Index) -> None:
    write_whole(results_dir / INDEX, _index_text(index))


def same(a: object, b: object) -> bool:
    """Return whether two published values are equal, numbers to eleven digits.

    Another processor or library may add in another order.
    """
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=_DIGITS, abs_tol=_DIGITS)
    return a == b


def differing(before: object, again: object, names: Iterable[str]) -> str | None:
    found = (name for name in names if not same(getattr(before, name), getattr(again, name)))
    return next(found, None)


def read_json(path: Path, what: str = "table") -> dict[str, Any]:
    """Read a published JSON object; `what` was published, for the message."""
    try:
        found = foreign.read_json(path.read_bytes())
    except FileNotFoundError as error:
        raise HarnessError(f"{path} is missing; publish the {what} again") from error
    except ValueError as error:
        raise HarnessError(f"{path} is not JSON; publish the {what} again") from error
    if not isinstance(found, dict):
        raise HarnessError(f"{path} does not hold a report; publish the {what} again")
    return found


def without_numbers(states: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the places that should have a number and have none, each in words."""
    # What the profile has no benchmark for cannot have a number.
    return tuple(
        f"{place} ({state.replace('_', ' ')})"
        for place, state in states
        if state not in ("ok", "not_available")
    )


def check_files(folder: Path, required: Sequence[str], what: str) -> Mapping[str, str]:
    """Check the files of a publication, those `required` included, and return their digests.

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
        if sha256_of(path) != known.get(name):
            raise changed_file(path, what)
    return known


def changed_file(path: Path, what: str) -> HarnessError:
    return HarnessError(
        f"{path} is not what was published (its digest differs); restore it from version control "
        f"or publish the {what} again"
    )


def refuse_what_is_no_file(folder: Path) -> None:
    """Refuse a folder with anything in it that is neither a file nor a folder."""
    # A link leads elsewhere, and reading a pipe or a device may never end.
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise HarnessError(
                f"{path} is no file but a link, a pipe or a device; restore it from version "
                "control, or take it away"
            )


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


def digests_of(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files_below(folder)}


def _refuse_less(place: str, entry: Entry, standing: Extent | None) -> None:
    lacking = entry.extent.lacking
    said = [f"it lacks {_some(lacking)}"] if lacking else []
    less = [] if standing is None else entry.extent.less_than(standing)
    if less:
        said.append(f"the published result has more: {', '.join(less)}")
    if said:
        name = place.rpartition("/")[2]
        raise Refused(
            f"`{name}` is not published in {place}: {', and '.join(said)}; run what is missing, or "
            f"publish it as it is with `--allow-fewer`"
        )


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
    scratch = _old(target).parent
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


def _old(target: Path) -> Path:
    """Return where what stood at a target lies while another takes its place."""
    return target.with_name(f".{target.name}.part") / "old"


def _index_text(index: Index) -> str:
    return dumps({place: index[place].as_json() for place in sorted(index)})


def _broken(path: Path) -> HarnessError:
    return HarnessError(
        f"{path} is not as publishing writes it; restore it from version control, or take it away "
        "and publish everything again"
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
