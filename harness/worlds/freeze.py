"""The freeze: everything that determines eva's numbers was fixed before any were computed.

A world of our own has a file `frozen.json` with the time of its freeze and a digest of each part
that determines a number. `harness verify` fails if a part has changed or a published eva row
predates the freeze; the fix is to freeze again and recompute every eva row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from harness.eva.evolving import Prompt, Rewriter, evolve
from harness.eva.informativeness import informativeness, select, weights
from harness.eva.pairs import best_against_worst, mix
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


def sizes(profile: Profile, others: Any = None) -> dict[str, str]:
    """Return the digests of a profile's parts, without `others`: settings, as pydantic excludes."""
    found = profile.model_dump(mode="json", include=set(SIZES), exclude=others)
    return {f"profile {name}": digest(found[name]) for name in SIZES}


def rewrites(prompts: Sequence[str], creator: Rewriter) -> str:
    """Return the digest of a creator's rewrites of prompts."""
    starts = [Prompt(f"h{place}", text) for place, text in enumerate(prompts)]
    made = evolve(starts, creator, evolutions=4, retries=2, seed=0)
    return digest([child.prompt for child in made.prompts])


METRICS = ("a_min", "a_avg", "a_dis", "var", "mean", "mean_inv", "a_min_inv", "uniform")


def method() -> dict[str, str]:
    """Return the digests of what the method makes of fixed rewards."""
    rewards = np.random.default_rng(0).normal(size=(60, 6)).round(2)
    values = {name: informativeness(rewards, name) for name in METRICS}
    chosen = {
        f"{name} {sampling}": select(weights(own, name), 15, sampling, np.random.default_rng(1))
        for name, own in values.items()
        for sampling in ("weighted", "greedy")
    }
    mixed = mix(range(60), range(60, 120), 40, 0.8, np.random.default_rng(2))
    return {
        "method values": digest({name: own.round(9).tolist() for name, own in values.items()}),
        "method choices": digest({name: places.tolist() for name, places in chosen.items()}),
        "method pairs": digest([places.tolist() for places in best_against_worst(rewards)]),
        "method mix": digest(mixed),
    }


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
