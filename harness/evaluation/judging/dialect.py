"""How a model's endpoint wants to be asked: the settings it takes, and under which names.

Models that think before they answer take no temperature, count their thinking as part of the
reply, and call its limit `max_completion_tokens`. Some of them can be told not to think; then they
take a temperature, and tools, which they otherwise do not at this kind of endpoint. The benchmarks'
settings are written for models that do not think; here they are put into the words of the one that
is asked. What is sent is what is kept and addressed, so that the same judge asked in two ways is
asked twice.

A judge without a temperature is not the benchmark's judge, whose replies come at temperature 0.
Its scores stand in a column of its own in any case, as those of every other model do.

Source: OpenAI's API reference, `max_tokens` and `max_completion_tokens` of chat completions. That
gpt-6-sol takes a temperature without thinking is from https://docs.litellm.ai/blog/gpt_6_sol_luna
and https://github.com/BerriAI/litellm/discussions/42523 (copies seen 2026-11-22), that tools then
work is what OpenAI's own error says of its kind; neither was tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import UserError
from harness.runtime.stage import Json

THINKING_TOKENS = 8192
"""Room for a model's thinking, added to the limit of a reply; ours."""

_SILENCED_MODELS = re.compile(r"(?:.*/)?gpt-6-(?:sol|luna)(?![^-.])")
_THINKING_MODELS = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-[5-9])(?![^-.])(?!.*-chat)")


@dataclass(frozen=True)
class Dialect:
    """The settings a model takes.

    Attributes:
        name: As in the command line.
        thinks: Whether the model thinks before it answers.
        silenced: Whether it would, and is told not to.
    """

    name: str
    thinks: bool
    silenced: bool = False

    def worded(self, settings: Mapping[str, Json]) -> dict[str, Json]:
        """Return a benchmark's settings as this model takes them."""
        found = dict(settings)
        if not self.thinks and not self.silenced:
            return found
        limit = found.pop("max_tokens", None)
        if isinstance(limit, int):
            found["max_completion_tokens"] = limit + (THINKING_TOKENS if self.thinks else 0)
        if self.silenced:
            return {**found, "reasoning_effort": "none"}
        for name in ("temperature", "top_p"):
            found.pop(name, None)
        return found


PLAIN = Dialect("plain", thinks=False)
THINKING = Dialect("thinking", thinks=True)
SILENCED = Dialect("silenced", thinks=False, silenced=True)
DIALECTS = {dialect.name: dialect for dialect in (PLAIN, THINKING, SILENCED)}


def dialect_of(model: str, option: str, name: str | None = None) -> Dialect:
    """Return how a model is asked.

    Args:
        model: Its name: OpenAI's o1 and later and gpt-5 and later think, their chat variants and
            all other models do not; gpt-6-sol and gpt-6-luna are told not to.
        option: The option that says otherwise, for the error.
        name: What that option says; None where it is not given.

    Raises:
        UserError: There is no such dialect.
    """
    if name is None:
        if _SILENCED_MODELS.match(model):
            return SILENCED
        return THINKING if _THINKING_MODELS.match(model) else PLAIN
    if name not in DIALECTS:
        raise UserError(f"`{option} {name}` is unknown; give one of {', '.join(DIALECTS)}")
    return DIALECTS[name]
