"""The tracking server of a work folder, and a note of what it holds.

The default is a SQLite database in the work folder; `MLFLOW_TRACKING_URI` names another server or
database. Only one process per work folder writes at a time.

A server may be down, slow or reject everything, and a driver may be missing. None of this may block
a run: reports, sweeps and evaluations continue without MLflow after one warning, and `harness sync`
catches up later. Messages never show the user, password or query of the URI.

The note lists the records that the server held after the last write, so a run with nothing new to
write never imports MLflow.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from harness.errors import HarnessError
from harness.foreign import read_json
from harness.quiet import silence
from harness.runtime.files import hold, write_whole
from harness.runtime.stage import fingerprint_of
from harness.tracking.record import Record, TrackingError

if TYPE_CHECKING:
    from harness.tracking.server import TrackingServer

PATIENCE_S = 60.0
"""How long a finished command waits for MLflow, in seconds."""

_QUIET = {
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A dead server must not block a run: one retry, then continue without it.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "PGCONNECT_TIMEOUT": "10",
}

Warn = Callable[[str], None]
"""Receives the warning that MLflow is unavailable; may be called from any thread."""

_LOG = logging.getLogger(__name__)


class Mlflow:
    """The tracking server of a work folder.

    The URI defaults to `MLFLOW_TRACKING_URI`, then to the work folder's own database. Connections
    are opened lazily.
    """

    def __init__(self, work_dir: Path, warn: Warn = _LOG.warning, uri: str | None = None) -> None:
        self.uri = chosen_uri(work_dir, uri)
        self.failed = threading.Event()
        self._warn = warn
        self._server: TrackingServer | None = None
        self._database = database = database_path(self.uri)
        own = work_dir / "tracking"
        self._lock = database.with_name(f"{database.name}.lock") if database else own / "write.lock"
        self._note = own / f"{fingerprint_of(self.uri)[:16]}.json"
        self.place = fingerprint_of(str(work_dir.resolve()))
        """The `COMPUTED_IN` tag value for the work folder."""
        self.live_lock = own / "live.lock"
        """Held for its lifetime by the command that is tracked live."""

    @contextmanager
    def writing(self) -> Iterator[TrackingServer]:
        """Yield the server, locked against other writers to this work folder or database.

        Raises:
            TrackingError: It cannot be reached, or rejects a write.
        """
        silence()
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with hold(self._lock):
                self._server = self._server or self._open()
                yield self._server
        # A missing driver raises ImportError, a non-numeric port ValueError.
        except (MlflowException, SQLAlchemyError, OSError, ImportError, ValueError) as error:
            what = without_secrets(" ".join(str(_why(error)).split()), self.uri)
            if isinstance(error, ImportError):
                what = f"its driver is not installed: {what}"
            raise TrackingError(
                f"MLflow at {uri_text(self.uri)} cannot be written ({what[:300]}): the results are "
                "safe in the store, and `harness sync` brings MLflow up to date when it can be "
                "reached"
            ) from error

    def _open(self) -> TrackingServer:
        import sqlalchemy

        from harness.tracking.server import TrackingServer

        if self._database is None:
            if re.match(r"(postgresql|mysql|sqlite|mssql)\b", self.uri):
                # Fail early: MLflow would retry ten times and log each attempt.
                sqlalchemy.create_engine(self.uri).connect().close()
            return TrackingServer(self.uri, None)
        if not self._database.exists():
            self._note.unlink(missing_ok=True)
            # MLflow's table creation is not atomic and cannot resume if killed midway.
            draft = self._database.with_name(f"{self._database.name}.draft")
            draft.unlink(missing_ok=True)
            TrackingServer(f"sqlite:///{draft}", None)
            os.replace(draft, self._database)
        engine = sqlalchemy.create_engine(self.uri)
        sqlalchemy.inspect(engine).get_table_names()
        engine.dispose()
        return TrackingServer(self.uri, artifacts_path(self._database))

    def write(self, records: Sequence[Record]) -> Counter[str]:
        """Write records to the server; return the number of runs per kind of change.

        Also ends runs that a killed command left RUNNING.

        Raises:
            TrackingError: MLflow cannot be reached, or rejects a write.
            StoreError: The store cannot be read.
        """
        with self.writing() as server:
            found = server.find(records)
            changes: Counter[str] = Counter(
                server.apply(record, found.get(record.identity, []))[0] for record in records
            )
            digests = self._noted() | {record.identity: record.digest for record in records}
            write_whole(self._note, f"{json.dumps(digests, indent=1)}\n")
            self._end_left(server)
        return changes

    def attempt(
        self, records: Callable[[], Sequence[Record]], patience_s: float = PATIENCE_S
    ) -> None:
        """Write the records if the server lacks any; on failure, warn once.

        After `patience_s`, writing continues in a daemon thread and the caller moves on.
        """

        def catch_up() -> None:
            try:
                wanted, noted = records(), self._noted()
                if any(noted.get(record.identity) != record.digest for record in wanted):
                    self.write(wanted)
            except Exception as error:  # noqa: BLE001  nothing depends on MLflow, whatever it is
                self.give_up(error)

        if not self.failed.is_set():
            thread = threading.Thread(target=catch_up, name="mlflow", daemon=True)
            thread.start()
            self.wait_for(thread, patience_s)

    def wait_for(self, thread: threading.Thread, seconds: float) -> None:
        """Wait for a writing thread; give up on MLflow if it takes longer."""
        thread.join(seconds)
        if thread.is_alive():
            slow = "is too slow to take everything now: `harness sync` adds the rest"
            self.give_up(TrackingError(f"MLflow at {uri_text(self.uri)} {slow}"))

    def give_up(self, error: Exception) -> None:
        """Warn once that MLflow is unavailable, and stop trying."""
        if not self.failed.is_set():
            self.failed.set()
            what = without_secrets(f"{type(error).__name__}: {error}", self.uri)
            said = f"MLflow tracking has stopped ({what}): `harness sync` tries again"
            self._warn(str(error) if isinstance(error, HarnessError) else said)

    def views(self) -> dict[str, str]:
        """Return the ids of experiments with a first view; end runs left by killed commands.

        Raises:
            TrackingError: The server cannot be reached.
        """
        with self.writing() as server:
            self._end_left(server)
            return server.views()

    def _end_left(self, server: TrackingServer) -> None:
        if self.live_lock.exists():
            with hold(self.live_lock, wait=False) as is_nobodys:
                if is_nobodys:
                    server.end_left(self.place)

    def _noted(self) -> dict[str, str]:
        """Return the digests of the records after the last write, by identity."""
        if self._database is None or self._database.exists():
            with suppress(OSError, ValueError, TypeError):
                return dict(read_json(self._note.read_bytes()))
        return {}


def default_uri(work_dir: Path) -> str:
    return f"sqlite:///{work_dir.resolve() / 'mlflow.db'}"


def chosen_uri(work_dir: Path, uri: str | None = None) -> str:
    """Return the given tracking URI, else `MLFLOW_TRACKING_URI`, else the default database's."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(work_dir)


def database_path(uri: str) -> Path | None:
    """Return the file behind a SQLite tracking URI, or None for any other URI."""
    found = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", uri)
    return Path(found[1]).resolve() if found else None


def artifacts_path(database: Path) -> Path:
    return database.parent / "mlartifacts"


def _why(error: BaseException) -> BaseException:
    """Return the system's error behind one, which libraries wrap in longer words, else that one."""
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
        secrets |= {user, user.partition(":")[2], query, *(value for _, value in parse_qsl(query))}
    secrets |= {unquote(secret) for secret in secrets}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return text
