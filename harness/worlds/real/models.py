"""Locations of a profile's models on this machine, and their identities.

A profile names a model as on the hub, `owner/name`, or at a commit, `owner/name@<40 digits>`. It is
looked up in the folder `owner/name` of the local models (`HARNESS_MODELS`), where the revision is a
digest of the files that a loader reads, then in the hub's cache, where `hf download` puts models
and the revision is the commit. A pinned model is looked up only in the cache. A model in neither
has the revision `not-downloaded`: a run can be planned with it but not computed. Chat-template
arguments are appended, as in `owner/name@REVISION?enable_thinking=false`.
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
from harness.runtime.stage import StageContext, fingerprint_of
from harness.worlds.embedded import files
from harness.worlds.instructions import weights

NOT_DOWNLOADED = "not-downloaded"
"""Revision of models that are not on this machine."""

LOCAL = "files-"
"""Prefix of a local folder's revision."""

DIGITS = 16
"""Hex digits of a digest or commit in an identity."""

FILES: Mapping[str, Any] = {
    "allow_patterns": [f"*{ending}" for ending in READ_BY_LOADERS],
    "ignore_patterns": ["*/*"],
}
"""The files to download: those that loaders read, at the top level of a repository."""

_NAME = re.compile(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def place_of(model: str) -> Path | None:
    """Return a model's folder on this machine, or None; no weights are read."""
    if model.partition("@")[0] == weights.NAME:
        return weights.gguf_file()
    name, pinned = _split_name(model)
    folder = models_dir() / name
    if pinned is None and _complete(folder):
        return folder
    return _snapshot(name, pinned)


def identity_of(model: str) -> str:
    """Return the identity, `owner/name@REVISION`, of a model named as in profiles."""
    if model.partition("@")[0] == weights.NAME:
        return weights.identity()
    name, pinned = _split_name(model)
    if pinned is not None:
        return f"{name}@{pinned}"
    place, own = place_of(model), models_dir() / name
    if place == own:
        return f"{name}@{LOCAL}{digest_of_folder(own)[:DIGITS]}"
    # The cache names a snapshot's folder after its commit.
    return f"{name}@{NOT_DOWNLOADED if place is None else place.name}"


def with_arguments(identity: str, arguments: Mapping[str, bool | int | float | str]) -> str:
    said = "&".join(f"{name}={json.dumps(value)}" for name, value in sorted(arguments.items()))
    return f"{identity}?{said}" if said else identity


def without_arguments(identity: str) -> tuple[str, dict[str, Any]]:
    """Split an identity into that of the model's files and its chat-template arguments."""
    plain, _, said = identity.partition("?")
    pairs = (pair.partition("=") for pair in said.split("&") if pair)
    return plain, {name: json.loads(value) for name, _, value in pairs}


def policy_name(settings: Mapping[str, Any], trained: str | None) -> str:
    """Return a policy's name in requests: from the stage that trained it, or its hub name."""
    return f"policy-{trained[:12]}" if trained else str(settings["policy"]).partition("@")[0]


def folder_of(identity: str) -> Path:
    """Return the folder of a model's files, after checking them against the identity."""
    name, _, revision = identity.partition("@")
    if name == weights.NAME:
        return weights.folder()
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


def resolve(identity: str) -> Path:
    """Return the folder of any world's model, with the chat-template arguments of its identity."""
    if files.has(identity):
        return files.resolve(identity)
    plain, told = without_arguments(identity)
    if not told:
        return folder_of(plain)
    from harness.models.loading import with_template_arguments

    folder = folder_of(plain)  # part of the name, because the checkpoint links to its files
    name = fingerprint_of([identity, str(folder)])[:DIGITS]
    return with_template_arguments(folder, told, work_dir() / "templates" / name)


def policy_folder(ctx: StageContext) -> Path:
    """Return the folder of a stage's policy: from an earlier stage, or the base policy."""
    if "policy" in ctx.inputs:
        return ctx.inputs["policy"] / "model"
    return resolve(str(ctx.settings["policy"]))


def download_line(identity: str) -> str:
    name, _, revision = identity.partition("@")
    gated = (
        f"if it is gated, accept its license at https://huggingface.co/{name} and type "
        "`hf auth login`"
    )
    if revision != NOT_DOWNLOADED:
        return f"`hf download {name} --revision {revision}` ({gated})"
    return f"`hf download {name}` (or put it at {models_dir() / name}; {gated})"


def digest_of_folder(folder: Path) -> str:
    """Return the sha256 over names and contents of the model files that a loader reads."""
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:DIGITS]
    kept, known, found = work_dir() / "digests" / f"{name}.json", dict[str, Any](), dict[str, Any]()
    with suppress(OSError, ValueError):  # unknown digests are recomputed
        known = json.loads(kept.read_text(encoding="utf-8"))
    for path in sorted(p for p in folder.iterdir() if p.suffix in READ_BY_LOADERS and p.is_file()):
        stamp = [path.stat().st_size, path.stat().st_mtime_ns]
        entry = known.get(path.name, [])
        found[path.name] = entry if entry[:2] == stamp else [*stamp, sha256_of(path)]
    if found != known:
        with suppress(OSError):  # work without the cache if it cannot be written
            write_whole(kept, json.dumps(found))
    lines = "".join(f"{name}\0{sha256}\n" for name, (_, _, sha256) in found.items())
    return hashlib.sha256(lines.encode()).hexdigest()


def _split_name(model: str) -> tuple[str, str | None]:
    name, at, commit = model.partition("@")
    if not _NAME.fullmatch(name) or (at and not _COMMIT.fullmatch(commit)):
        raise UserError(
            f"`{model}` is not a model of the hub; write `owner/name`, or `owner/name@` and a "
            f"commit of 40 digits (a model of your own is a folder `owner/name` in {models_dir()})"
        )
    return name, commit or None


def _snapshot(name: str, commit: str | None) -> Path | None:
    """Return the folder of a complete model in the hub's cache, or None."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(name, revision=commit, local_files_only=True, **FILES))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return found if _complete(found) else None


def _complete(folder: Path) -> bool:
    """Return whether a folder has a configuration and all weight files."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        # The loader rejects pickled weights, with advice.
        return any(path.suffix in (".safetensors", ".bin", ".pt") for path in folder.iterdir())
    try:
        listed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError):
        return False
    return all((folder / str(name)).is_file() for name in listed)
