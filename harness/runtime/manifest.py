"""The manifest, `stage.json`: it describes a store entry and marks it complete.

It is written last and ends with a digest of itself: one that does not match makes its entry broken,
never missing. Provenance (where and with what a stage was computed) is not part of the fingerprint:
another machine or library version does not make a new stage, but a drift that can be reported.
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
"""Folders of a checkout whose files affect numbers; results, tests and docs do not."""

LOADED = (".py", ".yaml")
"""Suffixes of the files there that count as code even if git does not track them."""


class Provenance(TypedDict):
    """Where and with what a stage was computed; `dirty` is whether files differ from the commit."""

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
    """Return a checkout's commit, and whether files that affect numbers have changed since."""
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None, None
    found = _git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--", *DECIDES)
    changes = (found or "").split("\0")
    dirty = any(line and (line[:2] != "??" or line.endswith(LOADED)) for line in changes)
    return _git(root, "rev-parse", "--verify", "HEAD"), None if found is None else dirty


CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""A container's quota and its period, in microseconds (Linux, cgroups v2)."""


def available_cores() -> int:
    """Return the number of cores this process may use, at least 1: by affinity and quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    if CPU_QUOTA.is_file():
        limit, period = CPU_QUOTA.read_text().split()
        if limit != "max":
            cores = min(cores, round(int(limit) / int(period)))
    return max(cores, 1)


VECTORS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "asimd", "sve")
"""Flags of a processor by which libraries choose how they add up."""


def cpu_model() -> str:
    """Return the processor's name, family, model and vector units, as Linux reports them.

    Names alone do not tell processors apart: a virtual machine's is `AMD EPYC` for all of them.
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().split("\n\n")[0].splitlines() if cpuinfo.is_file() else []
    pairs = (line.partition(":") for line in lines)
    of = {name.strip(): value.strip() for name, _, value in pairs}
    flags = {*of.get("flags", "").split(), *of.get("Features", "").split()}
    parts = [of.get("model name", platform.processor() or platform.machine())]
    if "cpu family" in of:
        parts.append(f"family {of['cpu family']} model {of['model']}")
    return ", ".join([*parts, *([" ".join(it for it in VECTORS if it in flags)] if flags else [])])


def _git(root: Path, *arguments: str) -> str | None:
    """Return a git command's output, or None if it fails or git is not installed."""
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
    """Return the sha256 of the package's Python and YAML files."""
    digest = hashlib.sha256()
    for path in sorted(p for p in PACKAGE.rglob("*") if p.suffix in LOADED and p.is_file()):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


MANIFEST = "stage.json"

_SEAL = re.compile(rb',\n  "digest": "([0-9a-f]{64})"\n}\n\Z')


class Manifest(StageRecord):
    """The content of `stage.json`; times are of the stage function alone, ISO 8601 in UTC."""

    files: dict[str, FileEntry]
    started: str
    finished: str
    wall_s: float
    cpu_s: float
    provenance: Provenance


class FailureRecord(TypedDict):
    """Why a stage last failed: `reason` is one sentence, `at` is ISO 8601 in UTC."""

    fingerprint: str
    kind: str
    label: str
    reason: str
    traceback: str
    at: str


def read_manifest(entry: str) -> Manifest:
    """Return the manifest of an entry, a folder named by the stage's fingerprint."""
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
    try:
        found = json.loads(path.read_bytes())
        return cast(FailureRecord, {key: str(found[key]) for key in FailureRecord.__annotations__})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError("is cut off or has another form") from error


def write_manifest(entry: Path, manifest: Manifest) -> None:
    """Write and flush an entry's manifest; its last field is the digest of the rest."""
    own = hashlib.sha256(dumps(manifest).encode()).hexdigest()
    with (entry / MANIFEST).open("wb") as file:
        file.write(dumps({**manifest, "digest": own}).encode())
        file.flush()
        os.fsync(file.fileno())


def utc_now() -> str:
    """Return the current time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
