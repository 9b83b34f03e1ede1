"""What a work folder knows: runs asked for, runs something computes now, and what MLflow has.

A process that computes runs marks them: it writes their identities to a file of its own and holds
the lock on that file as long as it lives. The operating system releases the lock however the
process ends, so a mark that nobody holds is that of a process which has ended, killed or not.

What was asked for stays known, in one file, when its process has ended. A store cannot tell: a run
that nobody asked for has finished stages as well, where it shares them with one that was computed.

A note says which records a tracking server had after the last writing, so that whoever finds all
of its records there need not even import MLflow.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.foreign import read_json
from harness.runtime.files import write_whole
from harness.runtime.leases import hold
from harness.tracking.connection import database_id
from harness.tracking.record import Record, sha256

_ENDED = "ended.json"


@dataclass(frozen=True)
class Asked:
    """What a work folder knows of runs.

    Attributes:
        benchmarks: The benchmarks asked for of each run that was ever marked, by its identity.
        computing: Identities of the runs that something computes now.
        ended: The marks of processes that have ended.
    """

    benchmarks: Mapping[str, frozenset[str]]
    computing: frozenset[str]
    ended: tuple[Path, ...]


class Marks:
    """The marks of a work folder. Every method raises OSError where it cannot be written."""

    def __init__(self, work_dir: Path) -> None:
        self._folder = work_dir / "tracking" / "marks"

    def begin(self, asked: Mapping[str, Collection[str]]) -> ExitStack:
        """Mark runs as computed by this process, until what is returned is closed.

        They are given by identity, with the benchmarks asked for of each.
        """
        held = ExitStack()
        with self._alone():
            path = self._folder / f"{uuid.uuid4().hex}.mark"
            _write(path, asked)
            held.enter_context(hold(path))
        return held

    def read(self) -> Asked:
        """Return what is known now."""
        benchmarks: dict[str, frozenset[str]] = {}
        computing: set[str] = set()
        ended: list[Path] = []
        with self._alone():
            for path in sorted(self._folder.glob("*.mark")):
                found = _content(path)
                with hold(path, wait=False) as is_nobodys:
                    if is_nobodys:
                        ended.append(path)
                    else:
                        computing |= found.keys()
                _add(benchmarks, found)
            _add(benchmarks, _content(self._folder / _ENDED))
        return Asked(benchmarks, frozenset(computing), tuple(ended))

    def gather(self, asked: Asked) -> None:
        """Put the marks of processes that have ended into one file, as they were read."""
        if not asked.ended:
            return
        with self._alone():
            known = _content(self._folder / _ENDED)
            left = [path for path in asked.ended if path.exists()]
            for path in left:
                _add(known, _content(path))
            _write(self._folder / _ENDED, known)
            for path in left:
                path.unlink()

    def _alone(self) -> AbstractContextManager[bool]:
        """Keep other processes from the folder for an instant."""
        return hold(self._folder / "lock")


class Notes:
    """The note about one tracking server; what others have done to it since is not noticed."""

    def __init__(self, work_dir: Path, uri: str) -> None:
        self._uri = uri
        self._path = work_dir / "tracking" / f"{sha256(uri)[:16]}.json"

    def covers(self, records: Iterable[Record]) -> bool:
        """Return whether the server had all of some records, as they are."""
        noted = self._digests()
        return all(noted.get(record.identity) == record.digest for record in records)

    def add(self, records: Iterable[Record]) -> None:
        """Note that the server has some records."""
        digests = {record.identity: record.digest for record in records}
        if digests:
            digests = self._digests() | digests
            _replace(self._path, {"database": database_id(self._uri), "digests": digests})

    def _digests(self) -> dict[str, str]:
        """Return the digests of the records the server had, by identity."""
        try:
            note = read_json(self._path.read_bytes())
            return dict(note["digests"]) if note["database"] == database_id(self._uri) else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}


def _content(path: Path) -> dict[str, frozenset[str]]:
    """Return what a mark says; nothing where there is none, or its process was killed writing."""
    try:
        said = read_json(path.read_bytes())
        return {name: frozenset(map(str, found)) for name, found in said.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def _write(path: Path, asked: Mapping[str, Collection[str]]) -> None:
    _replace(path, {name: sorted(benchmarks) for name, benchmarks in asked.items()})


def _replace(path: Path, data: Mapping[str, Any]) -> None:
    write_whole(path, f"{json.dumps(data, indent=1)}\n")


def _add(known: dict[str, frozenset[str]], found: Mapping[str, frozenset[str]]) -> None:
    for name, benchmarks in found.items():
        known[name] = known.get(name, frozenset()) | benchmarks
