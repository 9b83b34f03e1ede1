"""Unfinished work: a folder that outlives the process, so that a killed stage can go on.

What a stage writes to its output is lost when it fails. A stage that runs for hours keeps its
checkpoints here instead, under its fingerprint, and the store removes them once its output is
whole. One process at a time may work in the folder: it holds the lock on the file beside it, which
the operating system releases when the process ends, however it ends. So processes that were
started to help it can see that it is gone (`abandoned`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.store.faults import StoreError

_PATIENCE_S = 5.0
"""A helper that looks whether the lock is free holds it for an instant itself."""


def lock_of(folder: Path) -> Path:
    """Return the file whose lock says that somebody works in the folder."""
    return Path(f"{folder}.lock")


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """Yield the folder, created where absent, and keep other processes out of it meanwhile.

    Raises:
        StoreError: another living process works in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock_of(folder), os.O_CREAT | os.O_RDWR, 0o644)
    try:
        if not _locked(descriptor, _PATIENCE_S):
            raise StoreError(
                f"another process is working in {folder}: let it finish, or stop it and run the "
                "same command again"
            )
        yield folder
    finally:
        os.close(descriptor)


def abandoned(folder: Path) -> bool:
    """Return whether no process holds the folder any more."""
    try:
        descriptor = os.open(lock_of(folder), os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        return _locked(descriptor, 0.0)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove the folder, which nobody works in, and its lock, if they are there."""
    shutil.rmtree(folder, ignore_errors=True)
    lock_of(folder).unlink(missing_ok=True)


def _locked(descriptor: int, patience_s: float) -> bool:
    """Lock a file for this process alone; return whether that was possible in time."""
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
        else:
            return True
