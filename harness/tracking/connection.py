"""One way to reach a tracking server, and what a work folder knows of runs and of that server.

By default the server is a SQLite database in the work folder, and a tracking server or another
database where `MLFLOW_TRACKING_URI` names one. Several processes that create one database at once
break it, so a SQLite database is created under a lock, as a draft that is renamed when complete.

A server may be dead, silent, slow or refuse everything, and a driver may be missing. None of it
may hold up or spoil what was computed: a report, a sweep and an evaluation go on without MLflow
after one warning, and `harness sync` adds what is missing when it can be reached. Nothing that is
said of a server holds the user, the password or the query of its URI.

A process that computes runs marks them: it writes their identities to a file of its own and holds
the lock on that file as long as it lives, so a mark that nobody holds is that of a process which
has ended, killed or not. What was asked for stays known, in one file: a store cannot tell, since a
run that nobody asked for has finished stages as well, where it shares them. A note says which
records a server had after the last writing, so that whoever finds all of its records there need not
even import MLflow.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import threading
import traceback
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from harness.errors import HarnessError
from harness.foreign import read_json
from harness.quiet import silence
from harness.runtime.files import write_whole
from harness.runtime.locks import hold
from harness.tracking.record import Record, sha256

if TYPE_CHECKING:
    from harness.tracking.server import Server

PATIENCE_S = 60.0
"""Seconds that a command which has done its work waits for MLflow."""

_OPEN_S = 45.0
"""Seconds until a server or database that does not answer is given up; creating one takes ten."""

_QUIET = {
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A server that is away must not hold a run up: one more try at once, then we do without.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "PGCONNECT_TIMEOUT": "10",
}

_SECRET_VARIABLES = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_HIDDEN = "***"
_SHORT = 4
"""Secrets of fewer letters than this are replaced as whole words only, or nothing is readable."""

_USER_VERSION_AT = 60
"""Where a SQLite file keeps the number that is free for applications to use."""

_T = TypeVar("_T")


class TrackingError(HarnessError):
    """MLflow cannot be reached, or refuses what is written."""


class Connection:
    """A tracking server as one work folder reaches it; nothing is opened before it is needed.

    Without a URI it is `MLFLOW_TRACKING_URI`, else the work folder's own database. `warn` takes
    sentences for the user.
    """

    def __init__(self, work_dir: Path, uri: str | None, warn: Callable[[str], None]) -> None:
        self.uri = chosen_uri(work_dir, uri)
        self._work_dir = work_dir
        self._warn = warn
        self._server: Server | None = None

    @contextmanager
    def writing(self) -> Iterator[Server]:
        """Yield the server while no other process of this work folder, or database, writes to it.

        A SQLite database is created where absent.

        Raises:
            TrackingError: It cannot be reached, or refuses what is written.
        """
        server = self.server()
        with reached(self.uri), self._lock():
            yield server

    def server(self) -> Server:
        """Return the server.

        Raises:
            TrackingError: It cannot be reached.
        """
        if self._server is None:
            self._server = within(_OPEN_S, self.uri, self._open)
        return self._server

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

    def too_slow(self) -> str:
        """Return the sentence for a server that takes too long."""
        return _too_slow(self.uri)

    def _open(self) -> Server:
        create_database(self.uri)
        path = database_path(self.uri)
        # A URI is taken apart by whoever comes first: a driver that is missing or a port that is
        # no number are found out here.
        with reached(self.uri, ImportError, ValueError):
            from harness.tracking.server import Server

            _probe(self.uri)
            server = Server(self.uri, artifacts_path(path) if path else None)
            if path is not None:
                with self._lock():
                    moved = server.set_aside_moved()
                if moved:
                    self._warn(
                        f"MLflow's database {path} was made in another folder, where its artifacts "
                        "are: its runs were put away, and `harness sync` writes them anew here"
                    )
            return server

    def is_read_only(self) -> bool:
        """Return whether MLflow is a file that this user may not write."""
        path = database_path(self.uri)
        return path is not None and not can_be_written(path.parent)

    def _lock(self) -> AbstractContextManager[object]:
        database = database_path(self.uri)
        if database is None:
            return _alone(self._work_dir / "tracking" / "write.lock")
        return hold(_lock_of(database))


def can_be_written(folder: Path) -> bool:
    """Return whether this user may write in a folder, which need not be there yet."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return os.access(there, os.W_OK, effective_ids=True)


def _alone(lock: Path) -> AbstractContextManager[object]:
    """Keep other processes out, where anything can be written at all."""
    return hold(lock) if can_be_written(lock.parent) else nullcontext()


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


def database_id(uri: str) -> int | None:
    """Return the number a SQLite database got when we created it; None where there is none."""
    path = database_path(uri)
    if path is None or not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(_USER_VERSION_AT)
        return int.from_bytes(file.read(4), "big")


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
        raise TrackingError(_too_slow(uri))
    return results[0]


def shown(uri: str) -> str:
    """Return a URI without what may be a secret in it."""
    return without_secrets(uri, uri)


def without_secrets(text: str, uri: str) -> str:
    """Return a text without what may be a secret of a URI, whole, in parts and decoded.

    What the environment gives MLflow to log in with is a secret as well.
    """
    for secret in sorted(set(_secrets(uri)), key=len, reverse=True):
        word = re.escape(secret)
        text = re.sub(word if len(secret) >= _SHORT else rf"(?<!\w){word}(?!\w)", _HIDDEN, text)
    return text


