"""Where a policy comes from: every stage behind it, as the store's manifests say.

The stages come inputs first, each with its settings, its inputs' fingerprints, the digests of its
files, its times and what it was computed with. The last one trained the policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.export.policy import TrainedPolicy
from harness.runtime.files import FileEntry
from harness.runtime.manifest import Manifest
from harness.runtime.store import Store

FORMAT = 1
"""Version of the form of `lineage.json`."""

_TOLD = ("kind", "version", "label", "settings", "inputs", "files", "started", "finished", "wall_s")


def lineage(
    policy: TrainedPolicy, store: Store, files: Mapping[str, FileEntry], commit: str | None
) -> dict[str, Any]:
    """Return the lineage of a trained policy, as JSON data.

    Args:
        policy: the policy, which is trained.
        store: the store.
        files: the exported files by name.
        commit: of the checkout that exports; None where there is none.

    Raises:
        StoreError: a stage behind it is no longer in the store.
    """
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
    """Return the manifests of a stage and all stages behind it, inputs first.

    Raises:
        StoreError: one of them is not in the store.
    """
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
