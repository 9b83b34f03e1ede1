"""The freeze: everything that determines eva's numbers was fixed before any were computed.

A world of our own has a file `frozen.json` with the time of its freeze and a digest of each part
that determines a number. `harness verify` fails if a part has changed or a published eva row
predates the freeze; the fix is to freeze again and recompute every eva row.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np

from harness.errors import UserError
from harness.eva.evolving import Prompt, Rewriter, evolve
from harness.eva.informativeness import informativeness, select, weights
from harness.eva.pairs import best_against_worst, mix
from harness.evaluation.files import Answer
from harness.registry.profile import INSTRUCTIONS, WORLD, Profile
from harness.registry.recipe import Choice, Reach
from harness.worlds.embedded import choosing, files, texts
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.creator import METHODS, EmbeddedCreator
from harness.worlds.embedded.judge import JUDGES
from harness.worlds.instructions import creator as instructions
from harness.worlds.instructions.creator import RuleCreator
from harness.worlds.instructions.kinds import KINDS
from harness.worlds.instructions.rules import RULES, task_of
from harness.worlds.instructions.tasks import PARTS, prompts
from harness.worlds.instructions.weights import identity
from harness.worlds.stage_io import write_json

FROZEN = "frozen.json"

SAMPLED = 200
"""Number of prompts rewritten, chosen from and rewarded, and of benchmark items judged."""

SIZES = ("x", "generation", "pairs", "selection", "training")
"""The parts of a profile that determine numbers, besides the world's files."""

LATER_SETTINGS = {
    "pairs": {"open_cut"},
    "selection": {"oracle_answers"},
    "training": {"rloo": {"micro_batch"}},
}
"""Settings added after the embedded world's freeze; they have no effect at `micro`."""

METRICS = ("a_min", "a_avg", "a_dis", "var", "mean", "mean_inv", "a_min_inv", "uniform")


@dataclass(frozen=True)
class Freeze:
    """When a world was frozen (ISO 8601, UTC), and each part's digest at that time."""

    at: str
    parts: Mapping[str, str]

    def changed(self, now: Mapping[str, str]) -> list[str]:
        return sorted(name for name in {*self.parts, *now} if self.parts.get(name) != now.get(name))


def freeze_world(profile: Profile) -> Freeze:
    """Record what determines a world's numbers; to be done before any eva row is run."""
    covered = _coverage(profile)
    if covered is None:
        raise UserError(f"`{profile.name}` has prompts of its own, which no freeze covers")
    folder, parts = covered
    made = Freeze(datetime.now(UTC).isoformat(timespec="seconds"), parts(profile))
    write_json(folder / FROZEN, vars(made))
    return made


def freeze_of(profile: Profile) -> tuple[Freeze, dict[str, str]] | None:
    """Return the freeze of a profile's world and its parts as they are now; None if not frozen."""
    covered = _coverage(profile)
    if covered is None or not (covered[0] / FROZEN).exists():
        return None
    folder, parts = covered
    return Freeze(**json.loads((folder / FROZEN).read_text(encoding="utf-8"))), parts(profile)


def _coverage(profile: Profile) -> tuple[Path, Callable[[Profile], dict[str, str]]] | None:
    """Return a world's folder and the function that digests its parts; None for other prompts."""
    if profile.prompts.source == WORLD:
        return files.folder(), embedded_parts
    if profile.prompts.source == INSTRUCTIONS:
        return Path(instructions.__file__).parent, instruction_parts
    return None


