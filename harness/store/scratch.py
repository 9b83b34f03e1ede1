"""Scratch folders: where an output grows before it is renamed into the store.

A scratch folder belongs to the process that holds the lock beside it. The lock is let go when that
process ends, however it ends, so a folder whose lock is free is a leftover of a process that was
killed, and `sweep` removes it. No process ids or ages are compared: ids are reused and a long
stage is not a dead one. No name is used twice, so here a lock's file goes with the folder, and
whoever removes it holds it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.store.locks import hold

_LOCK = ".lock"


@contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new empty folder that is removed at the end, unless it was renamed away.

    Args:
        parent: Folder of all scratch folders, created where absent.
        name: What the folder's name begins with, for people who look.

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
