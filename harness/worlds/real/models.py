"""Where models of the hub lie on this machine, and what exactly lies there.

A profile names a model as on the hub, `owner/name`, or at a commit, `owner/name@<40 digits>`. It is
looked for in two places:

- the folder `owner/name` in the folder of local models (`HARNESS_MODELS`). Nothing says which
  commit a folder is, so its revision is a digest of the files that a loader reads, and a name at a
  commit is not looked for here;
- the hub's cache, where `hf download` puts models. Its revision is the commit.

A model that is in neither has the revision `not-downloaded`, unless its commit is pinned: a run can
be planned with it, and nothing can be computed. Files of tens of gigabytes are digested once:
digests are kept in the work folder, by size and time of change.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from harness.errors import HarnessError, UserError
from harness.foreign import READ_BY_LOADERS
from harness.project import models_dir, work_dir
from harness.runtime.files import sha256_of, write_whole

NOT_DOWNLOADED = "not-downloaded"
"""Revision of what is not on this machine."""

LOCAL = "files-"
"""How the revision of a local folder begins."""

DIGITS = 16
"""Digits of a folder's digest in its revision."""

_NAME = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CHUNK = 1 << 24


def identity_of(model: str) -> str:
    """Return what a model is as it lies here: `owner/name@REVISION`.

    The model is named as in profiles.

    Raises:
        UserError: it is no name on the hub, or what stands after the `@` is no commit.
        HarnessError: a file cannot be read.
    """
    name, pinned = _parted(model)
    if pinned is not None:
        return f"{name}@{pinned}"
    folder = models_dir() / name
    if _complete(folder):
        return f"{name}@{LOCAL}{digest_of_folder(folder)[:DIGITS]}"
    snapshot = _snapshot(name, None)
    # The cache's own folder of a commit is called by it.
    return f"{name}@{NOT_DOWNLOADED if snapshot is None else snapshot.name}"


def is_missing(identity: str) -> bool:
    """Return whether a model is not on this machine."""
    name, _, revision = identity.partition("@")
    if _COMMIT.fullmatch(revision):
        return _snapshot(name, revision) is None
    return revision == NOT_DOWNLOADED


def place_of(model: str) -> Path | None:
    """Return where a model lies on this machine, None where it does not; no file is read.

    Raises:
        UserError: it is no name on the hub, or what stands after the `@` is no commit.
    """
    name, pinned = _parted(model)
    folder = models_dir() / name
    if pinned is None and _complete(folder):
        return folder
    return _snapshot(name, pinned)


def folder_of(identity: str) -> Path:
    """Return where the files of a model lie, after checking that they are those it means.

    Raises:
        UserError: they are not on this machine, or are others.
        HarnessError: a file cannot be read.
    """
    name, _, revision = identity.partition("@")
    if revision.startswith(LOCAL):
        folder = models_dir() / name
        if not _complete(folder):
            raise UserError(
                f"the model `{name}` of this run is not at {folder} any more; put it back, or plan "
                "the run again"
            )
        found = digest_of_folder(folder)[:DIGITS]
        if revision != f"{LOCAL}{found}":
            raise UserError(
                f"the files at {folder} are not those that this run was planned with (now "
                f"{LOCAL}{found}, then {revision}); put them back, or plan the run again"
            )
        return folder
    snapshot = _snapshot(name, revision) if _COMMIT.fullmatch(revision) else None
    if snapshot is None:
        raise UserError(
            f"the model `{name}` is not on this machine; type {download_line(identity)}, and plan "
            "the run again"
        )
    return snapshot


def download_line(identity: str) -> str:
    """Return what to type for a model that is in neither of its places."""
    name, _, revision = identity.partition("@")
    gated = (
        f"a gated model asks for its licence to be accepted at https://huggingface.co/{name}, and "
        "for `hf auth login`"
    )
    if revision != NOT_DOWNLOADED:
        return f"`hf download {name} --revision {revision}` ({gated})"
    return f"`hf download {name}` (or put it at {models_dir() / name}; {gated})"


def digest_of_folder(folder: Path) -> str:
    """Return the sha256 over names and contents of the files of a model that a loader reads.

    Raises:
        HarnessError: a file cannot be read, or digests cannot be kept.
    """
    kept = _Kept(folder)
    files = sorted(p for p in folder.iterdir() if p.suffix in READ_BY_LOADERS and p.is_file())
    lines = [f"{path.name}\0{kept.digest(path)}\n" for path in files]
    kept.write()
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _parted(model: str) -> tuple[str, str | None]:
    """Return a model's name and its commit, if it is pinned."""
    name, at, commit = model.partition("@")
    if not _NAME.fullmatch(name) or (at and not _COMMIT.fullmatch(commit)):
        raise UserError(
            f"`{model}` is no model of the hub; write `owner/name`, or `owner/name@` and a commit "
            f"of 40 digits (a model of your own is a folder `owner/name` in {models_dir()})"
        )
    return name, commit or None


def _snapshot(name: str, commit: str | None) -> Path | None:
    """Return the folder of a whole model in the hub's cache; None where there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(name, revision=commit, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return found if _complete(found) else None


def _complete(folder: Path) -> bool:
    """Return whether a folder has a configuration and every file of the weights it lists."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        # Pickled weights are refused by who loads them, with what to do about it.
        return any(path.suffix in (".safetensors", ".bin", ".pt") for path in folder.iterdir())
    try:
        listed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError):
        return False
    return all((folder / str(name)).is_file() for name in listed)


class _Kept:
    """The digests of a folder's files, kept in the work folder by size and time of change."""

    def __init__(self, folder: Path) -> None:
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:DIGITS]
        self._path = work_dir() / "digests" / f"{name}.json"
        self._known: Mapping[str, list[object]] = {}
        if self._path.is_file():
            try:
                found = json.loads(self._path.read_text(encoding="utf-8"))
                self._known = found if isinstance(found, dict) else {}
            except ValueError:
                # Cut short by a full disk, perhaps; what is not known is digested anew.
                self._known = {}
        self._found: dict[str, list[object]] = {}

    def digest(self, path: Path) -> str:
        """Return the sha256 of a file."""
        status = path.stat()
        stamp = [status.st_size, status.st_mtime_ns]
        known = self._known.get(path.name)
        fresh = isinstance(known, list) and known[:2] == stamp and len(known) == 3
        sha256 = str(known[2]) if fresh and known is not None else _sha256(path)
        self._found[path.name] = [*stamp, sha256]
        return sha256

    def write(self) -> None:
        """Keep what was found, unless it was known."""
        if self._found == self._known:
            return
        try:
            write_whole(self._path, json.dumps(self._found))
        except OSError as error:
            raise HarnessError(
                f"Cannot write {self._path}: {error.strerror or error}; make room, or set "
                "HARNESS_WORK to a folder that can be written"
            ) from error


def _sha256(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise HarnessError(
            f"Cannot read {path}: {error.strerror or error}; download the model again"
        ) from error
