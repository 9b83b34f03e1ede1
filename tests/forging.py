"""Changes to what is published, with the digests that it then has, as a careful forger makes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.report.publication import DIGESTS, REPORT
from harness.runtime.files import sha256_of


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
