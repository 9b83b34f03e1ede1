"""What the freeze of the embedded world covers: every part that determines a number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from harness.registry.profile import Profile
from harness.registry.recipe import Choice, Reach
from harness.worlds.embedded import choosing, files, texts
from harness.worlds.embedded import language as lang
from harness.worlds.embedded.creator import METHODS, EmbeddedCreator
from harness.worlds.embedded.judge import JUDGES, GivenAnswer
from harness.worlds.freeze import digest, method, rewrites, sizes

SAMPLED = 200
"""Number of human prompts rewritten and chosen from, and of benchmark items judged."""

OTHERS = {
    "pairs": {"open_cut"},
    "selection": {"oracle_answers"},
    "training": {"rloo": {"micro_batch"}},
}
"""Settings that came after the freeze, for other worlds; at `micro` they have no effect."""


def parts(profile: Profile) -> dict[str, str]:
    card, folder = files.card(), files.folder()
    human = texts.read_prompts(folder / card.assets["prompts"]["path"])[:SAMPLED]
    # Synthetic accuracies: 0.0 to 0.9 in steps of 0.1, cycling over the names by rank.
    taught = choosing.taught_by_name({name: at % 10 / 10 for at, name in enumerate(texts.RANKED)})
    names = [choosing.names_of(text) for text in human]
    own = METHODS["evol_instruct"]
    creators = {
        **{f"creator {scheme}": EmbeddedCreator(METHODS[scheme], "topic") for scheme in METHODS},
        **{f"reach {reach}": EmbeddedCreator(own, reach) for reach in get_args(Reach)},
    }
    chosen = {
        choice: choosing.choose(names, taught, SAMPLED // 4, choice) for choice in get_args(Choice)
    }
    judged = {name: _judged(name, folder / card.assets[name]["path"]) for name in JUDGES}
    return {
        **{f"file {name}": asset["sha256"] for name, asset in card.assets.items()},
        **{name: rewrites(human, creator) for name, creator in creators.items()},
        **{f"oracle {choice}": digest(places) for choice, places in chosen.items()},
        **{f"judge {name}": digest(judgments) for name, judgments in judged.items()},
        **sizes(profile, OTHERS),
        **method(),
    }


def _judged(name: str, path: Path) -> list[str]:
    """Return a judge's replies when every third item, and the two after it, get its answer."""
    items = texts.read_items(path)[:SAMPLED]
    tasks = [lang.parse(item.turn_1) for item in items]
    right = [lang.write_list(task.answer()) for task in tasks if task is not None]
    answers = {
        (item.item_id, turn): GivenAnswer(right[at - at % 3], 1)
        for at, item in enumerate(items)
        for turn in (1, 2)
    }
    judgments, _ = JUDGES[name](items, answers)
    # Keep six decimals of a preference: the last digits differ between processors.
    return [re.sub(r"(\.\d{6})\d+", r"\1", judgment["reply"]) for judgment in judgments]
