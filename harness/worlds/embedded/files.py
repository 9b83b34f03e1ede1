"""The embedded world's files, listed with digests in `card.json`.

An identity is `<version>/<asset>@<digest>`; resolving one verifies the bytes on disk.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.project import PACKAGE
from harness.runtime.files import sha256_of

VERSION = "micro-4"
"""Version of the world. Changing any file or the language requires a new one (adding a file does
not: no earlier stage can have read it)."""

SHIPPED = PACKAGE / "worlds" / "embedded" / "world"

_MODELS = "theta0 rm_pointwise rm_pointwise_large rm_pairwise rm_pairwise_large".split()
_TEXTS = "prompts matched off_target arena_hard alpaca_eval mt_bench validation".split()

ASSETS = {name: name for name in _MODELS} | {name: f"{name}.parquet" for name in _TEXTS}
"""Path of each asset in the world's folder."""

RESTORE = (
    "restore it from version control, or name another world, made by `tools/build_micro.py`, in "
    "HARNESS_WORLD"
)

DIGITS = 16  # hex digits of the digest in an identity


@dataclass(frozen=True)
class Card:
    """The world's version, the path and digest of each asset, and measurements (`notes`)."""

    version: str
    assets: dict[str, dict[str, str]]
    notes: dict[str, Any]

    def identity(self, name: str) -> str:
        if name not in self.assets:
            raise HarnessError(f"the embedded world {self.version} has no asset `{name}`")
        return f"{self.version}/{name}@{self.assets[name]['sha256'][:DIGITS]}"


def folder() -> Path:
    """Return the world's folder: `HARNESS_WORLD` if set, else the shipped one."""
    override = os.environ.get("HARNESS_WORLD")
    return Path(override).expanduser().resolve() if override else SHIPPED


def digest(path: Path) -> str:
    """Return the sha256 of a file, or of a folder's weights, configuration and tokenizer."""
    if path.is_file():
        return sha256_of(path)
    total = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.suffix in {".safetensors", ".json", ".jinja"}:
            total.update(f"{file.relative_to(path)}\0{digest(file)}\n".encode())
    return total.hexdigest()


def card() -> Card:
    return _read_card(folder())


def has(identity: str) -> bool:
    """Return whether an identity belongs to any version of the embedded world."""
    return re.match(r"micro-\d+/", identity) is not None


def name_of(identity: str) -> str:
    """Return the asset name from an identity (`<version>/<name>@<digest>`)."""
    return identity.partition("/")[2].partition("@")[0]


def resolve(identity: str) -> Path:
    """Return the path of an asset by its identity, after checking its digest."""
    return _resolve(identity, folder())


def check() -> None:
    for name in card().assets:
        resolve(card().identity(name))


def write_card(target: Path, notes: dict[str, Any]) -> Card:
    """Write the card of the world in a folder: its assets' digests and the measurements."""
    assets = {
        name: {"path": path, "sha256": digest(target / path)} for name, path in ASSETS.items()
    }
    text = json.dumps({"version": VERSION, "assets": assets, "notes": notes}, indent=1)
    (target / "card.json").write_text(text + "\n", encoding="utf-8")
    _read_card.cache_clear()
    return Card(VERSION, assets, notes)


@functools.cache
def _read_card(where: Path) -> Card:
    path = where / "card.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Card(data["version"], data["assets"], data["notes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarnessError(
            f"the embedded world's card {path} cannot be read ({error}); {RESTORE}"
        ) from error


@functools.cache
def _resolve(identity: str, where: Path) -> Path:
    name, _, expected = identity.partition("/")[2].partition("@")
    known = _read_card(where).assets.get(name)
    path = where / known["path"] if known else where / name
    if known is None or not path.exists():
        raise HarnessError(f"the embedded world's asset `{name}` is missing at {path}; {RESTORE}")
    if not digest(path).startswith(expected):
        raise HarnessError(f"the digest of {path} is not the one its card names; {RESTORE}")
    return path
