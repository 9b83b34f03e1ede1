"""Chat requests and replies as values: bodies, addresses, token counts and parsing.

A request's address is the SHA-256 of everything that can change the reply: endpoint, model,
messages, settings, and the sample number. Requests with the same address are identical, and are
paid for once.

Settings are written for models without reasoning. Reasoning models take no temperature, count
reasoning tokens as part of the reply, and call the limit `max_completion_tokens`; some can turn
reasoning off, and then accept a temperature and tools. `normalized_settings` translates
settings for the requested model; requests are sent, stored and addressed in that form.

Source: OpenAI's API reference, `max_tokens` and `max_completion_tokens` of chat completions. That
gpt-6-sol accepts a temperature without reasoning: https://docs.litellm.ai/blog/gpt_6_sol_luna and
https://github.com/BerriAI/litellm/discussions/42523 (copies seen 2026-11-22); not tested.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.runtime.stage import Json, fingerprint_of

ADDRESS_VERSION = 1
"""Bumped by hand when the meaning of a request's fields changes."""

CHARACTERS_PER_TOKEN = 4
"""Rough characters per token of English text; for estimates only."""

TOKENS_PER_MESSAGE = 8
"""Maximum overhead of a message in tokens (role and separators)."""

TOKENS_PER_TEMPLATE = 128
"""Maximum tokens that a chat template adds, such as a default system message."""

UNLIMITED_REPLY = 4096
"""Assumed longest reply, in tokens, to a request without a limit."""


@dataclass(frozen=True)
class Message:
    """A message: role (`system`, `user`, `assistant`) and text."""

    role: str
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """A request for the completion of a conversation.

    `label` is for people and not part of the address; `sample` numbers repetitions of one request.
    """

    label: str
    model: str
    messages: tuple[Message, ...]
    settings: Mapping[str, Json] = field(default_factory=dict)
    sample: int = 0

    def body(self) -> dict[str, Any]:
        messages = [{"role": m.role, "content": m.content} for m in self.messages]
        return {"model": self.model, "messages": messages, **self.settings}

    def address(self, endpoint: str) -> str:
        """Return the SHA-256 under which an endpoint's reply is cached."""
        identity = {
            "version": ADDRESS_VERSION,
            "endpoint": endpoint,
            "body": self.body(),
            "sample": self.sample,
        }
        return fingerprint_of(identity, "request")

    @property
    def expected_prompt_tokens(self) -> int:
        characters = sum(len(m.content) for m in self.messages)
        return characters // CHARACTERS_PER_TOKEN + TOKENS_PER_MESSAGE * len(self.messages)

    @property
    def most_prompt_tokens(self) -> int:
        # A byte-level token is at least one byte. Tools are part of the prompt too.
        size = sum(len(m.content.encode()) for m in self.messages)
        tools = len(str(self.settings.get("tools", "")).encode())
        around = TOKENS_PER_MESSAGE * (len(self.messages) + 1) + TOKENS_PER_TEMPLATE
        return size + tools + around

    @property
    def limit(self) -> int | None:
        """The longest reply that the request allows, in tokens; None without a limit."""
        for name in ("max_tokens", "max_completion_tokens"):
            if isinstance(limit := self.settings.get(name), int):
                return limit
        return None

    @property
    def most_completion_tokens(self) -> int:
        return UNLIMITED_REPLY if self.limit is None else self.limit


@dataclass(frozen=True)
class Reply:
    raw: Mapping[str, Any]

    @property
    def choice(self) -> Mapping[str, Any]:
        choice: Mapping[str, Any] = self.raw["choices"][0]
        return choice

    @property
    def text(self) -> str:
        """The message's text; empty if there is none (refused, filtered or a tool call)."""
        content = (self.choice.get("message") or {}).get("content")
        return content if isinstance(content, str) else ""

    @property
    def tool_arguments(self) -> str | None:
        """The arguments of the first tool call, or None."""
        try:
            arguments = self.choice["message"]["tool_calls"][0]["function"]["arguments"]
        except (KeyError, IndexError, TypeError):
            return None
        return arguments if isinstance(arguments, str) else None

    def other_model(self, asked: str) -> str | None:
        """Return the model that the reply names if it is another, in any version."""
        named = self.raw.get("model")
        if not isinstance(named, str) or not named:
            return None
        own, wanted = (name.rpartition("/")[2].lower() for name in (named, asked))
        rest = own.removeprefix(wanted) if own.startswith(wanted) else "another"
        return None if _VERSION.fullmatch(rest) else named

    @property
    def usage(self) -> tuple[int, int] | None:
        """Prompt and completion tokens, or None if the endpoint does not report them."""
        try:
            usage = self.raw["usage"]
            counts = usage["prompt_tokens"], usage.get("completion_tokens", 0)
        except (KeyError, TypeError):
            return None
        return counts if all(type(n) is int and n >= 0 for n in counts) else None


def is_reply(raw: object) -> bool:
    """Return whether a JSON body is a completion: it has a first choice with a message."""
    try:
        return isinstance(raw["choices"][0]["message"], Mapping)  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return False


_VERSION = re.compile(r"([-:@](latest|v?\d[\d.-]*))?")

THINKING_TOKENS = 8192
"""Allowance for reasoning, added to the reply limit; our choice."""

_SILENCED_MODELS = re.compile(r"(?:.*/)?gpt-6-(?:sol|luna)(?![^-.])")
_THINKING_MODELS = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-[5-9])(?![^-.])(?!.*-chat)")


def normalized_settings(model: str, settings: Mapping[str, Json]) -> dict[str, Json]:
    """Translate settings to those a model accepts, judging by its name.

    OpenAI's o1 and later and gpt-5 and later reason, except their chat variants; all other models
    do not.
    """
    found, silenced = dict(settings), _SILENCED_MODELS.match(model) is not None
    if not silenced and not _THINKING_MODELS.match(model):
        return found
    limit = found.pop("max_tokens", None)
    if isinstance(limit, int):
        found["max_completion_tokens"] = limit + (0 if silenced else THINKING_TOKENS)
    if silenced:
        return {**found, "reasoning_effort": "none"}
    return {name: value for name, value in found.items() if name not in ("temperature", "top_p")}
