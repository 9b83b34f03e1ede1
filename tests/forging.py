"""Copies of what is published; and changes, with new digests, as a careful forger makes them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.project import results_dir
from harness.report.publication import DIGESTS, REPORT, read_index, write_index
from harness.runtime.files import sha256_of


def copy_published(place: str, results: Path) -> None:
    """Copy one published place, and what the index says of it."""
    shutil.copytree(results_dir() / place, results / place)
    known = read_index(results) if (results / "index.json").exists() else {}
    write_index(results, known | {place: read_index(results_dir())[place]})


def seal(folder: Path) -> None:
    """Let the digests be those of the files as they are."""
    digests = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    digests["files"] = {name: sha256_of(folder / name) for name in digests["files"]}
    (folder / DIGESTS).write_text(json.dumps(digests), encoding="utf-8")


def forge(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a published report."""
    data = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    change(data)
    (folder / REPORT).write_text(json.dumps(data), encoding="utf-8")
    seal(folder)
