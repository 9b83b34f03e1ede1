"""The freeze: everything that determines eva's numbers was fixed before any were computed.

A world of our own has a file `frozen.json` with the time of its freeze and a digest of each part
that determines a number. Published tables record when their eva rows were trained, and `harness
verify` compares. If a part has changed or an eva row predates the freeze, verification fails; the
fix is to freeze again and recompute every eva row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.registry.profile import Profile

FROZEN = "frozen.json"

SIZES = ("x", "generation", "pairs", "selection", "training")
"""The parts of a profile that determine numbers, besides the world's files."""


@dataclass(frozen=True)
class Freeze:
    """When a world was frozen (ISO 8601, UTC), and each part's digest at that time."""

    at: str
    parts: Mapping[str, str]

    def changed(self, now: Mapping[str, str]) -> list[str]:
        return sorted(name for name in {*self.parts, *now} if self.parts.get(name) != now.get(name))


def digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def sizes(profile: Profile, others: Mapping[str, Collection[str]] | None = None) -> dict[str, str]:
    """Return the digests of a profile's parts, without the settings `others` of each."""
    exclude = {name: set(own) for name, own in (others or {}).items()}
    found = profile.model_dump(mode="json", include=set(SIZES), exclude=exclude)
    return {f"profile {name}": digest(found[name]) for name in SIZES}


def write_freeze(folder: Path, parts: Mapping[str, str]) -> Freeze:
    made = Freeze(datetime.now(UTC).isoformat(timespec="seconds"), parts)
    text = json.dumps(vars(made), indent=1, sort_keys=True) + "\n"
    (folder / FROZEN).write_text(text, encoding="utf-8")
    return made


def read_freeze(folder: Path) -> Freeze | None:
    try:
        data = json.loads((folder / FROZEN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Freeze(data["at"], data["parts"])
