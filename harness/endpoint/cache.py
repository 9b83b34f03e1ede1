"""Replies on disk: JSON lines that are only ever added to, found by the address of their request.

Each process that keeps replies adds them to a file of its own, one line for each and in one write,
because a file for each reply would cost more than the network. So a killed process leaves whole
lines and at most one that is not, which counts as absent. Nothing waits for the disk: a machine
that loses power may lose the replies of its last seconds. A process sees the replies of others
that were there when it first looked.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from harness.endpoint.request import ChatRequest, Reply, is_reply
from harness.errors import HarnessError
from harness.foreign import ForeignTextError, read_json
from harness.runtime.manifest import utc_now

_HEAD = b'{"address": "'
_ADDRESS = slice(len(_HEAD), len(_HEAD) + 64)


class Place(NamedTuple):
    """Where a reply is kept: its file, and where its line begins and how many bytes it has."""

    file: Path
    start: int
    length: int


class ReplyCache:
    """All replies kept in a folder, by the address of their request; for many threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._guard = threading.Lock()
        self._index: dict[str, Place] | None = None
        self._file: FileIO | None = None
        self._written = 0
        self._own = root / f"replies-{os.getpid()}-{secrets.token_hex(4)}.jsonl"

    def get(self, address: str) -> Reply | None:
        """Return the reply kept under an address, or None."""
        place = self._places().get(address)
        if place is None:
            return None
        try:
            with place.file.open("rb") as file:
                file.seek(place.start)
                entry = read_json(file.read(place.length))
        except OSError as error:
            raise HarnessError(
                f"Cannot read {place.file}: {error}; delete the file, and its replies are asked "
                "for again."
            ) from error
        except ForeignTextError:
            return None
        if not isinstance(entry, dict) or not is_reply(entry.get("reply")):
            return None
        return Reply(entry["reply"], cached=True)

    def put(self, address: str, endpoint: str, request: ChatRequest, raw: dict[str, Any]) -> None:
        """Keep a reply, with the request it answers."""
        entry = {
            "address": address,
            "endpoint": endpoint,
            "label": request.label,
            "request": request.body(),
            "sample": request.sample,
            "received": utc_now(),
            "reply": raw,
        }
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        places = self._places()
        try:
            with self._guard:
                if self._file is None:
                    self.root.mkdir(parents=True, exist_ok=True)
                    self._file = FileIO(self._own, "xb")
                written = self._file.write(line)
                start, self._written = self._written, self._written + written
        except OSError as error:
            raise self._unkept(error.strerror or str(error)) from error
        if written < len(line):
            raise self._unkept("the disk is full")
        places[address] = Place(self._own, start, len(line))

    def _places(self) -> dict[str, Place]:
        """Return where each reply is, from the files that are there when it is first asked."""
        with self._guard:
            if self._index is None:
                self._index = self._scanned()
            return self._index

    def _scanned(self) -> dict[str, Place]:
        """Return the place of every reply in the files; the last of an address counts."""
        found: dict[str, Place] = {}
        try:
            # In the order they were written, so that the last is the newest.
            files = sorted(self.root.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
            for path in files:
                found.update(_lines(path))
        except OSError as error:
            raise HarnessError(
                f"Cannot read the replies in {self.root}: {error}; make them readable, or set "
                "HARNESS_WORK to another folder."
            ) from error
        return found

    def _unkept(self, reason: str) -> HarnessError:
        return HarnessError(
            f"Cannot keep a reply in {self.root}: {reason}; make room or set HARNESS_WORK to a "
            "folder that can be written."
        )


def _lines(path: Path) -> Iterator[tuple[str, Place]]:
    """Yield the address and the place of every line of a file that looks whole."""
    start = 0
    with path.open("rb") as file:
        for line in file:
            if line.startswith(_HEAD) and line.endswith(b"}\n"):
                yield line[_ADDRESS].decode("ascii", "replace"), Place(path, start, len(line))
            start += len(line)
