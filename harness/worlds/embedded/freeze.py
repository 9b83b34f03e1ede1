"""The freeze: what decides the numbers of eva was fixed before the first of them was computed.

`frozen.json` lies beside the world's card. It has the time of the freeze and a digest of each part
that decides a number: the world's files, what its creator makes of the human prompts, and the
hyperparameters of the profile. Whoever publishes a table writes when its rows of eva were trained;
`harness verify` compares. A part that changed since, or a row of eva that is older than the freeze,
is a failure, and the mend is to freeze again and to compute every row of eva anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from harness.eva.evolving import Prompt, evolve
from harness.registry.profile import Profile
from harness.worlds.embedded import files, texts
from harness.worlds.embedded.creator import METHODS, EmbeddedCreator

FROZEN = "frozen.json"
"""The file beside the card."""

REWRITTEN = 200
"""Human prompts whose rewrites stand for the creator."""

SIZES = ("x", "generation", "pairs", "selection", "training")
"""The parts of a profile that decide numbers, beside the world's files."""


@dataclass(frozen=True)
class Freeze:
    """When the world was frozen (ISO 8601, UTC), and the digest of each part then."""

    at: str
    parts: Mapping[str, str]

    def changed(self, profile: Profile) -> list[str]:
        """Return the parts that are others now."""
        now = parts(profile)
        return sorted(name for name in {*self.parts, *now} if self.parts.get(name) != now.get(name))


def parts(profile: Profile) -> dict[str, str]:
    """Return the digest of each part that decides a number, as it is now."""
    card = files.card()
    human = texts.read_prompts(files.folder() / card.assets["prompts"]["path"])[:REWRITTEN]
    starts = [Prompt(f"h{place}", text) for place, text in enumerate(human)]
    rewrites = {
        scheme: [
            child.prompt
            for child in evolve(
                starts, EmbeddedCreator(METHODS[scheme]), evolutions=4, retries=2, seed=0
            ).prompts
        ]
        for scheme in METHODS
    }
    sizes = profile.model_dump(mode="json", include=set(SIZES))
    return {
        **{f"file {name}": asset["sha256"] for name, asset in card.assets.items()},
        **{f"creator {scheme}": _digest(texts_of) for scheme, texts_of in rewrites.items()},
        **{f"profile {name}": _digest(sizes[name]) for name in SIZES},
    }


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def freeze(profile: Profile) -> Freeze:
    """Freeze the world: write down what decides its numbers now."""
    made = Freeze(datetime.now(UTC).isoformat(timespec="seconds"), parts(profile))
    text = json.dumps(vars(made), indent=1, sort_keys=True) + "\n"
    (files.folder() / FROZEN).write_text(text, encoding="utf-8")
    return made


def frozen() -> Freeze | None:
    """Return the freeze of the world, None where it never was."""
    try:
        data = json.loads((files.folder() / FROZEN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Freeze(data["at"], data["parts"])
