"""Provenance: where and with what a stage was computed.

It is recorded beside an output and never enters a fingerprint: another machine or library version
does not make a stage new, it makes a drift that can be reported. It is collected once by the
process that starts a run and handed to its workers.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from harness.project import PACKAGE

LIBRARIES = ("torch", "transformers", "trl", "datasets", "numpy")

DECIDES = ("harness", "experiments", "ablations")
"""Folders of a checkout whose files decide numbers; reports, tests and pages do not."""

LOADED = (".py", ".yaml")
"""Endings of the files there that take part without being known to git."""


@with_config(ConfigDict(extra="allow", strict=True))
class Provenance(TypedDict):
    """Where and with what a stage was computed.

    `dirty` says that files which decide numbers differ from the commit; both are null where the
    code runs from no git checkout. `versions` has null for a library that is not installed;
    `threads` is the number of compute threads of a stage. A key added here later must not be
    required, or the stores there are could not be read; one that is not known is kept.
    """

    commit: str | None
    dirty: bool | None
    python: str
    platform: str
    cpu: str
    cores: int
    threads: int
    versions: dict[str, str | None]


def collect_provenance(threads: int = 1, root: Path | None = None) -> Provenance:
    """Return the provenance of what this process and its workers compute.

    The git checkout is the one that this code runs from, where none is given.
    """
    commit, dirty = git_state(root or PACKAGE.parent)
    return {
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": available_cores(),
        "threads": threads,
        "versions": {name: _version(name) for name in LIBRARIES},
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
    changes = None if found is None else [line for line in found.split("\0") if line]
    dirty = None if changes is None else any(map(_counts, changes))
    return _git(root, "rev-parse", "--verify", "HEAD"), dirty


def _counts(change: str) -> bool:
    """Return whether a line of `git status` is a change of what decides numbers."""
    return not change.startswith("?? ") or change.endswith(LOADED)


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
    """Return the processor's name, as far as the platform tells it."""
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


def _version(library: str) -> str | None:
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
