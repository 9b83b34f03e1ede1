"""Which rewrites are no prompt: found by rule, each with a reason.

A model asked for a new prompt may refuse, hand back the old one, leave pieces of its instructions
in the text, answer instead of asking, go on without end, or change the language. Such a rewrite is
unusable; it is counted under its reason and tried again. The reasons, in the order they are looked
for (the first that holds is the one counted):

- `empty`: no letter and no digit;
- `refusal`: the beginning says that the model will not or cannot do what it was asked;
- `leftover`: a heading or tag of a template, a placeholder, a phrase that announces the rewrite, or
  eight words in a row of what the model was told;
- `unchanged`: the parent, but for case, punctuation and white space;
- `too long`, `too short`: the length in characters against the parent's, see `Limits`;
- `language`: clearly another language or script than the parent's (`language`);
- `answer`: it begins as answers do, or says much and asks nothing (`answers`).

A rule can be wrong in both directions, and the cost is not the same: a bad prompt that passes is
one bad prompt among thousands, a good one that is thrown away is asked for again. Yet rules that
reject whole kinds of good prompts would change what is trained on. So nothing counts as evidence
that the parent has as well (a prompt about templates may name a placeholder), refusals are looked
for at the beginning alone, and where a rule is not sure the rewrite passes. The rules know English;
in other languages only `empty`, `unchanged`, `language`, lengths and tags are found.

All functions are pure. Their meaning is numbered (`RULES_VERSION`), because what they let through
is what is trained on.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from harness.worlds.real.answering_texts import is_answer
from harness.worlds.real.language import changed_language

RULES_VERSION = 1
"""Raised by a person when a rule's meaning changes."""

REASONS = (
    "empty",
    "refusal",
    "leftover",
    "unchanged",
    "too long",
    "too short",
    "language",
    "answer",
)

BEGINNING = 240
"""Characters of a text in which a refusal is read."""

ECHO = 8
"""Words in a row of the instructions that make a leftover."""


@dataclass(frozen=True)
class Limits:
    """How long a rewrite may be, in characters.

    Attributes:
        times: Longest, as a multiple of the parent ...
        more: ... and this many characters on top, so that short parents may grow.
        share: Shortest, as a share of the parent.
        fewest: A parent of at least so many characters is not rewritten into fewer.
    """

    times: float = 3.0
    more: int = 1200
    share: float = 0.04
    fewest: int = 8


LIMITS = Limits()
"""Ours: templates ask for 10 to 20 words more, or about the same length; four rewrites in a chain
may each take that. Methods in breadth may leave a long parent's pasted text behind."""


def why_unusable(
    text: str, parent: str, told: Iterable[str] = (), limits: Limits = LIMITS
) -> str | None:
    """Return why a rewrite cannot be used, one of `REASONS`, or None if nothing speaks against it.

    Args:
        text: The rewrite, as read from the reply.
        parent: The prompt it was made from.
        told: The messages the model was given, without the prompt in them.
        limits: How long it may be.
    """
    if not normalised(text):
        return "empty"
    if is_refusal(text) and not is_refusal(parent):
        return "refusal"
    if has_leftover(text, parent, told):
        return "leftover"
    if normalised(text) == normalised(parent):
        return "unchanged"
    if len(text) > limits.times * len(parent) + limits.more:
        return "too long"
    if len(text) < limits.share * len(parent) or len(text) < limits.fewest <= len(parent):
        return "too short"
    if changed_language(text, parent):
        return "language"
    if is_answer(text, parent):
        return "answer"
    return None


def normalised(text: str) -> str:
    """Return what a text says: letters, digits and symbols in lower case, one space between words.

    Compatible forms (full-width letters, ligatures) become one, and accents stay.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.translate(_TELLING).split())


class _Telling(dict[int, int]):
    """Maps characters that tell prompts apart to themselves and others to a space, once each."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        # Operators are what sets formulas and code apart; quotes, commas and stops are not.
        kept = character.isalnum() or character in "*/%&@\\"
        kept = kept or unicodedata.category(character) in ("Mn", "Mc", "Sm", "Sc", "So")
        self[code] = code if kept else ord(" ")
        return self[code]


_TELLING = _Telling()


_CANNOT = (
    r"(?: can ?not| can['’]?t| could ?n['’]?t| won['’]?t| will not| am (?:not able|unable) to|"
    r"['’]m (?:not able|unable|not allowed) to| am not (?:allowed|permitted) to|"
    r" (?:must|have to|need to) (?:\w+ly )?decline(?: to)?)(?: \w+ly)?"
)
_SERVE = (
    r"(?:assist|help|comply|fulfil|fulfill|participate|engage|rewrite|create|generate|provide|"
    r"produce|do (?:that|this)|continue|complete|process|support|answer (?:that|this)|respond)\b"
)
_SORRY = r"(?:i(?:['’]?m| am) (?:very |so |truly )?sorry|sorry|i apologi[sz]e|(?:my )?apologies)"
_ASKED = r"(?:this|that|the|your|such|any)(?: given)? (?:request|prompt|content|rewrite|version)"
_WRONG = (
    r"(?:is (?:inappropriate|harmful|not appropriate)|violates?|goes against|cannot be|can['’]t be|"
    r"contains? (?:harmful|inappropriate|offensive)|promotes?|involves (?:illegal|harmful))"
)

