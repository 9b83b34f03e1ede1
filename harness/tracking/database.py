"""Where MLflow keeps what we write, and what happens when it cannot.

By default it is a SQLite database in the work folder, and a tracking server or another database
where `MLFLOW_TRACKING_URI` names one. Several processes that create one database at once break
it, so a SQLite database is created under a lock, as a draft that is renamed when it is complete.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.quiet import silence
from harness.runtime.files import hold
from harness.tracking.patience import TrackingError, within
from harness.tracking.secrets import shown, without_secrets

if TYPE_CHECKING:
    from harness.tracking.server import Server

_QUIET = {
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A server that is away must not hold a run up: one more try at once, then we do without.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "PGCONNECT_TIMEOUT": "10",
}

_OPEN_S = 45.0
"""Seconds until a server or database that does not answer is given up; creating one takes ten."""

_USER_VERSION_AT = 60
"""Where a SQLite file keeps the number that is free for applications to use."""


def quiet() -> None:
    """Turn off MLflow's telemetry, chatter and long waits; called before it is imported."""
    silence()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)


def default_uri(work_dir: Path) -> str:
    """Return the tracking URI of the default database."""
    return f"sqlite:///{work_dir.resolve() / 'mlflow.db'}"


def chosen_uri(work_dir: Path, uri: str | None = None) -> str:
    """Return the given tracking URI, else `MLFLOW_TRACKING_URI`, else the default database's."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(work_dir)


def database_path(uri: str) -> Path | None:
    """Return the file of a SQLite tracking URI; None for any other."""
    found = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    return Path(found[1]).resolve() if found else None


def artifacts_path(database: Path) -> Path:
    """Return where artifacts of a SQLite database lie."""
    return database.parent / "mlartifacts"


@contextmanager
def write_lock(work_dir: Path, uri: str) -> Iterator[None]:
    """Let one process write at a time, or two would create the same run.

    A SQLite database has one lock for all work folders. What writes to a server, and is not of
    this work folder, is not kept out; `Server` bears with it.
    """
    database = database_path(uri)
    path = work_dir / "tracking" / "write.lock" if database is None else _lock_of(database)
    with hold(path):
        yield


def folder_id(work_dir: Path) -> str:
    """Return the number of a work folder, which it gets when it is first asked for."""
    path = work_dir / "tracking" / "id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"id.{secrets.token_hex(8)}")
        draft.write_text(secrets.token_hex(8), encoding="ascii")
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text(encoding="ascii")


@contextmanager
def reached(uri: str, *more: type[Exception]) -> Iterator[None]:
    """Turn MLflow's errors inside the block into a sentence.

    Args:
        uri: Tracking URI.
        *more: Other errors that are the server's or the URI's fault inside this block.

    Raises:
        TrackingError: MLflow cannot be reached, or refuses what is written.
    """
    quiet()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError, *more) as error:
        what = without_secrets(" ".join(str(error).split()), uri)
        if isinstance(error, ImportError):
            what = f"its driver is not installed: {what}"
        raise TrackingError(
            f"MLflow at {shown(uri)} cannot be written ({what[:300]}): the results are safe in the "
            "store, and `harness sync` brings MLflow up to date when it can be reached"
        ) from error


def open_server(uri: str, work_dir: Path) -> Server:
    """Return the tracking server of a URI; a SQLite database is created where absent.

    Args:
        uri: Tracking URI.
        work_dir: The work folder that writes.

    Raises:
        TrackingError: It cannot be reached.
    """
    return within(_OPEN_S, uri, lambda: _open(uri, work_dir))


def _open(uri: str, work_dir: Path) -> Server:
    create_database(uri)
    path = database_path(uri)
    # A URI is taken apart by whoever comes first: a driver that is missing or a port that is no
    # number are found out here.
    with reached(uri, ImportError, ValueError):
        from harness.tracking.server import Server

        _probe(uri)
        return Server(uri, artifacts_path(path) if path else None, folder_id(work_dir))


def create_database(uri: str) -> None:
    """Create a SQLite database where it is absent; safe to call from any number of processes.

    Raises:
        TrackingError: Its folder cannot be written.
    """
    final = database_path(uri)
    if final is None or final.exists():
        return
    with reached(uri):
        final.parent.mkdir(parents=True, exist_ok=True)
        with hold(_lock_of(final)):
            if not final.exists():
                _create(final)


def _lock_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.lock")


def database_id(uri: str) -> int | None:
    """Return the number a SQLite database got when we created it; None where there is none."""
    path = database_path(uri)
    if path is None or not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(_USER_VERSION_AT)
        return int.from_bytes(file.read(4), "big")


def _create(final: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    draft = final.with_name(f"{final.name}.draft")
    draft.unlink(missing_ok=True)
    root = artifacts_path(final).as_uri()
    created = SqlAlchemyStore(f"sqlite:///{draft}", root)  # type: ignore[no-untyped-call]
    created.engine.dispose()
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute(f"PRAGMA user_version = {secrets.randbits(31)}")
    os.replace(draft, final)


def _probe(uri: str) -> None:
    """Connect to a database once, because MLflow would try ten times and say so each time."""
    import sqlalchemy
    from mlflow.store.db.db_types import DATABASE_ENGINES

    if re.split(r"[+:]", uri, maxsplit=1)[0] in DATABASE_ENGINES:
        engine = sqlalchemy.create_engine(uri)
        try:
            sqlalchemy.inspect(engine).get_table_names()
        finally:
            engine.dispose()
