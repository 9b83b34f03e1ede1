"""Writing a policy's folder: a copy of the trained files, the card and the lineage, or nothing.

Files are copied, not linked, so that the folder may lie on another disk and be changed without
harm to the store. It is written beside its place and renamed when it is whole.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.errors import HarnessError, UserError
from harness.export.card import CARD, card_of
from harness.export.lineage import lineage
from harness.export.policy import TrainedPolicy, check_trained
from harness.runtime.files import FileEntry, explained, seal_files
from harness.runtime.manifest import write_json
from harness.runtime.provenance import git_state
from harness.runtime.store import Store

LINEAGE = "lineage.json"

MODEL = "model/"
"""Where a training stage's output has the policy."""

SUFFIXES = (".json", ".safetensors", ".jinja", ".model", ".txt")
"""Files of a checkpoint; nothing that could run code when it is read is among them."""


def export(
    policy: TrainedPolicy, store: Store, target: Path, root: Path
) -> Mapping[str, FileEntry]:
    """Write a trained policy's folder, and return its files by name.

    Args:
        policy: the policy.
        store: the store that has it.
        target: the folder to write; it does not exist, or is empty.
        root: the checkout whose commit is recorded.

    Raises:
        UserError: the policy is not trained, or the folder has something in it.
        HarnessError: the disk is full, or a copy differs from what was trained.
    """
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
    """Check that a folder can be written.

    Raises:
        UserError: something is there.
    """
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
        if not name.startswith(MODEL) or not name.endswith(SUFFIXES):
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
