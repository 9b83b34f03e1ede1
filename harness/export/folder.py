"""Writing a policy's folder: a copy of the trained files, the card and the lineage, or nothing.

Files are copied, not linked, so that the folder may lie on another disk and be changed without
harm to the store. It is written beside its place and renamed when it is whole.

The lineage is every stage behind the policy, as the store's manifests say: inputs first, each with
its settings, its inputs' fingerprints, the digests of its files, its times and what it was
computed with. The last one trained the policy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError
from harness.export.policy import CARD, TrainedPolicy, card_of, check_trained
from harness.foreign import READ_BY_LOADERS
from harness.runtime.files import FileEntry, explained, seal_files
from harness.runtime.manifest import Manifest, write_json
from harness.runtime.provenance import git_state
from harness.runtime.store import Store

FORMAT = 1
"""Version of the form of `lineage.json`."""

_TOLD = ("kind", "version", "label", "settings", "inputs", "files", "started", "finished", "wall_s")


def lineage(
    policy: TrainedPolicy, store: Store, files: Mapping[str, FileEntry], commit: str | None
) -> dict[str, Any]:
    """Return a trained policy's lineage as JSON data; `commit` is the exporting checkout's."""
    run = policy.run
    stages = manifests_behind(policy.stage.fingerprint, store)
    return {
        "format": FORMAT,
        "run": run.run_id,
        "profile": run.profile,
        "scale": policy.profile.scale,
        "seed": run.seed,
        "recipe": run.recipe.canonical(),
        "base_model": policy.base,
        "rows": list(policy.places),
        "trained_by": policy.stage.fingerprint,
        "judged_by": {
            name: judge.fingerprint
            for name, judge in run.judges.items()
            if store.status(judge.fingerprint) == "done"
        },
        "exported_by_commit": commit,
        "commits": distinct(stage["provenance"]["commit"] for stage in stages),
        "versions": versions(stages),
        "stages": [
            {"fingerprint": stage["fingerprint"]}
            | {name: stage[name] for name in _TOLD}  # type: ignore[literal-required]
            | {"provenance": stage["provenance"]}
            for stage in stages
        ],
        "files": dict(files),
    }


def manifests_behind(fingerprint: str, store: Store) -> list[Manifest]:
    """Return the manifests of a stage and all stages behind it, inputs first."""
    found: dict[str, Manifest] = {}

    def visit(at: str) -> None:
        if at in found:
            return
        manifest = store.manifest(at)
        for before in manifest["inputs"].values():
            visit(before)
        found[at] = manifest

    visit(fingerprint)
    return list(found.values())


def versions(stages: Iterable[Manifest]) -> dict[str, list[str]]:
    """Return the versions of each library that stages were computed with, in order."""
    met: dict[str, dict[str, None]] = {}
    for stage in stages:
        for library, version in stage["provenance"]["versions"].items():
            if version is not None:
                met.setdefault(library, {})[version] = None
    return {library: list(seen) for library, seen in met.items()}


def distinct(values: Iterable[str | None]) -> list[str]:
    """Return the values that are there, each once and in order."""
    return list(dict.fromkeys(value for value in values if value is not None))


LINEAGE = "lineage.json"

MODEL = "model/"
"""Where a training stage's output has the policy."""


def export(
    policy: TrainedPolicy, store: Store, target: Path, root: Path
) -> Mapping[str, FileEntry]:
    """Write a trained policy's folder, and return its files by name; `root` is the checkout."""
    check_free(target)
    check_trained(policy, store)
    with explained(f"exporting {policy.title}", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            files = _fill(draft, policy, store, root)
            draft.chmod(0o755)  # a temporary folder is its maker's alone
            os.rename(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return files


def check_free(target: Path) -> None:
    """Check that a folder can be written."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UserError(f"{target} is no folder; give a new one with `--output`")
    if target.is_dir() and any(target.iterdir()):
        raise UserError(f"{target} is not empty; give a new folder with `--output`")


def _fill(draft: Path, policy: TrainedPolicy, store: Store, root: Path) -> Mapping[str, FileEntry]:
    """Write the folder's files; return their digests, that of the lineage excepted."""
    written = store.manifest(policy.stage.fingerprint)["files"]
    entry = store.open(policy.stage.fingerprint)
    for name in written:
        inner = name.removeprefix(MODEL)
        if not name.startswith(MODEL) or not name.endswith(READ_BY_LOADERS):
            continue
        copy = draft / inner
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(entry / name, copy)
    (draft / CARD).write_text(card_of(policy, store), encoding="utf-8")
    files = seal_files(draft)
    for inner in files.keys() - {CARD}:
        if files[inner] != written[MODEL + inner]:
            raise HarnessError(f"the copy of {inner} differs from the original; export it again")
    commit, _ = git_state(root)
    write_json(draft / LINEAGE, lineage(policy, store, files, commit))
    return files