def _too_slow(uri: str) -> str:
    return (
        f"MLflow at {shown(uri)} is too slow to take everything now: `harness sync` adds the rest"
    )


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


def _secrets(uri: str) -> Iterator[str]:
    """Yield what must not be shown; too much rather than too little where a URI is malformed."""
    scheme = re.match(r"[^/?#:]+:(//(?!/))?", uri)
    if scheme is None:
        return  # a path
    rest = uri[scheme.end() :]
    user, at, place = rest.rpartition("@") if scheme[1] else ("", "", rest)
    found = [user, user.partition(":")[2]] if at else []
    query = re.split(r"[?#]", place, maxsplit=1)[1:]
    for part in query:
        values = [pair.partition("=")[2] for pair in re.split(r"[&;#]", part)]
        found += [part, *values]
    found += [os.environ.get(name, "") for name in _SECRET_VARIABLES]
    for secret in filter(None, found):
        yield secret
        yield unquote(secret)


_ENDED = "ended.json"


@dataclass(frozen=True)
class Asked:
    """What a work folder knows of runs, by their identities.

    `benchmarks` has those asked for of each run that was ever marked, `computing` the runs that
    something computes now, `ended` the marks of processes that have ended.
    """

    benchmarks: Mapping[str, frozenset[str]]
    computing: frozenset[str]
    ended: tuple[Path, ...]


class Marks:
    """The marks of a work folder. Every method raises OSError where it cannot be written."""

    def __init__(self, work_dir: Path) -> None:
        self._folder = work_dir / "tracking" / "marks"

    def begin(self, asked: Mapping[str, Collection[str]]) -> ExitStack:
        """Mark runs as computed by this process, until what is returned is closed.

        They are given by identity, with the benchmarks asked for of each.
        """
        held = ExitStack()
        with self._alone():
            path = self._folder / f"{uuid.uuid4().hex}.mark"
            _write(path, asked)
            held.enter_context(hold(path))
        return held

    def read(self) -> Asked:
        """Return what is known now."""
        benchmarks: dict[str, frozenset[str]] = {}
        computing: set[str] = set()
        ended: list[Path] = []
        with self._alone():
            for path in sorted(self._folder.glob("*.mark")):
                found = _content(path)
                if self._has_ended(path):
                    ended.append(path)
                else:
                    computing |= found.keys()
                _add(benchmarks, found)
            _add(benchmarks, _content(self._folder / _ENDED))
        return Asked(benchmarks, frozenset(computing), tuple(ended))

    def gather(self, asked: Asked) -> None:
        """Put the marks of processes that have ended into one file, as they were read."""
        if not asked.ended:
            return
        with self._alone():
            known = _content(self._folder / _ENDED)
            left = [path for path in asked.ended if path.exists()]
            for path in left:
                _add(known, _content(path))
            _write(self._folder / _ENDED, known)
            for path in left:
                path.unlink()

    def _alone(self) -> AbstractContextManager[object]:
        """Keep other processes from the folder for an instant."""
        return _alone(self._folder / "lock")

    def _has_ended(self, path: Path) -> bool:
        """Return whether a mark is nobody's; that of a folder which is only read counts as held."""
        if not can_be_written(self._folder):
            return False
        with hold(path, wait=False) as is_nobodys:
            return is_nobodys


class Notes:
    """The note about one tracking server; what others have done to it since is not noticed."""

    def __init__(self, work_dir: Path, uri: str) -> None:
        self._uri = uri
        self._path = work_dir / "tracking" / f"{sha256(uri)[:16]}.json"

    def covers(self, records: Iterable[Record]) -> bool:
        """Return whether the server had all of some records, as they are."""
        noted = self._digests()
        return all(noted.get(record.identity) == record.digest for record in records)

    def add(self, records: Iterable[Record]) -> None:
        """Note that the server has some records."""
        digests = {record.identity: record.digest for record in records}
        if digests and can_be_written(self._path.parent):
            digests = self._digests() | digests
            _replace(self._path, {"database": database_id(self._uri), "digests": digests})

    def _digests(self) -> dict[str, str]:
        """Return the digests of the records the server had, by identity."""
        try:
            note = read_json(self._path.read_bytes())
            return dict(note["digests"]) if note["database"] == database_id(self._uri) else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}


def _content(path: Path) -> dict[str, frozenset[str]]:
    """Return what a mark says; nothing where there is none, or its process was killed writing."""
    try:
        said = read_json(path.read_bytes())
        return {name: frozenset(map(str, found)) for name, found in said.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def _write(path: Path, asked: Mapping[str, Collection[str]]) -> None:
    _replace(path, {name: sorted(benchmarks) for name, benchmarks in asked.items()})


def _replace(path: Path, data: Mapping[str, Any]) -> None:
    write_whole(path, f"{json.dumps(data, indent=1)}\n")


def _add(known: dict[str, frozenset[str]], found: Mapping[str, frozenset[str]]) -> None:
    for name, benchmarks in found.items():
        known[name] = known.get(name, frozenset()) | benchmarks
