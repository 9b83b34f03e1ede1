"""Which runs were asked for in a work folder, and which of them something computes now.

A process that computes runs marks them: it writes their identities to a file of its own and holds
the lock on that file as long as it lives. The operating system releases the lock however the
process ends, so a mark that nobody holds is that of a process which has ended, killed or not.

What was asked for stays known, in one file, when its process has ended. A store cannot tell: a run
that nobody asked for has finished stages as well, where it shares them with one that was computed.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.foreign import read_json
from harness.runtime.files import write_whole

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


class Mark:
    """The hold of a process on the runs it computes."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def end(self) -> None:
        """Say that nothing is computed any more; saying it again is harmless."""
        self._file.close()


class Marks:
    """The marks of a work folder.

    Args:
        work_dir: Folder that runs write to.
    """

    def __init__(self, work_dir: Path) -> None:
        self._folder = work_dir / "tracking" / "marks"

    def begin(self, asked: Mapping[str, Collection[str]]) -> Mark:
        """Mark runs as computed by this process from now on.

        Args:
            asked: The benchmarks asked for of each run, by its identity.

        Raises:
            OSError: The folder cannot be written.
        """
        with self._alone():
            file = (self._folder / f"{uuid.uuid4().hex}.mark").open("w", encoding="utf-8")
            fcntl.flock(file, fcntl.LOCK_EX)
            json.dump({name: sorted(benchmarks) for name, benchmarks in asked.items()}, file)
            file.flush()
        return Mark(file)

    def read(self) -> Asked:
        """Return what is known now.

        Raises:
            OSError: The folder cannot be read or written.
        """
        benchmarks: dict[str, frozenset[str]] = {}
        computing: set[str] = set()
        ended: list[Path] = []
        with self._alone():
            for path in sorted(self._folder.glob("*.mark")):
                with path.open(encoding="utf-8") as file:
                    found = _content(file)
                    if _is_held(file):
                        computing |= found.keys()
                    else:
                        ended.append(path)
                _add(benchmarks, found)
            _add(benchmarks, self._of_ended())
        return Asked(benchmarks, frozenset(computing), tuple(ended))

    def gather(self, asked: Asked) -> None:
        """Put the marks of processes that have ended into one file.

        Args:
            asked: What was read before their runs were ended in MLflow.

        Raises:
            OSError: The folder cannot be written.
        """
        if not asked.ended:
            return
        with self._alone():
            known = dict(self._of_ended())
            left = [path for path in asked.ended if path.exists()]
            for path in left:
                with path.open(encoding="utf-8") as file:
                    _add(known, _content(file))
            text = json.dumps({name: sorted(found) for name, found in known.items()}, indent=0)
            write_whole(self._folder / _ENDED, text)
            for path in left:
                path.unlink()

    def _of_ended(self) -> dict[str, frozenset[str]]:
        path = self._folder / _ENDED
        if not path.exists():
            return {}
        with path.open(encoding="utf-8") as file:
            return _content(file)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from the folder for an instant."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _content(file: IO[str]) -> dict[str, frozenset[str]]:
    """Return what a mark says; nothing where its process was killed while it wrote."""
    try:
        said = read_json(file.read())
        return {name: frozenset(map(str, found)) for name, found in said.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _is_held(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _add(known: dict[str, frozenset[str]], found: Mapping[str, frozenset[str]]) -> None:
    for name, benchmarks in found.items():
        known[name] = known.get(name, frozenset()) | benchmarks
