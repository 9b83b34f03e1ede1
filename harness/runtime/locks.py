"""Locks: of all processes that share a folder, one at a time works on a thing.

A lock is the operating system's (`flock` on a file that stays). It ends with its process, however
that ends: nobody waits for the dead. On a shared folder it is the file server's, and reaches every
machine that mounts it: NFS has such locks, Lustre where it is mounted with `flock`. The server ends
those of a machine that is gone after a minute or two.

A lock saves work, it guards nothing: outputs are published in one step, and the first one stands.

*Scratch folders*, in which an output grows before it is renamed to its place, belong to the process
that holds the lock beside them. A folder whose lock is free is a leftover of a process that was
killed, and `sweep` removes it. No name is used twice, so here a lock's file goes with the folder.

*Unfinished work* outlives its process. A stage that runs for hours keeps its checkpoints in a
folder under its fingerprint, and the store removes them once the stage's output is whole. One
process at a time holds such a folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.runtime.files import StoreError

_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
_BUSY = {errno.EAGAIN, errno.EACCES}
_PAUSES_S = (0.001, 0.05)
"""Between two looks of whoever waits for a lock: the first, and the longest."""

_mutex = threading.Lock()
_again: Counter[Path] = Counter()
"""How often this process holds each of the locks that it may hold again."""


@contextmanager
def hold(path: Path, *, wait: bool = True, again: bool = False) -> Iterator[bool]:
    """Hold a lock while the block lasts; yield whether it is held.

    Unless it is told not to wait, the block is not entered while another process holds it. With
    `again` a process that holds it by `again` may hold it once more.

    Raises:
        StoreError: The file system has no locks.
        OSError: The file cannot be created or written.
    """
    if again:
        with _mutex:
            shared = _again[path] > 0
            _again[path] += shared
        if shared:
            try:
                yield True
            finally:
                with _mutex:
                    _again[path] -= 1
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _acquired(path, wait)
    if lock is None:
        yield False
        return
    _again[path] += again
    try:
        yield True
    finally:
        _again[path] -= again
        os.close(lock)


def is_held(path: Path) -> bool:
    """Return whether any process, this one too, holds a lock."""
    if not path.exists():
        return False
    lock = _locked(path)
    if lock is None:
        return True
    os.close(lock)
    return False


def _acquired(path: Path, wait: bool) -> int | None:
    pause, longest = _PAUSES_S
    while (lock := _locked(path)) is None and wait:
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, longest)
    return lock


def _locked(path: Path) -> int | None:
    """Lock a file, created where absent; return its descriptor, None if it is taken."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno in _BUSY:
            return None
        if error.errno in _NO_LOCKS:
            raise StoreError(
                f"the file system of {path.parent} has no file locks: choose a folder on another "
                "with HARNESS_WORK"
            ) from error
        raise
    return lock


_LOCK = ".lock"


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new empty folder that is removed at the end, unless it was renamed away.

    Its name begins with `name`, for people who look.
    """
    folder = parent / f"{name}-{uuid.uuid4().hex[:12]}"
    with hold(_beside(folder)):
        try:
            folder.mkdir()
            yield folder
        finally:
            # What cannot be removed now is invisible to readers, and a later sweep tries again.
            _remove(folder)


def sweep(parent: Path) -> int:
    """Remove the scratch folders of processes that have ended; return how many there were."""
    removed = 0
    for lock in sorted(parent.glob(f"*{_LOCK}")):
        with hold(lock, wait=False) as mine:
            if mine:
                removed += lock.with_suffix("").exists()
                _remove(lock.with_suffix(""))
    return removed


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _beside(folder).unlink(missing_ok=True)


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_LOCK}")


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
