"""How a model's endpoint wants to be asked: the settings it takes, and under which names.

Models that think before they answer take no temperature, count their thinking as part of the
reply, and call its limit `max_completion_tokens`. The benchmarks' settings are written for models
that do not; here they are put into the words of the one that is asked. What is sent is what is
kept and addressed, so that the same judge asked in two ways is asked twice.

A judge without a temperature is not the benchmark's judge, whose replies come at temperature 0.
Its scores stand in a column of its own in any case, as those of every other model do.

Source: OpenAI's API reference, `max_tokens` and `max_completion_tokens` of chat completions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import UserError
from harness.store.fingerprint import Json

THINKING_TOKENS = 8192
"""Room for a model's thinking, added to the limit of a reply; ours."""

_THINKING_MODELS = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-[5-9])(?![^-.])(?!.*-chat)")


@dataclass(frozen=True)
class Dialect:
    """The settings a model takes.

    Attributes:
        name: As in the command line.
        thinks: Whether the model thinks before it answers.
    """

    name: str
    thinks: bool

    def worded(self, settings: Mapping[str, Json]) -> dict[str, Json]:
        """Return a benchmark's settings as this model takes them."""
        found = dict(settings)
        if not self.thinks:
            return found
        limit = found.pop("max_tokens", None)
        if isinstance(limit, int):
            found["max_completion_tokens"] = limit + THINKING_TOKENS
        for name in ("temperature", "top_p"):
            found.pop(name, None)
        return found


PLAIN = Dialect("plain", thinks=False)
THINKING = Dialect("thinking", thinks=True)
DIALECTS = {dialect.name: dialect for dialect in (PLAIN, THINKING)}


def dialect_of(model: str, option: str, name: str | None = None) -> Dialect:
    """Return how a model is asked.

    Args:
        model: Its name: OpenAI's o1 and later and gpt-5 and later think, their chat variants and
            all other models do not.
        option: The option that says otherwise, for the error.
        name: What that option says; None where it is not given.

    Raises:
        UserError: There is no such dialect.
    """
    if name is None:
        return THINKING if _THINKING_MODELS.match(model) else PLAIN
    if name not in DIALECTS:
        raise UserError(f"`{option} {name}` is unknown; give one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
