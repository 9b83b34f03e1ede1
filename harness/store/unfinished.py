"""Unfinished work: a folder that outlives the process, so that a killed stage can go on.

What a stage writes to its output is lost when it fails. A stage that runs for hours keeps its
checkpoints here instead, under its fingerprint, and the store removes them once its output is
whole. One process at a time works in the folder: it holds the lock that belongs to it
(`harness.store.locks`), and others wait. Processes that were started to help it can see that it is
gone (`abandoned`), also when another has taken its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.store.locks import hold, holder


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


def held_by(folder: Path) -> str:
    """Return the signature of whoever holds the folder; empty where nobody does."""
    return holder(lock_of(folder)) or ""


def abandoned(folder: Path, by: str) -> bool:
    """Return whether who held the folder by a signature holds it no more."""
    return holder(lock_of(folder)) != by
