"""Files on which several processes rely: digests, files that appear whole, locks, full disks.

*Digests.* Verifying reads every byte, so each process remembers what it has verified by path, size
and time of modification, and reads a file again only when one of these has changed.

*Locks.* Of all processes that share a folder, one at a time works on a thing. A lock is the
operating system's (`flock` on a file that stays), so it ends with its process, however that ends.
On a shared folder it is the file server's and reaches every machine that mounts it: NFS has such
locks, Lustre where it is mounted with `flock`. The server ends those of a machine that is gone
after a minute or two.

*Storage faults.* A full disk or a missing permission is no fault of the code, so its traceback
helps nobody: `explained` turns it into one sentence. Some libraries report a full disk through
exceptions of their own (safetensors, torch), recognised by the operating system's words.
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
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from harness.errors import HarnessError
from harness.foreign import in_a_line

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)

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
    """Return the error for a disk on which nothing more can be written, None where there is room.

    For programs that died silently, as one does that cannot write its own log. `root` is a folder
    on the disk; it need not exist.
    """
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
"""The locks that this process holds and may hold again."""


@contextmanager
def hold(path: Path, *, wait: bool = True, again: bool = False) -> Iterator[bool]:
    """Hold a lock while the block lasts; yield whether it is held.

    Unless it is told not to wait, the block is not entered while another process holds it. With
    `again`, a process that holds it by `again` may do so once more, inside that block.
    """
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
            if again:
                _MINE.discard(path)


def is_held(path: Path) -> bool:
    """Return whether any process, this one too, holds a lock."""
    if not path.exists():
        return False
    with hold(path, wait=False) as mine:
        return not mine


def lock_of(folder: Path) -> Path:
    """Return the file whose lock says that somebody works in the folder."""
    return folder.parent / ".locks" / folder.name


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Yield the folder, created where absent, once no other process works in it.

    A process that holds it already, be it by its store's claim to the stage, holds it on.
    """
    with hold(lock_of(folder), again=True):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


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
    for name, found in sorted(_below(str(folder)).items()):
        if found.is_dir(follow_symlinks=False):
            flush_folder(Path(found.path))
            continue
        if not found.is_file(follow_symlinks=False):
            raise StoreError(f"the output {found.name} is not a plain file: a stage writes files")
        with open(found.path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            entries[name] = {"sha256": sha256, "bytes": os.fstat(file.fileno()).st_size}
    return entries


def sha256_of(path: Path | str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dumps(value: object) -> str:
    """Return JSON for people and programs: indented, every float with all its digits."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees all of it, or what was there before; make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Containers that share a folder have the same process numbers.
    draft = path.with_name(f".{uuid.uuid4().hex}.part")
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
    """The files this process has verified, so that each is read once.

    Paths are texts here: a store has a hundred thousand, and making others of them would take as
    long as reading them.
    """

    def __init__(self) -> None:
        self._verified: dict[str, tuple[int, int, int, str]] = {}

    def fault(
        self, folder: str, files: Mapping[str, FileEntry], own: str, dropped: Collection[str]
    ) -> str | None:
        """Return what is wrong with a folder, or None where it is what it was.

        What is in the folder is compared with the files that were written, by relative path, never
        the other way round: a name that was made up leads nowhere. The file `own` is not looked at;
        those that were dropped may be missing.
        """
        there = {
            name
            for name, found in _below(folder).items()
            if name != own and not found.is_dir(follow_symlinks=False)
        }
        for name, file in files.items():
            if name in there:
                if (fault := self.file_fault(f"{folder}/{name}", name, file)) is not None:
                    return fault
            elif name not in dropped:
                return f"{in_a_line(name, 80)} is missing"
        strange = min(there - files.keys(), default=None)
        return None if strange is None else f"{in_a_line(strange, 80)} was not written there"

    def file_fault(self, path: str, name: str, written: FileEntry) -> str | None:
        """Return what is wrong with one file, named as it was written, or None."""
        shown = in_a_line(name, 80)
        try:
            now = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return f"{shown} is missing"
        if not stat.S_ISREG(now.st_mode):
            return f"{shown} is not a plain file"
        if now.st_size != written["bytes"]:
            return f"{shown} has {now.st_size} bytes instead of {written['bytes']}"
        # The time of the last change to the file cannot be set back, that to its content can.
        key = (now.st_mtime_ns, now.st_ctime_ns, now.st_size, written["sha256"])
        if self._verified.get(path) != key:
            if sha256_of(path) != written["sha256"]:
                return f"{shown} has other content than was written (its digest differs)"
            self._verified[path] = key
        return None


def _below(folder: str) -> dict[str, os.DirEntry[str]]:
    """Return all that lies below a folder by relative path; links are not followed."""
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
