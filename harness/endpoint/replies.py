"""The cache of replies of endpoints and engines: each is paid for once, even after a kill.

Replies are append-only JSON lines, indexed by their request's address. Each process appends to its
own file, one write per reply, because a file per reply would cost more than the network. Each line
ends with its digest. A damaged line is reported and requested again; one that a kill cut off is
requested again silently. There is no fsync, so a power failure may lose the last seconds.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from harness.runtime.files import explained
from harness.runtime.manifest import utc_now

_LOG = logging.getLogger(__name__)

_HEAD = b'{"address": "'
_ADDRESS = slice(len(_HEAD), len(_HEAD) + 64)
_SEAL = b', "sha256": "%s"}\n'
_SEAL_BYTES = len(_SEAL % bytes(64))


_Place = tuple[Path, int, int]
"""Location of a cached reply: file, and its line's offset and length in bytes."""


class ReplyCache:
    """A folder's cached replies by request address; thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._guard = threading.Lock()
        self._index: dict[str, _Place] | None = None
        self._file: FileIO | None = None
        self._own = root / f"replies-{os.getpid()}-{secrets.token_hex(4)}.jsonl"

    def get(self, address: str) -> Any:
        """Return the reply at an address, unchanged, or None."""
        place = self._places().get(address)
        if place is None:
            return None
        kept, start, length = place
        with kept.open("rb") as file:
            file.seek(start)
            line = file.read(length)
        return json.loads(line)["reply"] if _is_whole(line) else None

    def put(self, address: str, reply: Any, **more: Any) -> None:
        """Cache a reply (JSON data) with more fields, such as `usd`, what was paid for it."""
        entry = {"address": address, "received": utc_now(), **more, "reply": reply}
        line = _sealed(json.dumps(entry, ensure_ascii=False).encode()[:-1])
        places = self._places()
        with explained("keeping a reply", self.root), self._guard:
            if self._file is None:
                self.root.mkdir(parents=True, exist_ok=True)
                self._file = FileIO(self._own, "xb")
            start = self._file.tell()
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, "the disk is full")
            places[address] = (self._own, start, len(line))

    def _places(self) -> dict[str, _Place]:
        """Return each reply's location; the latest one wins."""
        with explained("reading kept replies", self.root), self._guard:
            if self._index is None:
                # Oldest first, so the newest reply wins.
                files = sorted(self.root.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
                self._index = {address: place for file in files for address, place in _lines(file)}
            return self._index


def usd_of_kept(root: Path) -> float:
    """Return the dollars that were paid for all replies kept in a folder."""
    files = sorted(root.glob("*.jsonl"))
    lines = (line for path in files for line in path.read_bytes().splitlines(keepends=True))
    return float(sum(json.loads(line).get("usd") or 0.0 for line in lines if _is_whole(line)))


def _lines(path: Path) -> Iterator[tuple[str, _Place]]:
    """Yield the address and location of every undamaged line of a file."""
    start = damaged = 0
    with path.open("rb") as file:
        for line in file:
            if _is_whole(line):
                yield line[_ADDRESS].decode("ascii"), (path, start, len(line))
            else:
                damaged += line.endswith(b"\n")  # a line without a newline was cut off by a kill
            start += len(line)
    if damaged:
        _LOG.warning(
            "%d of the replies kept in %s are not as they were written, and are asked for again",
            damaged, path,
        )  # fmt: skip


def _sealed(text: bytes) -> bytes:
    """Complete an entry that lacks its closing brace to a line with its digest."""
    return text + _SEAL % hashlib.sha256(text).hexdigest().encode()


def _is_whole(line: bytes) -> bool:
    return line.startswith(_HEAD) and line == _sealed(line[:-_SEAL_BYTES])
