"""File digests: what an entry's files were when it was written, and whether they still are.

Verifying reads every byte, so each process remembers what it has verified by path, size and time
of modification, and reads a file again only when one of these has changed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

from harness.foreign import in_a_line
from harness.store.faults import StoreError


@with_config(ConfigDict(extra="forbid", strict=True))
class FileEntry(TypedDict):
    """One output file: its sha256 as 64 hexadecimal digits and its size in bytes."""

    sha256: Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]
    bytes: Annotated[int, Field(ge=0, lt=2**63)]


def seal_files(folder: Path) -> dict[str, FileEntry]:
    """Return the digest of every file under a folder, having flushed each to the disk.

    Keys are paths relative to the folder with forward slashes, sorted.

    Raises:
        StoreError: Something in the folder is neither a plain file nor a folder.
    """
    entries: dict[str, FileEntry] = {}
    for name, found in sorted(_below(folder).items()):
        if found.is_dir(follow_symlinks=False):
            flush_folder(Path(found.path))
            continue
        if not found.is_file(follow_symlinks=False):
            raise StoreError(f"the output {found.name} is not a plain file: a stage writes files")
        with Path(found.path).open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        entries[name] = {"sha256": sha256, "bytes": size}
    return entries


def flush_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DigestCache:
    """The files this process has verified, so that each is read once."""

    def __init__(self) -> None:
        self._verified: dict[str, tuple[int, int, int, str]] = {}

    def fault(self, folder: Path, files: Mapping[str, FileEntry], own: str) -> str | None:
        """Return what is wrong with a folder, or None where it is what it was.

        What is in the folder is compared with what was written, never the other way round: a name
        that was made up leads nowhere.

        Args:
            folder: The folder as it is now.
            files: The files that were written, by path relative to the folder.
            own: A file beside them that is not looked at.
        """
        there = {
            name: found
            for name, found in _below(folder).items()
            if name != own and not found.is_dir(follow_symlinks=False)
        }
        for name, file in files.items():
            fault = self._fault(there.pop(name), file) if name in there else "is missing"
            if fault is not None:
                return f"{in_a_line(name, 80)} {fault}"
        for name in sorted(there):
            return f"{in_a_line(name, 80)} was not written there"
        return None

    def _fault(self, found: os.DirEntry[str], written: FileEntry) -> str | None:
        if not found.is_file(follow_symlinks=False):
            return "is not a plain file"
        now = found.stat(follow_symlinks=False)
        if now.st_size != written["bytes"]:
            return f"has {now.st_size} bytes instead of {written['bytes']}"
        # The time of the last change to the file cannot be set back, that to its content can.
        key = (now.st_mtime_ns, now.st_ctime_ns, now.st_size, written["sha256"])
        if self._verified.get(found.path) != key:
            with Path(found.path).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != written["sha256"]:
                    return "has other content than was written (its digest differs)"
            self._verified[found.path] = key
        return None


def _below(folder: Path) -> dict[str, os.DirEntry[str]]:
    """Return all that lies below a folder by relative path; links are not followed."""
    below: dict[str, os.DirEntry[str]] = {}
    folders = [("", os.fspath(folder))]
    while folders:
        prefix, path = folders.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                below[name] = entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append((f"{name}/", entry.path))
    return below
