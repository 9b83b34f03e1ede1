"""Locks: of all processes of this machine, one at a time works on a thing.

A lock is a file. The operating system lets it go when that process
ends, however it ends, so nobody waits for the dead. The file stays when it is let go: were it
deleted, one process could hold the file that others still have open, and another a new one.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from harness.store.faults import StoreError

_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def hold(path: Path, *, wait: bool = True, again: bool = False) -> Iterator[bool]:
    """Hold a lock while the block lasts; yield whether it is held.

    Args:
        path: The lock's file; it is created where absent, with its folder.
        wait: Wait as long as whoever holds it lives and keeps it; the block is not entered before.
        again: Let a process that holds the lock by `again` hold it once more, and sign the file.

    Raises:
        StoreError: The file system has no locks.
        OSError: The file cannot be created or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(
        path, is_singleton=again, thread_local=False, on_acquired=_sign if again else None
    )
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


def holder(path: Path) -> str | None:
    """Return the signature of whoever holds a lock, None where nobody does.

    Each time a lock is taken by `again` its signature is another one.
    """
    if not path.exists():
        return None
    try:
        with FileLock(path, blocking=False):
            return None
    except Timeout:
        return path.read_text(encoding="utf-8")


def _sign(descriptor: int) -> None:
    """Write a new signature over the one before, which is as long."""
    os.pwrite(descriptor, uuid.uuid4().hex.encode(), 0)
