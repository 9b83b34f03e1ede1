"""The manifest: `stage.json`, which says what an entry of the store is and makes it whole.

It is written last and ends with a digest of itself, so that a change of any byte is found. What is
read is held against its form before anybody uses it: a name of a file or an input becomes a path,
and times and seconds become numbers. A manifest that is not as it must be makes its entry broken,
never missing: nothing that stood in the store goes away in silence.

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
import stat
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    with_config,
)
from typing_extensions import TypedDict

from harness.foreign import in_a_line
from harness.project import PACKAGE
from harness.runtime.files import FileEntry, NewerEntry
from harness.runtime.stage import FingerprintError, StageRecord, digest, identity_of

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


MANIFEST = "stage.json"

DIGEST = "digest"
"""The key of the manifest's own digest; manifests written before there was one are without it."""

_SEAL = re.compile(rb',\n  "digest": "([0-9a-f]{64})"\n}\n\Z')

_LARGEST = 16 * 2**20
"""Bytes; a manifest with a line for each of 100,000 files has fewer."""

_DEEPEST = 64
"""Levels of braces and brackets; the settings of a stage have about six."""

_CONFIG = ConfigDict(extra="forbid", strict=True)


def _is_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time must have its time zone")
    return text


def _is_inside(name: str) -> str:
    parts = name.split("/")
    if "\0" in name or "" in parts or max(map(len, parts)) > 255:
        raise ValueError("a file's name has parts of 1 to 255 characters")
    if "." in parts or ".." in parts:
        raise ValueError("a file lies in the entry")
    return name


