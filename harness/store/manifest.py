"""The manifest: `stage.json`, which says what an entry of the store is and makes it whole.

It is written last, so an entry without a readable manifest is a leftover and counts as missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, cast

from harness.store.digests import FileEntry
from harness.store.fingerprint import Json
from harness.store.provenance import Provenance
from harness.store.stage import StageRecord

MANIFEST = "stage.json"


class Manifest(TypedDict):
    """What `stage.json` holds.

    `inputs` are fingerprints by name; `files` are keyed by path relative to the entry; `started`
    and `finished` are ISO 8601 in UTC; `wall_s` and `cpu_s` are seconds of the stage function
    alone (of its process; without digests and renaming).
    """

    fingerprint: str
    kind: str
    version: int
    settings: Mapping[str, Json]
    inputs: Mapping[str, str]
    label: str
    files: dict[str, FileEntry]
    started: str
    finished: str
    wall_s: float
    cpu_s: float
    provenance: Provenance


class Failure(TypedDict):
    """Why a stage failed the last time: `reason` is one sentence, `at` is ISO 8601 in UTC."""

    fingerprint: str
    kind: str
    label: str
    reason: str
    traceback: str
    at: str


def parse_manifest(text: str) -> Manifest | None:
    """Return a manifest, or None where the text is cut off or not a manifest at all."""
    found = parse_object(text)
    if found is None or not Manifest.__required_keys__ <= found.keys():
        return None
    if not all(isinstance(found[key], dict) for key in ("settings", "inputs", "files")):
        return None
    return cast(Manifest, found)


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object a text holds, or None where it holds none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def record_of(manifest: Manifest) -> StageRecord:
    """Return the stage a manifest describes, with the fingerprint its fields have."""
    return StageRecord(
        manifest["kind"],
        manifest["version"],
        manifest["settings"],
        manifest["inputs"],
        manifest["label"],
    )


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object for people and programs: indented, with a final newline."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
