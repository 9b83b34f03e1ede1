"""Where a profile's models are on this machine, and what identifies their bytes.

A profile names a model as on the hub, `owner/name`, or at a commit, `owner/name@<40 digits>`. It is
looked for in the folder `owner/name` of the local models (`HARNESS_MODELS`), whose revision is a
digest of the files that a loader reads, and in the hub's cache, where `hf download` puts models and
the revision is the commit. A pinned one is looked for in the cache alone. What is in neither has
the revision `not-downloaded`: a run can be planned with it, and nothing can be computed. Where a
chat template is given arguments of its own, they follow, as in
`owner/name@REVISION?enable_thinking=false`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.foreign import READ_BY_LOADERS
from harness.project import models_dir, work_dir
from harness.runtime.files import sha256_of, write_whole

NOT_DOWNLOADED = "not-downloaded"
"""Revision of what is not on this machine."""

LOCAL = "files-"
"""How the revision of a local folder begins."""

DIGITS = 16
"""Digits of a folder's digest in its revision."""

FILES: Mapping[str, Any] = {
    "allow_patterns": [f"*{ending}" for ending in READ_BY_LOADERS],
    "ignore_patterns": ["*/*"],
}
"""What is fetched of a model: what loaders read, at the top of its repository."""

_NAME = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def identity_of(model: str) -> str:
    """Return what a model is as it lies here: `owner/name@REVISION`.

    The model is named as in profiles.

    Raises:
        UserError: It is no name on the hub, or what stands after the `@` is no commit.
        HarnessError: A file cannot be read.
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


def with_arguments(identity: str, arguments: Mapping[str, bool | int | float | str]) -> str:
    said = "&".join(f"{name}={json.dumps(value)}" for name, value in sorted(arguments.items()))
    return f"{identity}?{said}" if said else identity


def without_arguments(identity: str) -> tuple[str, dict[str, Any]]:
    """Return the identity of a model's files, and the arguments of its chat template."""
    plain, _, said = identity.partition("?")
    pairs = (pair.partition("=") for pair in said.split("&") if pair)
    return plain, {name: json.loads(value) for name, _, value in pairs}


def policy_name(identity: str | None, trained: str) -> str:
    """Return what requests call a policy: its name on the hub, or by the stage that trained it."""
    return f"policy-{trained[:12]}" if identity is None else identity.partition("@")[0]


def place_of(model: str) -> Path | None:
    """Return where a model lies on this machine, None where it does not; no file is read.

    Raises:
        UserError: It is no name on the hub, or what stands after the `@` is no commit.
    """
    name, pinned = _parted(model)
    folder = models_dir() / name
    if pinned is None and _complete(folder):
        return folder
    return _snapshot(name, pinned)


def folder_of(identity: str) -> Path:
    """Return where the files of a model lie, after checking that they are those it means."""
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

    Files of tens of gigabytes are digested once: digests are kept in the work folder where it can
    be written, by size and time of change.
    """
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:DIGITS]
    kept, known, found = work_dir() / "digests" / f"{name}.json", dict[str, Any](), dict[str, Any]()
    with suppress(OSError, ValueError):  # what is not known is digested anew
        known = json.loads(kept.read_text(encoding="utf-8"))
    for path in sorted(p for p in folder.iterdir() if p.suffix in READ_BY_LOADERS and p.is_file()):
        stamp = [path.stat().st_size, path.stat().st_mtime_ns]
        entry = known.get(path.name, [])
        found[path.name] = entry if entry[:2] == stamp else [*stamp, sha256_of(path)]
    if found != known:
        with suppress(OSError):  # where nothing can be kept, what reads still reads
            write_whole(kept, json.dumps(found))
    lines = "".join(f"{name}\0{sha256}\n" for name, (_, _, sha256) in found.items())
    return hashlib.sha256(lines.encode()).hexdigest()


def _parted(model: str) -> tuple[str, str | None]:
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
        found = Path(snapshot_download(name, revision=commit, local_files_only=True, **FILES))
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
    except (ValueError, KeyError):
        return False
    return all((folder / str(name)).is_file() for name in listed)
