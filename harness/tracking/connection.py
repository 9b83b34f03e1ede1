"""The tracking server of a work folder, to which one process at a time writes.

Writing is part of a command and happens in its main thread, so nothing is left when it ends. A
database that another program has locked is waited for. A server has a deadline instead, for it may
be down, silent or drip bytes. None of this fails a run: it costs one warning, and the same
command catches up later. Messages never show the user, password or query of the URI.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote

from harness.errors import HarnessError
from harness.quiet import silence
from harness.runtime.files import hold
from harness.tracking.record import DIGEST, Record, TrackingError
from harness.words import Say, ignore

if TYPE_CHECKING:
    from harness.tracking.server import Change, TrackingServer

_QUIET = {
    # What goes wrong comes back as an exception; logged, it would be a traceback.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A dead server must not block a run: one retry, then continue without it.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "PGCONNECT_TIMEOUT": "10",
}

DEADLINE = 6
"""Time limit of all requests for one record, in multiples of a single request's timeout."""

_LATER = "Ctrl-C stops, and the same command writes the rest"


class DatabaseLocked(TrackingError):
    """Another program has locked the database, or another command is writing to it."""


class _Overdue(BaseException):
    """The deadline has passed; not an `Exception`, which a library might catch and retry."""


class Mlflow:
    """The tracking server of a work folder.

    `uri` defaults to `MLFLOW_TRACKING_URI`, then to the folder's own database. `warn` is told,
    once, that MLflow is unavailable; `watch` is told how far writing has come.
    """

    def __init__(
        self,
        work_dir: Path,
        warn: Say = ignore,
        uri: str | None = None,
        watch: Say = ignore,
    ) -> None:
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(work_dir)
        self._warn = warn
        self._watch = watch
        self._warned: set[str] = set()
        self._server: TrackingServer | None = None
        self._database = database = database_path(self.uri)
        own = work_dir / "tracking" / "write.lock"
        self._lock = database.with_name(f"{database.name}.lock") if database else own

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[TrackingServer]:
        """Yield the server, locked against other writers to this work folder or database."""
        silence(**_QUIET)
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with hold(self._lock, wait=wait) as is_ours:
                if not is_ours:
                    raise DatabaseLocked("another command is writing to MLflow")
                self._try_database()
                with self.deadline():
                    self._server = self._server or self._open()
                yield self._server
        except _Overdue:
            raise self._unwritten("it takes too long to answer") from None
        # A missing driver raises ImportError, a non-numeric port ValueError.
        except (
            MlflowException, SQLAlchemyError, sqlite3.Error, OSError, ImportError, ValueError
        ) as error:  # fmt: skip
            if self._database is not None and "database is locked" in str(error):
                raise DatabaseLocked(
                    f"another program has locked the database {self._database}: end it, or try "
                    "again once it has"
                ) from error
            what = " ".join(str(_why(error)).split())
            if isinstance(error, ImportError):
                what = f"its driver is not installed: {what}"
            raise self._unwritten(what) from error

    def _unwritten(self, why: str) -> TrackingError:
        return TrackingError(
            f"MLflow at {uri_text(self.uri)} cannot be written "
            f"({without_secrets(why, self.uri)[:300]}): the results are safe in the store, and "
            "the same command brings MLflow up to date when it can be reached"
        )

    def _try_database(self) -> None:
        """Lock and unlock the SQLite database: where it is locked, MLflow would wait 20 seconds."""
        if self._database is not None and self._database.exists():
            with closing(sqlite3.connect(self._database, timeout=1.0)) as database:
                database.execute("BEGIN IMMEDIATE")

    @contextmanager
    def deadline(self) -> Iterator[None]:
        """Raise `_Overdue` in the block when a server takes too long; a SQLite database never does.

        It uses a signal, and so applies in the main thread only.
        """
        if self._database is not None or threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(*_: object) -> None:
            raise _Overdue

        timeout = "MLFLOW_HTTP_REQUEST_TIMEOUT"
        seconds = DEADLINE * float(os.environ.get(timeout, _QUIET[timeout]))
        handler = signal.signal(signal.SIGALRM, end)
        timer = signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, handler)

    def _open(self) -> TrackingServer:
        import sqlalchemy

        from harness.tracking.server import TrackingServer

        if self._database is None:
            if re.match(r"(postgresql|mysql|sqlite|mssql)\b", self.uri):
                # Fail early: MLflow would retry ten times and log each attempt.
                sqlalchemy.create_engine(self.uri).connect().close()
            return TrackingServer(self.uri)
        if not self._database.exists():
            # MLflow's table creation is not atomic and cannot resume if killed midway.
            draft = self._database.with_name(f"{self._database.name}.draft")
            draft.unlink(missing_ok=True)
            TrackingServer(f"sqlite:///{draft}").delete_default_experiment()
            os.replace(draft, self._database)
        return TrackingServer(self.uri, artifacts_path(self._database), self._database)

    def write(self, records: Callable[[], Sequence[Record]], *, wait: bool = True) -> Counter[str]:
        """Write records, parents first; return the number of runs per kind of change.

        Waits while another program has locked the database, or raises `DatabaseLocked`. The records
        are made once it is ours: what the other command has finished meanwhile is in them.
        """
        changes: dict[str, Change] = {}
        while True:
            try:
                with self.writing(wait=wait) as server:
                    wanted = records()
                    written = server.write(wanted)
                    for number in range(1, len(wanted) + 1):
                        with self.deadline():
                            identity, change = next(written)
                        changes.setdefault(identity, change)
                        if wait:
                            self._watch(f"MLflow: {number} of {len(wanted)} runs; {_LATER}")
                return Counter(changes.values())
            except DatabaseLocked:  # the next attempt skips what was written completely
                if not wait:
                    raise
                self._watch(f"MLflow: another program has locked {self._database}; {_LATER}")

    def attempt(
        self,
        records: Callable[[], Sequence[Record]],
        known: Callable[[], Sequence[Record]] | None = None,
    ) -> None:
        """Write the records if the server lacks any of those `known`; on failure, warn once."""
        try:
            wanted, held = (known or records)(), self._held_digests()
            if any(record.digest not in held for record in wanted):
                self.write(records)
        except Exception as error:  # noqa: BLE001  nothing depends on MLflow, whatever it is
            self.warn(error)

    def _held_digests(self) -> set[str]:
        """Return the digests in a SQLite database, read without MLflow, which loads for seconds."""
        if self._database is None or not self._database.exists():
            return set()
        place = f"file:{quote(str(self._database))}?mode=ro"
        wanted = (
            "SELECT value FROM tags JOIN runs USING (run_uuid) "
            "WHERE key = ? AND lifecycle_stage = 'active'"
        )
        try:
            with closing(sqlite3.connect(place, uri=True, timeout=1.0)) as database:
                return {value for (value,) in database.execute(wanted, (DIGEST,))}
        except sqlite3.Error:  # what is wrong with it is said when it is written
            return set()

    def warn(self, error: Exception) -> None:
        """Say that MLflow is unavailable, each reason once."""
        what = without_secrets(f"{type(error).__name__}: {error}", self.uri)
        said = f"MLflow tracking has stopped ({what}): the same command tries again"
        line = str(error) if isinstance(error, HarnessError) else said
        if line not in self._warned:
            self._warned.add(line)
            self._warn(line)