Fingerprint = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]
Time = Annotated[str, AfterValidator(_is_time)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Label = Annotated[str, StringConstraints(max_length=1000)]
FileName = Annotated[str, AfterValidator(_is_inside)]


@with_config(_CONFIG)
class Manifest(TypedDict):
    """What `stage.json` holds.

    `inputs` are fingerprints by name; `files` are keyed by path relative to the entry; `started`
    and `finished` are ISO 8601 in UTC; `wall_s` and `cpu_s` are seconds of the stage function
    alone (of its process; without digests and renaming). A key added here later must not be
    required, or the stores there are could not be read.
    """

    fingerprint: Fingerprint
    kind: Name
    version: int
    settings: dict[str, Any]
    inputs: dict[str, Fingerprint]
    label: Label
    files: dict[FileName, FileEntry]
    started: Time
    finished: Time
    wall_s: Seconds
    cpu_s: Seconds
    provenance: Provenance


@with_config(_CONFIG)
class Failure(TypedDict):
    """Why a stage failed the last time: `reason` is one sentence, `at` is ISO 8601 in UTC."""

    fingerprint: Fingerprint
    kind: Name
    label: Label
    reason: str
    traceback: str
    at: Time


_MANIFEST = TypeAdapter(Manifest)
_FAILURE = TypeAdapter(Failure)

_Read = TypeVar("_Read")


def read_manifest(entry: Path | str) -> Manifest:
    """Return the manifest of an entry, whose folder has the stage's fingerprint as its name.

    Raises:
        NewerEntry: Its digest is right, and all that is strange about it are further keys.
        ValueError: The manifest is not as it must be; the words follow the name of the file.
        FileNotFoundError: There is none.
    """
    raw, fingerprint = _bytes_of(f"{entry}/{MANIFEST}"), os.path.basename(entry)
    found = _object(raw)
    if DIGEST in found and not _is_sealed(raw):
        raise ValueError("was changed after it was written (its digest differs)")
    is_sealed = found.pop(DIGEST, None) is not None
    try:
        manifest = _checked(_MANIFEST, found)
    except ValueError as error:
        if is_sealed and (newer := _newer(error.__cause__)):
            raise NewerEntry(
                f"the stored stage {fingerprint[:12]} was written by a newer version of the "
                f"harness ({MANIFEST} has `{newer}`): install that version, or choose another "
                "folder with HARNESS_WORK"
            ) from error
        raise
    if not _fingerprint_of(manifest) == manifest["fingerprint"] == fingerprint:
        raise ValueError("describes another stage")
    return manifest


def read_failure(path: Path) -> Failure:
    """Return a failure record, whose file has the stage's fingerprint as its name.

    Raises:
        ValueError: The record is not as it must be; the words follow the name of the file.
        FileNotFoundError: There is none.
    """
    failure = _checked(_FAILURE, _object(_bytes_of(path)))
    if failure["fingerprint"] != path.stem:
        raise ValueError("describes another stage")
    return failure


def write_manifest(entry: Path, manifest: Manifest) -> None:
    """Write the manifest of an entry and flush it to the disk.

    Raises:
        ValueError: Nobody could read it: it is not as it must be.
    """
    checked = _checked(_MANIFEST, dict(manifest))
    with (entry / MANIFEST).open("wb") as file:
        file.write(sealed(checked))
        file.flush()
        os.fsync(file.fileno())


def sealed(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest: its fields, then the digest of their own text.

    Raises:
        ValueError: A text in it cannot be written.
    """
    try:
        own = hashlib.sha256(_text(fields).encode()).hexdigest()
        return _text({**fields, DIGEST: own}).encode()
    except UnicodeEncodeError as error:
        raise ValueError("holds text that UTF-8 cannot write") from error


def _is_sealed(raw: bytes) -> bool:
    """Return whether bytes end as `sealed` ends them, with the digest of what stands before.

    The text is not made again, which takes ten times as long: reports read the manifests of all
    stages.
    """
    end = _SEAL.search(raw)
    if end is None:
        return False
    return hashlib.sha256(raw[: end.start()] + b"\n}\n").hexdigest().encode() == end[1]


def record_of(manifest: Manifest) -> StageRecord:
    """Return the stage a manifest describes, with the fingerprint its fields have."""
    kind, version, label = manifest["kind"], manifest["version"], manifest["label"]
    return StageRecord(kind, version, manifest["settings"], manifest["inputs"], label)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object for people and programs: indented, with a final newline."""
    # Text from outside (the name of a file, a reply) may hold what UTF-8 cannot write.
    path.write_bytes(_text(value).encode("utf-8", "replace"))


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _text(value: Mapping[str, Any]) -> str:
    return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n"


def _bytes_of(path: Path | str) -> bytes:
    """Return what a plain file holds; a pipe would never end and a link may lead anywhere."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("is not a plain file")
    if found.st_size > _LARGEST:
        raise ValueError(f"has {found.st_size} bytes, more than any that was written")
    with open(path, "rb") as file:
        return file.read()


def _object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object that some bytes hold."""
    try:
        found = json.loads(raw.decode("utf-8"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError("is not text") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError("is cut off or is not JSON") from error
    if not isinstance(found, dict):
        raise ValueError("holds no JSON object")
    if raw.count(b"{") + raw.count(b"[") <= _DEEPEST:  # as almost always, and quickly seen
        return found
    level: list[Any] = [found]
    for _ in range(_DEEPEST):
        if not level:
            return found
        level = [inner for value in level if isinstance(value, dict | list)
                 for inner in (value.values() if isinstance(value, dict) else value)]  # fmt: skip
    if level:
        raise ValueError("is nested too deeply")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _checked(form: TypeAdapter[_Read], found: Mapping[str, Any]) -> _Read:
    """Return data that has the form it must have."""
    try:
        return form.validate_python(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = in_a_line(".".join(map(str, first["loc"])), 60)
        raise ValueError(f"has another form ({place}: {in_a_line(first['msg'], 120)})") from error


def _newer(error: object) -> str | None:
    """Return a key that is not known, where such keys are all that is wrong."""
    assert isinstance(error, ValidationError)
    faults = error.errors(include_url=False, include_input=False)
    if any(fault["type"] != "extra_forbidden" for fault in faults):
        return None
    return in_a_line(".".join(map(str, faults[0]["loc"])), 60)


def _fingerprint_of(manifest: Manifest) -> str | None:
    try:
        return digest(
            identity_of(
                manifest["kind"], manifest["version"], manifest["settings"], manifest["inputs"]
            )
        )
    except FingerprintError:
        return None
