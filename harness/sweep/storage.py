"""Where a sweep's trials are kept: a journal file in the work folder, or any Optuna storage.

Several processes that create one storage at once break it, so it is created under a lock. The
journal's own lock is one that the operating system releases when its holder dies; Optuna's would
be waited for. A line that a killed process did not finish is cut off before the file is used.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from harness.errors import UserError
from harness.foreign import read_plain
from harness.runtime.files import explained
from harness.tracking.connection import shown, without_secrets

SQLITE_WAIT_S = 60
"""Seconds a writer waits for another one's transaction."""

_JOURNAL = b'{"op_code":'
"""How a journal of Optuna begins."""

optuna.logging.set_verbosity(optuna.logging.ERROR)


def sweeps_dir(work_dir: Path) -> Path:
    """Return the folder of journals, locks and working processes' marks."""
    return work_dir / "sweeps"


def default_storage(work_dir: Path, name: str) -> str:
    """Return the journal file of a sweep."""
    return str(sweeps_dir(work_dir) / f"{name}.log")


@contextmanager
def sweep_lock(work_dir: Path, name: str) -> Iterator[None]:
    """Let one process of this work folder create storages and take trials of a sweep at a time."""
    folder = sweeps_dir(work_dir)
    with explained(f"locking the sweep `{name}`", folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{name}.lock").open("a")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def open_storage(where: str) -> BaseStorage:
    """Return a storage, created where absent; call it under the sweep's lock.

    Args:
        where: An Optuna storage URL, or the path of a journal file.

    Raises:
        UserError: It cannot be used, be it unreachable, misspelt or without its driver.
    """
    try:
        if "://" not in where:
            return _journal(Path(where))
        return RDBStorage(where, engine_kwargs=_engine_settings(where))
    except (SQLAlchemyError, ImportError, RuntimeError, OSError, ValueError, LookupError) as error:
        raise UserError(unusable(where, error)) from error


def is_there(where: str) -> bool:
    """Return whether a storage exists already, as far as a file shows; a server is asked later."""
    if "://" not in where:
        return Path(where).exists()
    try:
        url = make_url(where)
    except ArgumentError:
        return True
    in_file = url.get_backend_name() == "sqlite" and url.database
    return Path(str(url.database)).exists() if in_file else True


def unusable(where: str, error: Exception) -> str:
    """Return the sentence for a storage that cannot be used."""
    what = without_secrets(" ".join(str(error).split()), where)
    return (
        f"the storage {shown(where)} cannot be used ({what[:200]}): correct `--storage`, or leave "
        "it out for a file in the work folder"
    )


def _engine_settings(url: str) -> dict[str, object]:
    return {"connect_args": {"timeout": SQLITE_WAIT_S}} if url.startswith("sqlite") else {}


def _journal(path: Path) -> JournalStorage:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _FileLock(path.with_name(f"{path.name}.lock"))
    lock.acquire()
    try:
        _cut_off_unfinished(path)
        backend = JournalFileBackend(str(path), lock_obj=lock)
    finally:
        lock.release()
    return JournalStorage(backend)


def _cut_off_unfinished(path: Path) -> None:
    """Remove a last line without an end, which would make all that follow unreadable.

    Raises:
        ValueError: The file is somebody's other file.
        OSError: It cannot be read.
    """
    if not path.exists():
        return
    whole = read_plain(path)
    if not whole.startswith(_JOURNAL) and not _JOURNAL.startswith(whole):
        raise ValueError("it is no journal of Optuna")
    if whole and not whole.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(whole.rfind(b"\n") + 1)


class _FileLock(BaseJournalFileLock):
    """A lock that ends with its process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = self._path.open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        """Let others have the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None
