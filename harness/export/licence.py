"""Under which terms a policy may be used: those of the model it was trained from.

A model's own card names its licence in the block of YAML at its head. It is read where the model
lies on this machine; for models whose card is not here, what their publishers say is known below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessError
from harness.registry.yaml_reader import YamlFault, parse_yaml
from harness.worlds.lookup import resolve

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_HEAD = re.compile(r"\A---\s*\n(.*?)\n---\s*(\n|\Z)", re.DOTALL)

GEMMA_TERMS = "https://ai.google.dev/gemma/terms"

PUBLISHED: Mapping[str, tuple[str, str | None]] = {"google/gemma-": ("gemma", GEMMA_TERMS)}
"""Licence and its text, by how a model's name begins."""


@dataclass(frozen=True)
class Licence:
    """A licence by the hub's name for it, with an address of its text where one is known."""

    name: str
    link: str | None = None


def licence_of(base: str) -> Licence | None:
    """Return the licence of a model by its identity; None where nothing here says."""
    for beginning, (name, link) in PUBLISHED.items():
        if base.startswith(beginning):
            return Licence(name, link)
    try:
        card = resolve(base) / "README.md"
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
    except (HarnessError, OSError, UnicodeDecodeError):
        return None
    said = head_of(text).get("license")
    # A card is somebody's text: only what looks like the name of a licence is taken over.
    return Licence(said) if isinstance(said, str) and _NAME.fullmatch(said) else None


def head_of(card: str) -> Mapping[str, Any]:
    """Return the block of YAML at the head of a model card; empty where there is none."""
    match = _HEAD.match(card)
    try:
        found = parse_yaml(match[1]) if match else None
    except YamlFault:
        return {}
    return found if isinstance(found, dict) else {}
