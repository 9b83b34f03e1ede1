"""One way to reach a tracking server, and a note of what it holds.

By default the server is a SQLite database in the work folder, and a tracking server or another
database where `MLFLOW_TRACKING_URI` names one. A work folder writes to it one process at a time: a
SQLite database is created under that lock too, as a draft that is renamed when complete.

A server may be dead, silent, slow or refuse everything, and a driver may be missing. None of it
may hold up or spoil what was computed: a report, a sweep and an evaluation go on without MLflow
after one warning, and `harness sync` adds what is missing when it can be reached. Nothing that is
said of a server holds the user, the password or the query of its URI.

A note says which records a server had after the last writing, so that whoever finds all of its
records there need not even import MLflow.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, unquote

from harness.errors import HarnessError
from harness.foreign import read_json
from harness.quiet import silence
from harness.runtime.files import hold, write_whole
from harness.tracking.record import Record, TrackingError, sha256

if TYPE_CHECKING:
    from harness.tracking.server import Server

PATIENCE_S = 60.0
"""Seconds that a command which has done its work waits for MLflow."""

_QUIET = {
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A server that is away must not hold a run up: one more try at once, then we do without.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "PGCONNECT_TIMEOUT": "10",
}

_SECRET_VARIABLES = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")

_USER_VERSION_AT = 60
"""Where a SQLite file keeps the number that is free for applications to use."""

_T = TypeVar("_T")


class Connection:
    """A tracking server as one work folder reaches it; nothing is opened before it is needed.

    Without a URI it is `MLFLOW_TRACKING_URI`, else the work folder's own database. `warn` takes
    sentences for the user.
    """

    def __init__(self, work_dir: Path, uri: str | None, warn: Callable[[str], None]) -> None:
        self.uri = chosen_uri(work_dir, uri)
        self.notes = Notes(work_dir, self.uri)
        self._work_dir = work_dir
        self._warn = warn
        self._server: Server | None = None

    @contextmanager
    def writing(self) -> Iterator[Server]:
        """Yield the server while no other process of this work folder, or database, writes to it.

        Raises:
            TrackingError: It cannot be reached, or refuses what is written.
        """
        with reached(self.uri):
            create_database(self.uri)
            with self._lock():
                if self._server is None:
                    self._server = self._open()
                yield self._server

    def attempt(self, work: Callable[[], _T], seconds: float = PATIENCE_S) -> _T | None:
        """Do something with MLflow, in so many seconds; at worst there is a warning, and None."""
        try:
            return within(seconds, self.uri, work)
        except Exception as error:  # noqa: BLE001  nothing depends on MLflow, whatever it is
            self._warn(self.sentence(error))
            return None

    def sentence(self, error: Exception) -> str:
        """Return what to say of an error; the traceback of an unforeseen one goes to a file."""
        if isinstance(error, HarnessError):
            return str(error)
        what = without_secrets(str(error), self.uri)
        path = self._work_dir / "tracking" / "error.log"
        text = "".join(traceback.format_exception(error))
        try:
            write_whole(path, without_secrets(text, self.uri))
        except OSError:
            return f"MLflow tracking has stopped ({what}): `harness sync` tries again"
        return f"MLflow tracking has stopped ({what}): see {path}"

    def _open(self) -> Server:
        # A URI is taken apart by whoever comes first: a driver that is missing or a port that is
        # no number are found out here.
        with reached(self.uri, ImportError, ValueError):
            from harness.tracking.server import Server

            _probe(self.uri)
            path = database_path(self.uri)
            return Server(self.uri, artifacts_path(path) if path else None)

    def _lock(self) -> AbstractContextManager[object]:
        database = database_path(self.uri)
        if database is not None:
            return _alone(_lock_of(database))
        return _alone(self._work_dir / "tracking" / "write.lock")


def _alone(lock: Path) -> AbstractContextManager[object]:
    """Keep other processes out; where nothing can be written there is nothing to keep them from."""
    there = next(path for path in lock.parents if path.exists())
    return hold(lock) if os.access(there, os.W_OK, effective_ids=True) else nullcontext()


def default_uri(work_dir: Path) -> str:
    return f"sqlite:///{work_dir.resolve() / 'mlflow.db'}"


def chosen_uri(work_dir: Path, uri: str | None = None) -> str:
    """Return the given tracking URI, else `MLFLOW_TRACKING_URI`, else the default database's."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(work_dir)


