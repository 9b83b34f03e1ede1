"""Pools of human prompts: a hub dataset at a pinned commit, or a local file.

A hub dataset is identified by its name, commit and splits; a file by the digest of its texts, which
are copied into the work folder under that digest when a run is planned.

Source: UltraFeedback's prompts as the authors use them, three splits concatenated (paper section 4
and footnote 5, authors' `shuffle_ds.py`).
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import HarnessError, UserError
from harness.evaluation.files import read_records
from harness.foreign import error_in_a_line
from harness.project import work_dir
from harness.runtime.files import write_whole
from harness.runtime.stage import Json, fingerprint_of
from harness.worlds.real.models import DIGITS

if TYPE_CHECKING:
    from harness.registry.profile import PromptSettings

COLUMN = "prompt"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def pool_settings(prompts: PromptSettings) -> dict[str, Json]:
    """Return the settings that identify a pool, copying a file's texts to the work folder."""
    source, path = prompts.source, Path(prompts.source)
    if not path.exists() and (work_dir() / path).exists():
        path = work_dir() / path
    if path.suffix == ".jsonl":
        name = _keep(read_local(path, prompts.splits))
        return {"source": f"local@{name[:DIGITS]}", "pool": {"digest": name}}
    if path.is_file() or not _HUB_NAME.fullmatch(source):
        raise UserError(
            f"`{source}` is not a source of prompts; give a .jsonl file, or a data set of the "
            "hub as owner/name"
        )
    if prompts.revision is None or not prompts.splits:
        raise UserError(
            f"the data set {source} can change; pin it by its commit in `prompts.revision` and "
            "name its `prompts.splits`"
        )
    pool: Json = {"hub": source, "revision": prompts.revision, "splits": list(prompts.splits)}
    return {"source": f"{source}@{prompts.revision[:DIGITS]}", "pool": pool}


def read_pool(settings: Mapping[str, Any]) -> list[str]:
    pool = settings["pool"]
    if "hub" in pool:
        return _load(pool["hub"], pool["splits"], pool["revision"])
    texts = _kept(pool["digest"])
    if texts is None:
        raise HarnessError(
            f"the prompts of this run are not at {_copy_of(pool['digest'])}, or are not what they "
            "were; start the run again with the file they came from, in a work folder "
            "(HARNESS_WORK) that can be written"
        )
    return texts


def size_of(settings: Mapping[str, Any]) -> int | None:
    """Return a pool's number of texts without contacting the hub; None if it is not here."""
    pool = settings["pool"]
    if "hub" not in pool:
        return len(read_pool(settings))
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface").expanduser()
    cache = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    # <cache>/<owner>___<name in the cache's own spelling>/<configuration>/<version>/<commit>
    owner = glob.escape(pool["hub"].partition("/")[0])
    for info in cache.glob(f"{owner}___*/*/*/{pool['revision']}/dataset_info.json"):
        with suppress(ValueError, KeyError):  # it was prepared for another selection of splits
            splits = json.loads(info.read_text(encoding="utf-8"))["splits"]
            return sum(int(splits[name]["num_examples"]) for name in pool["splits"])
    return None


def read_local(path: Path, splits: Sequence[str] = ()) -> list[str]:
    if splits:
        raise UserError(f"{path} is a single file and has no splits; leave `prompts.splits` out")
    if not path.is_file():
        raise UserError(f"there are no prompts at {path}; correct `prompts.source`")
    return _checked((row.get(COLUMN) for row in read_records(path)), str(path))


def _kept(name: str) -> list[str] | None:
    """Return the texts with a digest from the work folder, or None if they are not there."""
    path = _copy_of(name)
    with suppress(UserError):  # it is not there, or damaged
        texts = read_local(path)
        return texts if _digest_of(texts) == name else None
    return None


def _keep(texts: Sequence[str]) -> str:
    """Copy texts into the work folder unless already there; return their digest.

    Failing to write is not an error: a run checks for the copy before its first stage.
    """
    name = _digest_of(texts)
    if _kept(name) is None:
        with suppress(OSError):
            write_whole(_copy_of(name), "".join(json.dumps({COLUMN: t}) + "\n" for t in texts))
    return name


def _digest_of(texts: Sequence[str]) -> str:
    return fingerprint_of(list(texts), "prompts")


def _copy_of(name: str) -> Path:
    return work_dir() / "prompts" / f"{name}.jsonl"


def _load(source: str, splits: Sequence[str], revision: str) -> list[str]:
    """Return the prompts of a dataset's splits, concatenated in order."""
    from datasets import disable_progress_bars, load_dataset
    from datasets.exceptions import DatasetsError

    disable_progress_bars()
    try:
        parts = load_dataset(source, revision=revision, split=list(splits))
    except (DatasetsError, OSError, ValueError) as error:
        raise UserError(
            f"cannot read the prompts of {source}: {error_in_a_line(error)}; fetch it once by "
            "running with HF_HUB_OFFLINE=0, or name a local file in `prompts.source`"
        ) from error
    for split, part in zip(splits, parts, strict=True):
        if COLUMN not in part.column_names:
            raise UserError(f"the split {split} of {source} has no column `{COLUMN}`")
    return _checked((text for part in parts for text in part[COLUMN]), source)


def _checked(texts: Iterable[Any], where: str) -> list[str]:
    """Return the texts, raising a UserError if there are none or one is blank or not a string."""
    found = list(texts)
    for number, text in enumerate(found, start=1):
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"prompt {number} of {where} is blank or not text; remove it")
    if not found:
        raise UserError(f"there is no prompt in {where}; give at least one")
    return found


SHORTEST = 0.95
"""Minimum average piece size, as a share of x."""


def piece_bounds(size: int, x: int, pieces: int) -> list[int]:
    """Return the `pieces` + 1 boundaries of pieces of x prompts in a pool.

    If it is slightly too small for all (UltraFeedback's 59,720 make six "10K" splits), they are
    smaller, with sizes that differ by at most one.
    """
    if size >= x * pieces:
        return [x * piece for piece in range(pieces + 1)]
    if size < SHORTEST * x * pieces:
        raise UserError(
            f"{size} prompts are too few for {pieces} pieces of {x}; name a larger source, or "
            "fewer pieces in `prompts.available`"
        )
    return [size * piece // pieces for piece in range(pieces + 1)]


def cut(settings: Mapping[str, Any], size: int) -> list[int]:
    """Return the positions of a stage's prompts in a pool of `size` texts.

    The shuffle depends on the seed alone, so pieces of one seed never share a prompt, and matches
    `datasets.Dataset.shuffle(seed=...)`: with the authors' seed, 8964, the order is theirs.
    """
    x, pieces, first, count = (settings[name] for name in ("x", "pieces", "first", "count"))
    bounds = piece_bounds(size, x, pieces)
    last = (first + count) // x
    if first % x or count % x or last > pieces:
        raise UserError(
            f"prompts {first} to {first + count} are not whole pieces of {x} among {pieces}; ask "
            "for fewer, or raise `prompts.available`"
        )
    order = np.random.default_rng(settings["seed"]).permutation(size)
    return [int(i) for i in order[bounds[first // x] : bounds[last]]]
