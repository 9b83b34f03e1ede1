"""Recipes and settings in a few words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.registry.recipe import Recipe

_SAID = {"algorithm", "chain", "online.prompts", "creator.metric", "online.metric"}


def in_short(recipe: Recipe) -> str:
    """Return a recipe in one line: what always matters, then what is not the default."""
    from harness.registry.recipe import Online
    from harness.registry.recipe import Recipe as Defaults

    if recipe.algorithm is None:
        return "base model"
    online = recipe.online
    path = " → ".join(recipe.chain) if online is None else f"online on {online.prompts} prompts"
    settings = flattened(recipe.canonical())
    words = [f"{recipe.algorithm}: {path}"]
    words += [str(value) for key, value in settings.items() if key.endswith(".metric")]
    defaults = flattened(Defaults().model_dump() | {"online": Online().model_dump()})
    if recipe.informativeness_reward_model is None:
        # Then it follows from the reward model, which is said.
        settings.pop("informativeness_reward_model", None)
    words += [
        f"{key.rpartition('.')[2].replace('_', ' ')} {as_text(value)}"
        for key, value in settings.items()
        if key not in _SAID and defaults.get(key) != value
    ]
    return ", ".join(words)


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with dotted keys, as in `creator.metric`."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def as_text(value: Any) -> str:
    """Return a setting's value for people: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
