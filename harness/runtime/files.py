"""Files on which several processes rely: locks, digests, folders that appear whole, full disks.

*Locks.* Of all processes of this machine, one at a time works on a thing. A lock is a file. The
operating system lets it go when the process that holds it ends, however it ends, so nobody waits
for the dead. The file stays when the lock is let go: were it deleted, one process could hold the
file that others still have open, and another a new one.

*Scratch folders*, in which an output grows before it is renamed to its place, belong to the process
that holds the lock beside them. A folder whose lock is free is a leftover of a process that was
killed, and `sweep` removes it. No process ids or ages are compared: ids are reused, and a long
stage is not a dead one. No name is used twice, so here a lock's file goes with the folder.

*Unfinished work* outlives its process. A stage that runs for hours keeps its checkpoints in a
folder under its fingerprint, and the store removes them once the stage's output is whole. One
process at a time holds such a folder.

*Whole files.* `write_whole` replaces a file in one step.

*Digests.* Verifying reads every byte, so each process remembers what it has verified by path, size
and time of modification, and reads a file again only when one of these has changed.

*Storage faults.* A full disk or a missing permission is no fault of the code, so its traceback
helps nobody: `explained` turns it into one sentence. Some libraries report a full disk through
exceptions of their own (safetensors, torch), recognised by the operating system's words.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout
from pydantic import ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

from harness.errors import HarnessError
from harness.foreign import in_a_line

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_DENIED = {
    errno.EACCES: "permission was denied",
    errno.EPERM: "permission was denied",
    errno.EROFS: "the file system is read-only",
}


_LEAST_BYTES = 64 * 1024
"""With less than this free, whatever went wrong went wrong because nothing could be written."""


class StoreError(HarnessError):
    """An entry of the store, or the place it lies in, cannot be used."""


class DiskFullError(StoreError):
    """Nothing more can be written: the disk is full, or the quota is used up."""


class BrokenEntry(StoreError):
    """An entry of the store that is not what was written."""


@contextmanager
def explained(doing: str, root: Path) -> Iterator[None]:
    """Turn storage faults inside the block into a sentence; let everything else pass.

    The sentence says what was being done, and names `root` where the fault itself names no file.

    Raises:
        DiskFullError: The disk is full.
        StoreError: A file may not be read or written.
    """
    try:
        yield
    except Exception as error:
        fault = _fault(error, doing, root)
        if fault is None:
            raise
        raise fault from error


def disk_full(doing: str, root: Path) -> DiskFullError | None:
    """Return the error for a disk on which nothing more can be written, None where there is room.

    It is for what died without a word, as a program does that cannot write its own log. `root` is
    a folder on the disk; it need not exist.
    """
    disk = os.statvfs(next(folder for folder in (root, *root.parents) if folder.exists()))
    # What is kept for the superuser is free to no one else.
    blocks = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    no_files = disk.f_files > 0 and disk.f_ffree == 0
    if blocks * disk.f_frsize >= _LEAST_BYTES and not no_files:
        return None
    return _full(errno.ENOSPC, doing, root)


def _fault(error: Exception, doing: str, root: Path) -> StoreError | None:
    """Return the error that explains a storage fault, None for any other exception."""
    if isinstance(error, HarnessError):
        return None
    number = error.errno if isinstance(error, OSError) else None
    if number in _DENIED and isinstance(error, OSError):
        return StoreError(
            f"{_DENIED[number]} on {error.filename or root} while {doing}: "
            "make it readable and writable, or choose another folder with HARNESS_WORK"
        )
    if number not in _FULL and "No space left on device" in str(error):
        number = errno.ENOSPC
    if number in _FULL:
        return _full(number, doing, root)
    return None


def _full(number: int, doing: str, root: Path) -> DiskFullError:
    return DiskFullError(
        f"{_FULL[number]} while {doing} in {root}: "
        "free some space and run the same command again, nothing finished is lost"
    )


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


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file as 64 hexadecimal digits.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees all of it, or what was there before; make its folder.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


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

        What is in the folder is compared with the files that were written, by relative path, never
        the other way round: a name that was made up leads nowhere. The file `own` is not looked at.
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
            if sha256_of(Path(found.path)) != written["sha256"]:
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


_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def hold(path: Path, *, wait: bool = True, again: bool = False) -> Iterator[bool]:
    """Hold a lock while the block lasts; yield whether it is held.

    Unless it is told not to wait, the block is not entered while another process holds the lock.
    With `again` a process that holds it by `again` may hold it once more.

    Raises:
        StoreError: The file system has no locks.
        OSError: The file cannot be created or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o644))  # `FileLock` would try for ever
    lock = FileLock(path, is_singleton=again, thread_local=False)
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        pass
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise StoreError(
            f"the file system of {path.parent} has no file locks: choose a folder on another with "
            "HARNESS_WORK"
        ) from error
    try:
        yield lock.is_locked
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Return whether any process holds a lock."""
    if not path.exists():
        return False
    with hold(path, wait=False) as mine:
        return not mine


_LOCK = ".lock"


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new empty folder that is removed at the end, unless it was renamed away.

    Its name begins with `name`, for people who look.

    Raises:
        StoreError: The file system has no locks.
    """
    folder = parent / f"{name}-{uuid.uuid4().hex[:12]}"
    with hold(_lock_of(folder)):
        try:
            folder.mkdir()
            yield folder
        finally:
            # What cannot be removed now is invisible to readers, and a later sweep tries again.
            _remove(folder)


def sweep(parent: Path) -> int:
    """Remove the scratch folders of processes that have ended; return how many there were."""
    return sum(map(_sweep_one, parent.glob(f"*{_LOCK}")))


def _sweep_one(lock: Path) -> bool:
    """Remove a scratch folder if no process holds its lock; return whether there was one."""
    folder = lock.with_suffix("")
    with hold(lock, wait=False) as mine:
        found = mine and folder.exists()
        if mine:
            _remove(folder)
    return found


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _lock_of(folder).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")


def lock_of(folder: Path) -> Path:
    """Return the file whose lock says that somebody works in the folder."""
    return folder.parent / ".locks" / folder.name


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Yield the folder, created where absent, once no other process works in it.

    A process that holds it already, be it by its store's claim to the stage, holds it on.

    Raises:
        StoreError: The file system has no locks.
    """
    with hold(lock_of(folder), again=True):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
