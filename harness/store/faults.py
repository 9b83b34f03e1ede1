"""Storage faults in one sentence: what the operating system said, and what to do about it.

A full disk or a missing permission is no fault of the code, so its traceback helps nobody. Some
libraries report a full disk through exceptions of their own (safetensors, torch); those are
recognised by the operating system's words.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import HarnessError

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

    Args:
        doing: What the block does, for the sentence: "storing 'seed 0 · train'".
        root: The store's folder, named where the fault itself names no file.

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

    It is for what died without a word, as a program does that cannot write its own log.

    Args:
        doing: What was being done, for the sentence.
        root: A folder on the disk; it need not exist.
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
