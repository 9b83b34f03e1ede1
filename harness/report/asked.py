"""Which seeds were last asked for, by table and profile.

A report without `--seeds` speaks of the seeds of the last run, so that what was started and is
not finished shows as missing instead of being left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HarnessError
from harness.store.faults import explained
from harness.store.scratch import scratch


def remember(work_dir: Path, table: str, profile: str, seeds: Sequence[int]) -> None:
    """Keep the seeds asked for of a table at a profile, in place of those before.

    Args:
        work_dir: The folder that runs write to.
        table: Id of the table.
        profile: Name of the profile.
        seeds: Root seeds, in order.

    Raises:
        StoreError: The disk is full, or the folder may not be written.
    """
    path = _path(work_dir, table, profile)
    with explained("keeping the seeds asked for", work_dir):
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch(work_dir / "asked" / "tmp", table) as folder:
            draft = folder / path.name
            draft.write_text(f"{json.dumps({'seeds': list(seeds)})}\n", encoding="utf-8")
            os.replace(draft, path)


def recall(work_dir: Path, table: str, profile: str) -> tuple[int, ...] | None:
    """Return the seeds last asked for of a table at a profile, None where there were none.

    Raises:
        HarnessError: The record is broken.
    """
    path = _path(work_dir, table, profile)
    try:
        with explained("reading the seeds asked for", work_dir):
            found = json.loads(path.read_text(encoding="utf-8"))
        seeds = tuple(found["seeds"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(path) from error
    if not seeds or not all(type(seed) is int for seed in seeds):
        raise _broken(path)
    return seeds


def _path(work_dir: Path, table: str, profile: str) -> Path:
    return work_dir / "asked" / profile / f"{table}.json"


def _broken(path: Path) -> HarnessError:
    return HarnessError(
        f"the record of the seeds last asked for, {path}, is broken: delete it, or name the seeds "
        "with `--seeds`"
    )