def default_uri(work_dir: Path) -> str:
    return f"sqlite:///{work_dir.resolve() / 'mlflow.db'}"


def database_path(uri: str) -> Path | None:
    """Return the file behind a SQLite tracking URI, or None for any other URI."""
    found = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    return Path(found[1]).resolve() if found else None


def artifacts_path(database: Path) -> Path:
    return database.parent / "mlartifacts"


def _why(error: BaseException) -> BaseException:
    """Return the OS error behind an error that libraries have wrapped, or the error itself."""
    found, before = error, error.__cause__ or error.__context__
    while before is not None:
        found = before if isinstance(before, OSError) else found
        before = before.__cause__ or before.__context__
    return found


def uri_text(uri: str) -> str:
    """Return a URI with its secrets masked."""
    return without_secrets(uri, uri)


def without_secrets(text: str, uri: str) -> str:
    """Mask a URI's user, password and query, and MLflow's credentials from the environment."""
    secrets = {os.environ.get(f"MLFLOW_TRACKING_{it}", "") for it in ("PASSWORD", "TOKEN")}
    if "://" in uri:
        place, _, query = uri.partition("://")[2].partition("?")
        user = place.rpartition("@")[0] if database_path(uri) is None else ""
        secrets |= {user, *user.split(":", 1), query, *(value for _, value in parse_qsl(query))}
    secrets |= {unquote(secret) for secret in secrets}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text
