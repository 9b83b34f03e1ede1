"""Which rewrites are no prompt: found by their form, each with a reason.

Such a rewrite is unusable; it is counted under its reason and tried again. The reasons, in the
order they are looked for (the first that holds is the one counted):

- `empty`: no letter and no digit;
- `leftover`: a tag, heading or placeholder of a template, or eight words in a row of what the model
  was told;
- `unchanged`: the parent, but for case, punctuation and white space;
- `too long`: more than `TIMES` times the parent's characters and `MORE`;
- `nothing new`: no word that the parent has not.

No language is read, so that a refusal or an answer in the place of a prompt passes where it has the
form that was asked for; where a scheme has the rewrite stand between tags, mostly it has not. What
the parent has as well counts for nothing. All functions are pure. Their meaning is numbered
(`RULES_VERSION`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

RULES_VERSION = 2
"""Raised by a person when a rule's meaning changes."""

REASONS = ("empty", "leftover", "unchanged", "too long", "nothing new")

TIMES, MORE = 3.0, 1200
"""Ours: templates ask for 10 to 20 words more, or about the same length; four rewrites in a chain
may each take that, and short parents may grow."""

ECHO = 8
"""Words in a row of the instructions that make a leftover."""

_MARKS = re.compile(
    r"</?(?:new_)?(?:prompt|instruction)>"
    r"|\{(?:prompt|instruction|given_prompt|method)\}"
    r"|#+ ?[\w -]{0,24}\b(?:prompt|instruction) ?#+",
    re.IGNORECASE,
)
"""Tags, placeholders that nobody filled in, and headings such as `#Rewritten Prompt#`."""


def why_unusable(text: str, parent: str, told: Iterable[str] = ()) -> str | None:
    """Return why a rewrite cannot be used, one of `REASONS`, or None if nothing speaks against it.

    `told` are the messages the model was given, without the prompt in them.
    """
    said, before = normalised(text), normalised(parent)
    if not said:
        return "empty"
    if _has_leftover(text, parent, told):
        return "leftover"
    if said == before:
        return "unchanged"
    if len(text) > TIMES * len(parent) + MORE:
        return "too long"
    return "nothing new" if set(said.split()) <= set(before.split()) else None


def normalised(text: str) -> str:
    """Return what a text says: letters, digits and symbols in lower case, one space between words.

    Compatible forms (full-width letters, ligatures) become one, and accents stay.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(map(_telling, folded)).split())


@lru_cache(maxsize=4096)
def _telling(character: str) -> str:
    """Return a character that tells prompts apart, or a space."""
    # Operators are what sets formulas and code apart; quotes, commas and stops are not.
    kept = character.isalnum() or character in "*/%&@\\"
    kept = kept or unicodedata.category(character) in ("Mn", "Mc", "Sm", "Sc", "So")
    return character if kept else " "


def _has_leftover(text: str, parent: str, told: Iterable[str]) -> bool:
    there = {mark.casefold() for mark in _MARKS.findall(parent)}
    if any(mark.casefold() not in there for mark in _MARKS.findall(text)):
        return True
    mine = _runs(text) - _runs(parent)
    return any(not mine.isdisjoint(_runs_told(message)) for message in told)


@lru_cache(maxsize=64)
def _runs_told(message: str) -> set[tuple[str, ...]]:
    return _runs(message)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = normalised(text).split()
    return {tuple(words[i : i + ECHO]) for i in range(len(words) - ECHO + 1)}
