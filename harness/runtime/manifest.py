"""The manifest: `stage.json`, which says what an entry of the store is and makes it whole.

It is written last and ends with a digest of itself, so that a change of any byte is found: what is
read is what was written. A manifest with another digest makes its entry broken, never missing:
nothing that stood in the store goes away in silence.

Its provenance, where and with what a stage was computed, never enters a fingerprint: another
machine or library version does not make a stage new, it makes a drift that can be reported. The
process that starts a run collects it once and hands it to its workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypedDict, cast

from harness.project import PACKAGE
from harness.runtime.files import FileEntry, dumps
from harness.runtime.stage import StageRecord

LIBRARIES = ("torch", "transformers", "trl", "datasets", "numpy")

DECIDES = ("harness", "experiments", "ablations")
"""Folders of a checkout whose files decide numbers; reports, tests and pages do not."""

LOADED = (".py", ".yaml")
"""Endings of the files there that take part without being known to git."""


class Provenance(TypedDict):
    """Where and with what a stage was computed.

    `dirty` says that files which decide numbers differ from the commit; both are null where the
    code runs from no git checkout. `versions` has null for a library that is not installed;
    `threads` is the number of compute threads of a stage.
    """

    commit: str | None
    dirty: bool | None
    python: str
    platform: str
    cpu: str
    cores: int
    threads: int
    versions: dict[str, str | None]


def collect_provenance(threads: int = 1) -> Provenance:
    commit, dirty = git_state(PACKAGE.parent)
    return {
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": available_cores(),
        "threads": threads,
        "versions": {name: installed_version(name) for name in LIBRARIES},
    }


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Return the commit of a checkout, and whether what decides numbers was changed since.

    Both are null where there is none. Results, outputs and pages decide nothing: what a report
    writes into the checkout is no change of the code. A folder inside somebody else's checkout (a
    virtual environment, say) has no commit of its own.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None, None
    found = _git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--", *DECIDES)
    changes = (found or "").split("\0")
    dirty = any(line and (line[:2] != "??" or line.endswith(LOADED)) for line in changes)
    return _git(root, "rev-parse", "--verify", "HEAD"), None if found is None else dirty


def available_cores() -> int:
    """Return the number of cores this process may use, at least 1.

    Respects the affinity mask and the processor quota of a container (Linux control groups v2).
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.is_file():
        limit, period = quota.read_text().split()
        if limit != "max":
            cores = min(cores, round(int(limit) / int(period)))
    return max(cores, 1)


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(root: Path, *arguments: str) -> str | None:
    """Return what a git command printed; None where it fails or git is not installed."""
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def installed_version(library: str) -> str | None:
    """Return an installed library's version without importing it."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


@cache
def code_digest() -> str:
    """Return the digest of the code that this process runs: the package's modules and data."""
    digest = hashlib.sha256()
    for path in sorted(p for p in PACKAGE.rglob("*") if p.suffix in LOADED and p.is_file()):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


MANIFEST = "stage.json"

_SEAL = re.compile(rb',\n  "digest": "([0-9a-f]{64})"\n}\n\Z')


class Manifest(StageRecord):
    """What `stage.json` holds.

    `files` are keyed by path relative to the entry; `started` and `finished` are ISO 8601 in UTC;
    `wall_s` and `cpu_s` are seconds of the stage function alone (of its process; without digests
    and renaming).
    """

    files: dict[str, FileEntry]
    started: str
    finished: str
    wall_s: float
    cpu_s: float
    provenance: Provenance


class FailureRecord(TypedDict):
    """Why a stage failed the last time: `reason` is one sentence, `at` is ISO 8601 in UTC."""

    fingerprint: str
    kind: str
    label: str
    reason: str
    traceback: str
    at: str


def read_manifest(entry: str) -> Manifest:
    """Return the manifest of an entry, whose folder has the stage's fingerprint as its name.

    Raises:
        ValueError: The manifest is not what was written; the words follow the name of the file.
        FileNotFoundError: There is none.
    """
    with open(f"{entry}/{MANIFEST}", "rb") as file:
        raw = file.read()
    end = _SEAL.search(raw)
    if end is None or hashlib.sha256(raw[: end.start()] + b"\n}\n").hexdigest() != end[1].decode():
        raise ValueError("was changed after it was written (its digest differs)")
    manifest: Manifest = json.loads(raw[: end.start()] + b"}")
    if manifest["fingerprint"] != os.path.basename(entry):
        raise ValueError("describes another stage")
    return manifest


def read_failure(path: Path) -> FailureRecord:
    """Return a failure record.

    Raises:
        ValueError: It is not what was written; the words follow the name of the file.
        FileNotFoundError: There is none.
    """
    try:
        found = json.loads(path.read_bytes())
        return cast(FailureRecord, {key: str(found[key]) for key in FailureRecord.__annotations__})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError("is cut off or has another form") from error


def write_manifest(entry: Path, manifest: Manifest) -> None:
    """Write the manifest of an entry, its last line the digest of the others; flush it."""
    own = hashlib.sha256(dumps(manifest).encode()).hexdigest()
    with (entry / MANIFEST).open("wb") as file:
        file.write(dumps({**manifest, "digest": own}).encode())
        file.flush()
        os.fsync(file.fileno())


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
