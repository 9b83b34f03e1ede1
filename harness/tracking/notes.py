"""A note in the work folder of the records a tracking server had after the last writing.

Whoever finds all of its records in the note need not even import MLflow. What others have done to
the server since is not noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from harness.foreign import read_json
from harness.runtime.files import write_whole
from harness.tracking.database import database_id
from harness.tracking.record import Record, sha256


class Notes:
    """The note about one tracking server.

    Args:
        work_dir: Folder that runs write to.
        uri: Tracking URI.
    """

    def __init__(self, work_dir: Path, uri: str) -> None:
        self._uri = uri
        self._path = work_dir / "tracking" / f"{sha256(uri)[:16]}.json"

    def covers(self, records: Iterable[Record]) -> bool:
        """Return whether the server had all of some records, as they are."""
        noted = self._digests()
        return all(noted.get(record.identity) == record.digest for record in records)

    def add(self, records: Iterable[Record]) -> None:
        """Note that the server has some records."""
        digests = self._digests() | {record.identity: record.digest for record in records}
        text = json.dumps({"database": database_id(self._uri), "digests": digests}, indent=1)
        write_whole(self._path, f"{text}\n")

    def _digests(self) -> dict[str, str]:
        """Return the digests of the records the server had, by identity."""
        try:
            note = read_json(self._path.read_bytes())
            return dict(note["digests"]) if note["database"] == database_id(self._uri) else {}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}
