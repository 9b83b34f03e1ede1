"""Where a profile's models are: on this machine with their bytes, or behind endpoints.

*On this machine.* A profile names a model as on the hub, `owner/name`, or at a commit,
`owner/name@<40 digits>`. It is looked for in the folder `owner/name` of the local models
(`HARNESS_MODELS`), whose revision is a digest of the files that a loader reads, and in the hub's
cache, where `hf download` puts models and the revision is the commit. A pinned one is looked for
in the cache alone. What is in neither has the revision `not-downloaded`: a run can be planned with
it, and nothing can be computed. Where a chat template is given arguments of its own, they follow,
as in `owner/name@REVISION?enable_thinking=false`.

*Behind endpoints.* Which model rewrites is what a run *is*; where it is served, with which key, how
many requests at once and for how much money is not, and stands in no declaration. For each role
(`CREATOR` rewrites prompts, `SCORER` judges them, `JUDGE` judges a benchmark's answers, `SOLVER` is
the policy where an endpoint serves it) the variables `HARNESS_CREATOR_URL`, `_KEY`, `_CONCURRENCY`,
`_TIMEOUT` (seconds that a reply may take) and `_PRICE` are read. Without an address
it is the seller's own, which takes the seller's key, sent nowhere else. A judge that a plug-in adds
is a function here, and free. For a role that the harness serves itself it sets these variables for
the processes that ask, and `_KEPT_AS`, under which replies are kept: the address is another with
each start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.endpoint.budget import Ledger, shared_file
from harness.endpoint.client import Client, ReplyCache, ServedModel
from harness.endpoint.connection import SELLERS, TIMEOUT_S, Endpoint, FunctionEndpoint
from harness.endpoint.prices import Price, parse_price, read_prices
from harness.endpoint.request import PLAIN, ChatParameters, chat_parameters_of
from harness.errors import UserError
from harness.extensions import JUDGES
from harness.foreign import READ_BY_LOADERS
from harness.project import models_dir, work_dir
from harness.runtime.files import sha256_of, write_whole
from harness.runtime.stage import Json

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


Role = Literal["CREATOR", "SCORER", "JUDGE", "SOLVER"]

CONCURRENCY = 8
MOST_CONCURRENCY = 256


@dataclass(frozen=True)
class Access:
    """How a model is reached: its endpoint or a plug-in's function, and at what price.

    The price is None where it is not known; the settings that a model takes (`parameters`) follow
    from its name alone, so that they are part of a run.
    """

    model: str
    server: Endpoint | FunctionEndpoint
    concurrency: int
    """Most requests at once."""
    price: Price | None
    parameters: ChatParameters

    def served(
        self, ledger: Ledger | None = None, settings: Mapping[str, Json] | None = None
    ) -> ServedModel:
        """Return the model behind a client that keeps its replies in the work folder.

        Without a ledger that of the run counts what is spent.
        """
        ledger = ledger or Ledger(_number("HARNESS_BUDGET_USD"), shared_file())
        cache = ReplyCache(work_dir() / "replies")
        client = Client(self.server, cache, ledger, self.price, parameters=self.parameters)
        return ServedModel(client, self.model, settings or {}, self.concurrency)


def price_of(role: Role, model: str) -> Price | None:
    """Return the price of a role's model: the user's, else the list's; None if neither has one."""
    if role == "JUDGE" and model in JUDGES:
        return Price(0.0, 0.0)
    variable = f"HARNESS_{role}_PRICE"
    text = os.environ.get(variable)
    return parse_price(variable, text) if text else read_prices().of(model)


def access_to(
    role: Role, model: str, timeout_s: float = TIMEOUT_S, *, keyless: bool = False
) -> Access:
    """Return how a role's model is reached; `keyless` where perhaps nothing is sent.

    Raises:
        UserError: Nothing says where, a key is lacking, or a variable cannot be read.
    """
    if role == "JUDGE" and model in JUDGES:
        return Access(model, FunctionEndpoint(model), CONCURRENCY, Price(0.0, 0.0), PLAIN)
    url, key_variable = _place(role, model)
    price = price_of(role, model)
    at_once = _number(f"HARNESS_{role}_CONCURRENCY") or CONCURRENCY
    if at_once != int(at_once) or at_once > MOST_CONCURRENCY:
        raise UserError(
            f"HARNESS_{role}_CONCURRENCY is {at_once:g}; give a whole number from 1 to "
            f"{MOST_CONCURRENCY}"
        )
    timeout_s = _number(f"HARNESS_{role}_TIMEOUT") or timeout_s
    server = Endpoint(url, key_variable, timeout_s, os.environ.get(f"HARNESS_{role}_KEPT_AS"))
    if not keyless:
        server.check_key()
    return Access(model, server, int(at_once), price, chat_parameters_of(model))


def _place(role: Role, model: str) -> tuple[str, str]:
    if url := os.environ.get(f"HARNESS_{role}_URL"):
        return url, f"HARNESS_{role}_KEY"
    for beginning, place in SELLERS.items():
        if model.startswith(beginning):
            return place
    raise UserError(
        f"Nothing says where the model {model} is served; declare it in the profile's `serving`, "
        f"or name the address of an endpoint that has it in HARNESS_{role}_URL"
    )


def _number(variable: str) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise UserError(f"{variable} is `{text}`; give a number, 0 or more")
    return value