_REFUSALS = (
    # I'm sorry, but I can't help with that. Sorry, as an AI I am not able to write this.
    rf"^{_SORRY}\b[^.?!]{{0,60}}?\bi{_CANNOT} {_SERVE}",
    rf"^{_SORRY}\b[^.?!]{{0,40}}?{_ASKED} {_WRONG}",
    # I cannot assist with this request.
    rf"^(?:unfortunately,? )?i{_CANNOT} "
    r"(?:assist|comply|participate|help (?:you )?with (?:this|that))",
    rf"^(?:unfortunately,? )?i{_CANNOT} (?:fulfill?|process|rewrite|create|generate|provide|"
    rf"produce|write|complete|support|continue)\b[^.?!]{{0,60}}?\b{_ASKED}",
    r"^i (?:must|have to|need to) (?:respectfully |politely )?decline\b",
    # As an AI language model, I cannot ... I'm just a language model ...
    r"^as an? (?:responsible )?(?:ai|artificial intelligence|(?:large )?language model)\b"
    rf"[^.?!]{{0,40}}?,? i(?:{_CANNOT}| do not| don['’]t| am not| strive| aim to)\b",
    r"^i(?:['’]?m| am) (?:just|only) an? (?:\w+ )?(?:ai|language model)\b",
    # This request goes against my guidelines.
    rf"^{_ASKED} {_WRONG}",
)
_REFUSAL = re.compile("|".join(f"(?:{p})" for p in _REFUSALS), re.IGNORECASE)


def is_refusal(text: str) -> bool:
    """Return whether a text begins by refusing, as a model speaks; people complain otherwise."""
    beginning = " ".join(text[:BEGINNING].split()).lstrip("\"'“*# ")
    return _REFUSAL.search(beginning) is not None


_PROMPT_WORD = r"(?:prompt|question|instruction|task|query)"
_MADE = (
    r"(?:rewritten|re-written|evolved|revised|created|modified|reworked|rephrased|reformulated|"
    r"enhanced|upgraded|complicated)"
)
_MARKS = re.compile(
    "|".join(
        (
            # #Given Prompt#, # Rewritten Prompt #
            rf"#+ ?(?:the )?(?:given|original|new|{_MADE}) {_PROMPT_WORD} ?#+",
            # Rewritten prompt: at the start of a line, in bold or as a heading
            rf"^[\W_]{{0,9}}(?:the |my |your )?{_MADE} {_PROMPT_WORD}(?: is)?[*_ ]*:",
            r"^[\W_]{0,9}(?:the |my |your )?(?:given|new|original|old) prompt(?: is)?[*_ ]*:",
            # Here is the rewritten prompt
            r"^[\W_]{0,9}(?:(?:sure|certainly|of course|okay|ok|absolutely)[,.! ]+)?"
            rf"here(?:['’]?s| is) (?:the|a|an|your|my|one)\b[^.:\n]{{0,60}}?\b"
            rf"(?:{_MADE}|more \w+|new|better|improved) (?:\w+ ){{0,3}}"
            rf"(?:{_PROMPT_WORD}|version)\b",
            # tags of templates, whole or cut, and placeholders nobody filled in
            r"</?(?:new_)?(?:prompt|instruction)>",
            r"\{(?:prompt|instruction|given_prompt|method)\}",
            r"\[(?:insert|your) (?:the )?(?:rewritten |new )?prompt(?: here)?\]",
        )
    ),
    re.IGNORECASE | re.MULTILINE,
)


def has_leftover(text: str, parent: str, told: Iterable[str] = ()) -> bool:
    """Return whether pieces of a template are in a text that are not in the parent.

    Args:
        text: The rewrite.
        parent: The prompt it was made from.
        told: The messages the model was given, without the prompt in them.
    """
    there = {_plain(found) for found in _MARKS.findall(parent)}
    if any(_plain(found) not in there for found in _MARKS.findall(text)):
        return True
    mine = _runs(text) - _runs(parent)
    return any(not mine.isdisjoint(_runs_told(message)) for message in told)


def _plain(mark: str) -> str:
    return re.sub(r"[\W_]+", "", mark).casefold()


@lru_cache(maxsize=64)
def _runs_told(message: str) -> set[tuple[str, ...]]:
    return _runs(message)


def _runs(text: str) -> set[tuple[str, ...]]:
    words = normalised(text).split()
    return {tuple(words[i : i + ECHO]) for i in range(len(words) - ECHO + 1)}
