"""Publishing: the only writer of the results folder, and the index of its contents.

    results/index.json                what must be there: rows, seeds, counts, sha256 of the digests
            <profile>/<name>/         a table, a figure, `sweeps/<name>`, or a standalone page
                      report.json     the full report
                      report.md       the same, for reading
                      digests.json    sha256 of the files, fingerprints of the stages behind them
                      *.svg           plots
                      *.parquet       the per-prompt values its numbers are computed from

A publication is written to a scratch folder and replaces the previous one as a whole, one process
at a time. The index is derived from the files alone, so `harness.report.verify` can compare them.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from harness import foreign
from harness.errors import HarnessError
from harness.registry.overrides import first_fault
from harness.report.model import Report
from harness.report.plots import Picture
from harness.report.scores import Measured, read_score_file
from harness.runtime.files import dumps, explained, sha256_of, write_whole
from harness.strict import Strict

Model = TypeVar("Model", bound=BaseModel)
Form = TypeVar("Form")

REPORT, PAGE, SCORES, DIGESTS = "report.json", "report.md", "scores.parquet", "digests.json"

INDEX = "index.json"

ARCHIVED = "archived"
"""The kind of an index entry whose numbers only an earlier version, tagged in git, recomputes."""

_DIGITS = 1e-11
"""Floats may differ by this, since summation order varies across processors and libraries."""

_SHOWN = 3
"""Maximum number of names listed in an error."""


class IndexEntry(Strict):
    """A publication's index entry: what it contains and what it lacks."""

    kind: str = ""
    rows: tuple[str, ...]
    """A table's rows, a figure's series, a sweep's scores."""
    seeds: tuple[int, ...]
    counts: dict[str, int]
    lacking: tuple[str, ...] = ()
    digests: str = ""
    """The sha256 of its `digests.json`."""

    @property
    def numbers(self) -> int:
        """Count of numbers computed from per-prompt values; for a sweep, its rows."""
        return self.counts.get("numbers", len(self.rows))

    def less_than(self, before: IndexEntry) -> list[str]:
        rows = [f"`{row}`" for row in before.rows if row not in self.rows]
        seeds = [str(seed) for seed in before.seeds if seed not in self.seeds]
        found = [f"row{'s' * (len(rows) > 1)} {_some(rows)}"] if rows else []
        found += [f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"] if seeds else []
        return found + [
            f"{number - self.counts.get(name, 0)} of {number} {name}"
            for name, number in before.counts.items()
            if self.counts.get(name, 0) < number
        ]


Index = dict[str, IndexEntry]
"""Index entries by location within the results folder, such as `micro/table4`."""


ByStep = dict[str, dict[str, str]]
"""Fingerprints or digests by run and step."""


class Digests(Strict):
    files: dict[str, str]
    """The sha256 of every other file in the folder, by name."""
    stages: ByStep | None = Field(default=None, exclude_if=lambda stages: stages is None)
    """Fingerprints of the stages behind the report."""
    outputs: ByStep | None = Field(default=None, exclude_if=lambda outputs: outputs is None)
    """The sha256 of weights and answers, which tell what repeated on another machine."""


class Refused(HarnessError):
    """A publication that is incomplete or has less than the existing one."""


@dataclass(frozen=True)
class Publication(Generic[Model]):
    """A kind of publication: how its report is checked.

    `values` names the file of per-prompt values that its numbers are `recomputed` from.
    """

    name: str
    model: type[Model]
    extent: Callable[[Model], IndexEntry]
    recomputed: Callable[[Model, Path], Model]
    pictures: Callable[[Model], Sequence[Picture]] = lambda report: ()
    values: Callable[[Model], str] = lambda report: SCORES
    words: bool = False
    """Whether the file has more than the model reads: what follows from it."""

    def publish(
        self,
        report: Model,
        page: str,
        place: str,
        results_dir: Path,
        write: Callable[[Path], None] = lambda folder: None,
        *,
        stages: ByStep | None = None,
        outputs: ByStep | None = None,
        allow_fewer: bool = False,
    ) -> Path:
        """Replace `results/<place>/` and update the index; `write` adds other files."""
        target = results_dir / place
        with explained(f"publishing `{target.name}`", results_dir), _alone(results_dir):
            with _replacing(target) as draft:
                index = read_index(results_dir) if (results_dir / INDEX).exists() else {}
                for picture in self.pictures(report):
                    (draft / picture.file).write_bytes(picture.svg())
                (draft / PAGE).write_text(page, encoding="utf-8")
                text = dumps(report.model_dump(mode="json"))
                (draft / REPORT).write_text(text, encoding="utf-8")
                write(draft)
                files = {p.relative_to(draft).as_posix(): sha256_of(p) for p in files_below(draft)}
                digests = Digests(files=files, stages=stages, outputs=outputs)
                (draft / DIGESTS).write_text(dumps(digests.model_dump()), encoding="utf-8")
                entry = self.entry(report, draft)
                if not allow_fewer:
                    _refuse_less(place, entry, index.get(place))
            write_index(results_dir, index | {place: entry})
        return target

    def entry(self, report: Model, folder: Path) -> IndexEntry:
        digests = sha256_of(folder / DIGESTS)
        return self.extent(report).model_copy(update={"kind": self.name, "digests": digests})

    def read(self, folder: Path) -> Model:
        return read_form(self.model, folder / REPORT, self.name)

    def check(self, folder: Path) -> Model:
        """Return a published report after checking its files and recomputing its numbers."""
        known = check_files(folder, (PAGE, REPORT), self.name)
        report = self.read(folder)
        file, again = self.values(report), f"publish the {self.name} again"
        for name in (*(it.file for it in self.pictures(report)), file):
            if name not in known:
                raise changed_file(folder / name, self.name)
        written = report.model_dump(mode="json")
        if self.words:
            written = foreign.read_json((folder / REPORT).read_bytes())
        place = changed_place(written, self.recomputed(report, folder))
        if place is not None:
            raise HarnessError(
                f"{folder / REPORT}: {place} cannot be recomputed from {file}; {again}"
            )
        return report


def read_published(folder: Path) -> tuple[Report, Measured]:
    """Read a published table and its per-prompt scores, verifying their digests."""
    return read_report(folder), read_score_file(folder / SCORES)


def read_report(folder: Path) -> Report:
    """Read a published table, verifying the digests of its files."""
    check_files(folder, (PAGE, REPORT, SCORES), "table")
    return read_form(Report, folder / REPORT, "table")


def read_digests(folder: Path, what: str = "table") -> Digests:
    return read_form(Digests, folder / DIGESTS, what)


def read_index(results_dir: Path) -> Index:
    return read_form(Index, results_dir / INDEX, "results")


def archived_entry(folder: Path) -> IndexEntry:
    """Return the index entry of an archived folder after checking its files."""
    files = check_files(folder, (), "archive")
    digests = sha256_of(folder / DIGESTS)
    return IndexEntry(
        kind=ARCHIVED, rows=(), seeds=(), counts={"files": len(files)}, digests=digests
    )


def read_form(form: type[Form], path: Path, what: str) -> Form:
    """Read JSON written by publishing; `what` names the publication in errors."""
    again = f"restore it from version control, or publish the {what} again"
    try:
        return TypeAdapter(form).validate_python(foreign.read_json(path.read_bytes()))
    except FileNotFoundError as error:
        raise HarnessError(f"{path} is missing; {again}") from error
    except ValidationError as error:
        why = first_fault(error)
        raise HarnessError(f"{path} was published in another form ({why}); {again}") from error
    except (OSError, ValueError) as error:
        raise HarnessError(f"{path} cannot be read as JSON ({error}); {again}") from error


def write_index(results_dir: Path, index: Index) -> None:
    text = dumps({place: index[place].model_dump(mode="json") for place in sorted(index)})
    write_whole(results_dir / INDEX, text)


_NAMES = ("row", "column", "panel", "series", "at", "score", "id", "first", "second")
"""Keys that identify an item in a list."""


def first_difference(before: Any, again: Any, place: str = "") -> str | None:
    """Return the path of the first difference between two JSON values, or None."""
    pairs: list[tuple[object, Any, Any]] = []
    if isinstance(before, dict) and isinstance(again, dict) and before.keys() == again.keys():
        pairs = [(key, before[key], again[key]) for key in before]
    elif isinstance(before, list) and isinstance(again, list) and len(before) == len(again):
        for number, (one, other) in enumerate(zip(before, again, strict=True)):
            known = [one.get(key) for key in _NAMES] if isinstance(one, dict) else []
            name = " / ".join(text for text in known if text and isinstance(text, str))
            pairs.append((name or number, one, other))
    elif isinstance(before, float) and isinstance(again, float):
        return None if math.isclose(before, again, rel_tol=_DIGITS, abs_tol=_DIGITS) else place
    else:
        return None if before == again else place
    found = (first_difference(it, other, f"{place} / {name}") for name, it, other in pairs)
    return next((place.removeprefix(" / ") for place in found if place is not None), None)


def changed_place(written: Any, again: BaseModel) -> str | None:
    """Return where a report first differs from its JSON form, in words, or None."""
    place = first_difference(written, again.model_dump(mode="json"))
    return "its fields" if place == "" else place


def without_numbers(states: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Describe the locations that lack a number, except those without a benchmark."""
    return tuple(
        f"{place} ({state.replace('_', ' ')})"
        for place, state in states
        if state not in ("ok", "not_available")
    )


def check_files(folder: Path, required: Sequence[str], what: str) -> Mapping[str, str]:
    """Check a publication's files, including the `required` ones, and return their digests."""
    known = read_digests(folder, what).files
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


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


def _refuse_less(place: str, entry: IndexEntry, standing: IndexEntry | None) -> None:
    said = [f"it lacks {_some(entry.lacking)}"] if entry.lacking else []
    less = [] if standing is None else entry.less_than(standing)
    said += [f"the published result has more: {', '.join(less)}"] if less else []
    if said:
        name = place.rpartition("/")[2]
        raise Refused(
            f"`{name}` is not published in {place}: {', and '.join(said)}; run what is missing, or "
            f"publish it as it is with `--allow-fewer`"
        )


@contextmanager
def _alone(results_dir: Path) -> Iterator[None]:
    """Hold an exclusive lock on the results folder, so that one process publishes at a time."""
    results_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(results_dir, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces the target if the block succeeds.

    If the process is killed between the two renames, the next publication restores the old one.
    """
    _put_back(target)
    new, old = _scratch(target) / "new", _scratch(target) / "old"
    new.mkdir(parents=True)
    try:
        yield new
        if target.exists():
            target.rename(old)
        new.rename(target)
    finally:
        _put_back(target)


def restore(target: Path) -> None:
    """Put a publication back that a killed one had moved away."""
    if _scratch(target).exists():
        with _alone(target.parents[1]):
            _put_back(target)


def _scratch(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _put_back(target: Path) -> None:
    old = _scratch(target) / "old"
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(old.parent, ignore_errors=True)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
