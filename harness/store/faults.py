"""Storage faults in one sentence: what the operating system said, and what to do about it.

A full disk or a missing permission is no fault of the code, so its traceback helps nobody. Some
libraries report a full disk through exceptions of their own (safetensors, torch); those are
recognised by the operating system's words.
"""

from __future__ import annotations

import errno
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


class StoreError(HarnessError):
    """An entry of the store, or the place it lies in, cannot be used."""


class BrokenEntry(StoreError):
    """An entry of the store that is not what was written."""


@contextmanager
def explained(doing: str, root: Path) -> Iterator[None]:
    """Turn storage faults inside the block into a sentence; let everything else pass.

    Args:
        doing: What the block does, for the sentence: "storing 'seed 0 · train'".
        root: The store's folder, named where the fault itself names no file.

    Raises:
        StoreError: The disk is full, or a file may not be read or written.
    """
    try:
        yield
    except Exception as error:
        sentence = _sentence(error, doing, root)
        if sentence is None:
            raise
        raise StoreError(sentence) from error


def _sentence(error: Exception, doing: str, root: Path) -> str | None:
    """Return the sentence for a storage fault, None for any other exception."""
    if isinstance(error, HarnessError):
        return None
    number = error.errno if isinstance(error, OSError) else None
    if number in _DENIED and isinstance(error, OSError):
        return (
            f"{_DENIED[number]} on {error.filename or root} while {doing}: "
            "make it readable and writable, or choose another folder with HARNESS_WORK"
        )
    if number not in _FULL and "No space left on device" in str(error):
        number = errno.ENOSPC
    if number in _FULL:
        return (
            f"{_FULL[number]} while {doing} in {root}: "
            "free some space and run the same command again, nothing finished is lost"
        )
    return None
