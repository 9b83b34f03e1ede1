"""Scratch folders: where an output grows before it is renamed into the store.

A scratch folder belongs to the process that holds the lock on the file beside it. The operating
system releases the lock when that process ends, however it ends, so a folder whose lock is free
is a leftover of a process that was killed, and `sweep` removes it. No process ids or ages are
compared: ids are reused and a long stage is not a dead one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = ".lock"


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new empty folder that is removed at the end, unless it was renamed away.

    Args:
        parent: Folder of all scratch folders, created where absent.
        name: What the folder's name begins with, for people who look.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder, lock, descriptor = _claim(parent, name)
    try:
        folder.mkdir()
        yield folder
    finally:
        # What cannot be removed now is invisible to readers, and a later sweep tries again.
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def sweep(parent: Path) -> int:
    """Remove the scratch folders of processes that have ended; return how many there were."""
    if not parent.is_dir():
        return 0
    swept = sum(_sweep_one(lock) for lock in parent.glob(f"*{_LOCK}"))
    for folder in parent.iterdir():
        if folder.is_dir() and not Path(f"{folder}{_LOCK}").exists():
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
    return swept


def _claim(parent: Path, name: str) -> tuple[Path, Path, int]:
    """Return a free folder path with its lock file and the descriptor that holds the lock."""
    while True:
        folder = parent / f"{name}-{uuid.uuid4().hex[:12]}"
        lock = Path(f"{folder}{_LOCK}")
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if lock.exists():
            return folder, lock, descriptor
        # A sweep took the lock file in the instant before it was locked.
        os.close(descriptor)


def _sweep_one(lock: Path) -> int:
    """Remove one scratch folder if no process holds its lock; return 1 if it was removed."""
    with suppress(FileNotFoundError, BlockingIOError):
        descriptor = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
            return 1
        finally:
            os.close(descriptor)
    return 0