def embedded_parts(profile: Profile) -> dict[str, str]:
    card, folder = files.card(), files.folder()
    human = texts.read_prompts(folder / card.assets["prompts"]["path"])[:SAMPLED]
    # Synthetic accuracies: 0.0 to 0.9 in steps of 0.1, cycling over the names by rank.
    taught = choosing.taught_by_name({name: at % 10 / 10 for at, name in enumerate(texts.RANKED)})
    names = [choosing.names_of(text) for text in human]
    own = METHODS["evol_instruct"]
    creators = {
        **{f"creator {name}": EmbeddedCreator(METHODS[name], "topic") for name in METHODS},
        **{f"reach {reach}": EmbeddedCreator(own, reach) for reach in get_args(Reach)},
    }
    chosen = {
        choice: choosing.choose(names, taught, SAMPLED // 4, choice) for choice in get_args(Choice)
    }
    judged = {name: _judged(name, folder / card.assets[name]["path"]) for name in JUDGES}
    return {
        **{f"file {name}": asset["sha256"] for name, asset in card.assets.items()},
        **{name: _rewrites(human, creator) for name, creator in creators.items()},
        **{f"oracle {choice}": _digest(places) for choice, places in chosen.items()},
        **{f"judge {name}": _digest(judgments) for name, judgments in judged.items()},
        **_sizes(profile, LATER_SETTINGS),
        **_method(),
    }


def _judged(name: str, path: Path) -> list[str]:
    """Return a judge's replies when every third item, and the two after it, get its answer."""
    items = texts.read_items(path)[:SAMPLED]
    tasks = [lang.parse(item.turn_1) for item in items]
    right = [lang.write_list(task.answer()) for task in tasks if task is not None]
    answers = {
        item.item_id: Answer((right[at - at % 3],) * 2, tokens=1) for at, item in enumerate(items)
    }
    judgments, _ = JUDGES[name](items, answers)
    # Keep six decimals of a preference: the last digits differ between processors.
    return [re.sub(r"(\.\d{6})\d+", r"\1", judgment["reply"]) for judgment in judgments]


def instruction_parts(profile: Profile) -> dict[str, str]:
    human, methods = prompts("prompts", SAMPLED), instructions.METHODS
    return {
        **{f"prompts {name}": _digest(prompts(name, 10 * SAMPLED)) for name in PARTS},
        **{f"creator {name}": _rewrites(human, RuleCreator(methods[name])) for name in methods},
        "rewards": _digest([RULES.score(prompt, _answers(prompt)) for prompt in human]),
        "policy": identity(),
        **_sizes(profile),
        **_method(),
    }


def _answers(prompt: str) -> list[str]:
    """Return answers that follow some kinds of instruction each, about the prompt's subject."""
    about = f"This is a short text about {task_of(prompt).subject} and little else."
    return [
        about,
        about.lower(),
        about.upper(),
        f'"{about}"',
        f"Well, {about}! Is it good? P.S. It is very good.",
        f"<<Title>>\n* one *thing*\n* [name] {about}\n***\nThe end.",
        f"Section 1\n{about}\nSection 2\n{about}",
        " ".join(str(value) for kind in KINDS.values() for value in kind.values) + f" {about}",
    ]


def _rewrites(human: Sequence[str], creator: Rewriter) -> str:
    starts = [Prompt(f"h{place}", text) for place, text in enumerate(human)]
    made = evolve(starts, creator, evolutions=4, retries=2, seed=0)
    return _digest([child.prompt for child in made.prompts])


def _sizes(profile: Profile, others: Any = None) -> dict[str, str]:
    """Return the digests of a profile's parts, without `others`: settings, as pydantic excludes."""
    found = profile.model_dump(mode="json", include=set(SIZES), exclude=others)
    return {f"profile {name}": _digest(found[name]) for name in SIZES}


def _method() -> dict[str, str]:
    """Return the digests of what eva makes of fixed rewards."""
    rewards = np.random.default_rng(0).normal(size=(60, 6)).round(2)
    values = {name: informativeness(rewards, name) for name in METRICS}
    chosen = {
        f"{name} {sampling}": select(weights(own, name), 15, sampling, np.random.default_rng(1))
        for name, own in values.items()
        for sampling in ("weighted", "greedy")
    }
    mixed = mix(range(60), range(60, 120), 40, 0.8, np.random.default_rng(2))
    return {
        "method values": _digest({name: own.round(9).tolist() for name, own in values.items()}),
        "method choices": _digest({name: places.tolist() for name, places in chosen.items()}),
        "method pairs": _digest([places.tolist() for places in best_against_worst(rewards)]),
        "method mix": _digest(mixed),
    }


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
