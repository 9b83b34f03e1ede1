"""Files shared by several processes: digests, atomic writes, locks, storage errors.

Locks are the operating system's (`flock` on a file that is never deleted), so a lock ends with its
process. NFS supports this, and Lustre if mounted with `flock`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from harness.errors import HarnessError
from harness.foreign import in_a_line

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)

_LEAST_BYTES = 64 * 1024
"""With less than this free, any failure is attributed to the full disk."""


class StoreError(HarnessError):
    """A store entry, or the folder that holds it, is unusable."""


class DiskFullError(StoreError):
    """The disk is full, or the quota is used up."""


class BrokenEntry(StoreError):
    """A store entry differs from what was written."""


@contextmanager
def explained(doing: str, root: Path) -> Iterator[None]:
    """Turn storage errors inside the block into one sentence; let everything else through."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number not in _FULL and "No space left on device" in str(error):
            number = errno.ENOSPC
        if number in _FULL:
            raise _full(_FULL[number], doing, root) from error
        if number in _DENIED and isinstance(error, OSError):
            raise StoreError(
                f"{os.strerror(number).lower()}: {error.filename or root}, while {doing}; make it "
                "readable and writable, or choose another folder with HARNESS_WORK"
            ) from error
        raise


def disk_full(doing: str, root: Path) -> DiskFullError | None:
    """Return an error if the disk is full, for programs that cannot write their own log."""
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    if shutil.disk_usage(there).free >= _LEAST_BYTES:
        return None
    return _full(_FULL[errno.ENOSPC], doing, root)


def _full(what: str, doing: str, root: Path) -> DiskFullError:
    return DiskFullError(
        f"{what} while {doing} in {root}: "
        "free some space and run the same command again, nothing finished is lost"
    )


_MINE: set[Path] = set()
"""Reentrant locks that this process holds."""


@contextmanager
def hold(path: Path, *, wait: bool = True, again: bool = False) -> Iterator[bool]:
    """Hold a lock for the block, `again` within this process; yield whether it was acquired."""
    if again and path in _MINE:
        yield True
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        try:
            _MINE.update([path] if again else [])
            yield True
        finally:
            _MINE.discard(path)


def is_held(path: Path) -> bool:
    """Return whether any process, including this one, holds a lock."""
    if not path.exists():
        return False
    with hold(path, wait=False) as mine:
        return not mine


def lock_of(folder: Path) -> Path:
    return folder.parent / ".locks" / folder.name


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Yield the folder, created if absent, once no other process works in it."""
    with hold(lock_of(folder), again=True):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def make_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return a folder; if it is absent, `make` first makes it, at the path that it is given.

    What a killed process left behind there is removed by the next one.
    """
    draft = folder.with_name(f"{folder.name}.part")
    if not folder.exists():
        with hold(lock_of(folder)):
            shutil.rmtree(draft, ignore_errors=True)
            try:
                if not folder.exists():
                    make(draft)
                    draft.rename(folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return folder


class FileEntry(TypedDict):
    """An output file's sha256 (64 hex digits) and size in bytes."""

    sha256: str
    bytes: int


def seal_files(folder: Path) -> dict[str, FileEntry]:
    """Flush every file under a folder to disk; return digests and sizes by relative path."""
    entries: dict[str, FileEntry] = {}
    for name, found in sorted(_below(str(folder)).items()):
        if found.is_dir(follow_symlinks=False):
            flush_folder(Path(found.path))
            continue
        if not found.is_file(follow_symlinks=False):
            raise StoreError(f"the output {found.name} is not a regular file: a stage writes files")
        with open(found.path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            entries[name] = {"sha256": sha256, "bytes": os.fstat(file.fileno()).st_size}
    return entries


def sha256_of(path: Path | str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dumps(value: object) -> str:
    """Return indented JSON, floats at full precision."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically, creating its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process ID: containers that share a folder may have the same ones.
    draft = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        draft.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def flush_folder(folder: Path) -> None:
    """Make a folder's entries durable (fsync)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class DigestCache:
    """The files this process has verified, by path, size and times, so that each is read once."""

    def __init__(self) -> None:
        self._verified: dict[str, tuple[int, int, int, str]] = {}

    def fault(self, folder: str, files: Mapping[str, FileEntry], own: str) -> str | None:
        """Return what is wrong with a folder, or None if it is unchanged."""
        there = {
            name
            for name, found in _below(folder).items()
            if name != own and not found.is_dir(follow_symlinks=False)
        }
        for name, file in files.items():
            if name in there:
                if (fault := self.file_fault(f"{folder}/{name}", name, file)) is not None:
                    return fault
            else:
                return f"{in_a_line(name, 80)} is missing"
        strange = min(there - files.keys(), default=None)
        return None if strange is None else f"{in_a_line(strange, 80)} was not written there"

    def file_fault(self, path: str, name: str, written: FileEntry) -> str | None:
        """Return what is wrong with the file at `path`, called `name` in the message, or None."""
        shown = in_a_line(name, 80)
        try:
            now = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return f"{shown} is missing"
        if not stat.S_ISREG(now.st_mode):
            return f"{shown} is not a regular file"
        if now.st_size != written["bytes"]:
            return f"{shown} has {now.st_size} bytes instead of {written['bytes']}"
        # ctime cannot be set back, mtime can.
        key = (now.st_mtime_ns, now.st_ctime_ns, now.st_size, written["sha256"])
        if self._verified.get(path) != key:
            if sha256_of(path) != written["sha256"]:
                return f"{shown} has other content than was written (its digest differs)"
            self._verified[path] = key
        return None


def _below(folder: str) -> dict[str, os.DirEntry[str]]:
    """Return everything below a folder by relative path, without following links."""
    below: dict[str, os.DirEntry[str]] = {}
    folders = [("", folder)]
    while folders:
        prefix, path = folders.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                below[name] = entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append((f"{name}/", entry.path))
    return below
