"""Where MLflow keeps what we write, and what happens when it cannot.

By default it is a SQLite database in the work folder, and a tracking server or another database
where `MLFLOW_TRACKING_URI` names one. Several processes that create one database at once break
it, so ours is created under a lock, in a place of its own, and renamed when it is complete.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from harness.errors import HarnessError
from harness.quiet import silence

if TYPE_CHECKING:
    from harness.tracking.server import Server

_QUIET = {
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A server that is away must not hold a run up: one more try at once, then we do without.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


class TrackingError(HarnessError):
    """MLflow cannot be reached, or refuses what is written."""


def quiet() -> None:
    """Turn off MLflow's telemetry, chatter and long waits; called before it is imported."""
    silence()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def database_path(work_dir: Path) -> Path:
    """Return where the default database lies."""
    return work_dir / "mlflow.db"


def artifacts_path(work_dir: Path) -> Path:
    """Return where artifacts of the default database lie."""
    return work_dir / "mlartifacts"


def default_uri(work_dir: Path) -> str:
    """Return the tracking URI of the default database."""
    return f"sqlite:///{database_path(work_dir).resolve()}"


def chosen_uri(work_dir: Path, uri: str | None = None) -> str:
    """Return the given tracking URI, else `MLFLOW_TRACKING_URI`, else the default database's."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(work_dir)


def shown(uri: str) -> str:
    """Return a tracking URI without a password in it."""
    return re.sub(r"//[^/@]*@", "//***@", uri)


@contextmanager
def write_lock(work_dir: Path) -> Iterator[None]:
    """Let one process of this work folder write at a time, or two would create the same run."""
    with _lock_file(work_dir, "write") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def live_lock(work_dir: Path, *, shared: bool = False) -> Iterator[bool]:
    """Hold the lock of live tracking, without waiting; yield whether it was got.

    Args:
        work_dir: Folder that runs write to.
        shared: Track live, as others may too. Otherwise, keep live tracking from beginning.
    """
    with _lock_file(work_dir, "live") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _lock_file(work_dir: Path, name: str) -> IO[str]:
    folder = work_dir / "tracking"
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / f"{name}.lock").open("a")


@contextmanager
def reached(uri: str) -> Iterator[None]:
    """Turn MLflow's errors inside the block into a sentence.

    Raises:
        TrackingError: MLflow cannot be reached, or refuses what is written.
    """
    quiet()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        what = shown(" ".join(str(error).split()))
        raise TrackingError(
            f"MLflow at {shown(uri)} cannot be written ({what[:300]}): the results are safe in the "
            "store, and `harness sync` brings MLflow up to date when it can be reached"
        ) from error


def open_server(work_dir: Path, uri: str) -> Server:
    """Return the tracking server of a URI, its default database created where absent.

    Raises:
        TrackingError: It cannot be reached.
    """
    quiet()
    from harness.tracking.server import Server

    own = uri == default_uri(work_dir)
    with reached(uri):
        if own:
            create_database(work_dir)
        return Server(uri, artifacts_path(work_dir) if own else None)


def create_database(work_dir: Path) -> None:
    """Create the default database where it is absent; safe to call from any number of processes.

    Raises:
        TrackingError: The work folder cannot be written.
    """
    final = database_path(work_dir).resolve()
    if final.exists():
        return
    with reached(default_uri(work_dir)), write_lock(work_dir):
        if final.exists():
            return
        draft = work_dir / "tracking" / "draft.db"
        draft.unlink(missing_ok=True)
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        root = artifacts_path(work_dir).resolve().as_uri()
        SqlAlchemyStore(f"sqlite:///{draft.resolve()}", root).engine.dispose()
        with closing(sqlite3.connect(draft)) as connection:
            connection.execute(f"PRAGMA user_version = {secrets.randbits(31)}")
        os.replace(draft, final)


def database_id(work_dir: Path) -> int:
    """Return the number the default database got when it was created; -1 where there is none."""
    path = database_path(work_dir)
    if not path.exists():
        return -1
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