def database_path(uri: str) -> Path | None:
    """Return the file of a SQLite tracking URI; None for any other."""
    found = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    return Path(found[1]).resolve() if found else None


def artifacts_path(database: Path) -> Path:
    return database.parent / "mlartifacts"


def create_database(uri: str) -> None:
    """Create a SQLite database where it is absent; safe to call from any number of processes.

    Raises:
        TrackingError: Its folder cannot be written.
    """
    final = database_path(uri)
    if final is None or final.exists():
        return
    with reached(uri), hold(_lock_of(final)):
        if not final.exists():
            _create(final)


@contextmanager
def reached(uri: str, *more: type[Exception]) -> Iterator[None]:
    """Turn MLflow's errors inside the block, and `more`, into a sentence.

    Raises:
        TrackingError: MLflow cannot be reached, or refuses what is written.
    """
    silence()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
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


def within(seconds: float, uri: str, work: Callable[[], _T]) -> _T:
    """Do something with MLflow, and wait for it no longer than some time.

    What needs longer is left behind in a thread of its own that ends with the process.

    Raises:
        TrackingError: It needs longer.
        Exception: Whatever `work` raises.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  it is raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="mlflow", daemon=True)
    thread.start()
    thread.join(seconds)
    for error in errors:
        raise error
    if not results:
        raise TrackingError(too_slow(uri))
    return results[0]


def too_slow(uri: str) -> str:
    return (
        f"MLflow at {shown(uri)} is too slow to take everything now: `harness sync` adds the rest"
    )


def shown(uri: str) -> str:
    """Return a URI without what may be a secret in it."""
    return without_secrets(uri, uri)


def without_secrets(text: str, uri: str) -> str:
    """Return a text without what may be a secret of a URI: user, password and query.

    What the environment gives MLflow to log in with is a secret as well.
    """
    found = [os.environ.get(name, "") for name in _SECRET_VARIABLES]
    if "://" in uri and database_path(uri) is None:
        place, _, query = uri.partition("://")[2].partition("?")
        user = place.rpartition("@")[0]
        found += [user, user.partition(":")[2], query, *(value for _, value in parse_qsl(query))]
    hidden = {form for secret in found if secret for form in (secret, unquote(secret))}
    for secret in sorted(hidden, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text


def _lock_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.lock")


def _create(final: Path) -> None:
    from mlflow import MlflowClient

    draft = final.with_name(f"{final.name}.draft")
    draft.unlink(missing_ok=True)
    MlflowClient(tracking_uri=f"sqlite:///{draft}").search_experiments(max_results=1)
    with closing(sqlite3.connect(draft)) as connection:
        connection.execute(f"PRAGMA user_version = {secrets.randbits(31)}")
    os.replace(draft, final)


def _probe(uri: str) -> None:
    """Connect to a database once, because MLflow would try ten times and say so each time."""
    import sqlalchemy

    if re.match(r"(postgresql|mysql|sqlite|mssql)\b", uri):
        engine = sqlalchemy.create_engine(uri)
        try:
            sqlalchemy.inspect(engine).get_table_names()
        finally:
            engine.dispose()


class Notes:
    """The note about one tracking server; what others have done to it since is not noticed."""

    def __init__(self, work_dir: Path, uri: str) -> None:
        self._database = database_path(uri)
        self._path = work_dir / "tracking" / f"{sha256(uri)[:16]}.json"

    def covers(self, records: Iterable[Record]) -> bool:
        noted = self._digests()
        return all(noted.get(record.identity) == record.digest for record in records)

    def add(self, records: Iterable[Record]) -> None:
        """Note that the server has some records; without effect where nothing can be written."""
        digests = self._digests() | {record.identity: record.digest for record in records}
        note = {"database": self._database_id(), "digests": digests}
        try:
            write_whole(self._path, f"{json.dumps(note, indent=1)}\n")
        except OSError:
            return

    def _digests(self) -> dict[str, str]:
        """Return the digests of the records the server had, by identity."""
        try:
            note = read_json(self._path.read_bytes())
            return dict(note["digests"]) if note["database"] == self._database_id() else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}

    def _database_id(self) -> int | None:
        """Return the number a SQLite database got when it was created; None where there is none."""
        if self._database is None or not self._database.exists():
            return None
        with self._database.open("rb") as file:
            file.seek(_USER_VERSION_AT)
            return int.from_bytes(file.read(4), "big")
