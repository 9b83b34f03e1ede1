"""File digests: what an entry's files were when it was written, and whether they still are.

Verifying reads every byte, so each process remembers what it has verified by path, size and time
of modification, and reads a file again only when one of these has changed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TypedDict

from harness.store.faults import StoreError


class FileEntry(TypedDict):
    """One output file: its sha256 as 64 hexadecimal digits and its size in bytes."""

    sha256: str
    bytes: int


def seal_files(folder: Path) -> dict[str, FileEntry]:
    """Return the digest of every file under a folder, having flushed each to the disk.

    Keys are paths relative to the folder with forward slashes, sorted.

    Raises:
        StoreError: Something in the folder is neither a plain file nor a folder.
    """
    entries: dict[str, FileEntry] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"the output {path.name} is not a plain file: a stage writes files")
        if path.is_dir():
            flush_folder(path)
            continue
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        entries[path.relative_to(folder).as_posix()] = {"sha256": sha256, "bytes": size}
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
        self._verified: dict[Path, tuple[int, int, str]] = {}

    def fault(self, path: Path, entry: FileEntry) -> str | None:
        """Return what is wrong with a file, or None where it is what it was.

        Args:
            path: The file as it is now.
            entry: The file as it was written.
        """
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return "is missing"
        if found.st_size != entry["bytes"]:
            return f"has {found.st_size} bytes instead of {entry['bytes']}"
        key = (found.st_mtime_ns, found.st_size, entry["sha256"])
        if self._verified.get(path) != key:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
                    return "has other content than was written (its digest differs)"
            self._verified[path] = key
        return None
