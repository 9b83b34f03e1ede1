"""Requests and replies of a chat endpoint, as values: what is sent, addressed, counted and read.

A request's address is the sha256 of everything that can change the reply: the endpoint, the model,
the messages in their order, the settings, and how often the same thing is asked. Two requests with
the same address are the same request, and are paid once.

A request's settings are written for models that do not think before they answer. One that does
takes no temperature, counts its thinking as part of the reply, and calls its limit
`max_completion_tokens`; some can be told not to think, and then take a temperature and tools.
`worded` puts settings into the words of the model that is asked; what is sent is what is kept and
addressed.

Source: OpenAI's API reference, `max_tokens` and `max_completion_tokens` of chat completions. That
gpt-6-sol takes a temperature without thinking is from https://docs.litellm.ai/blog/gpt_6_sol_luna
and https://github.com/BerriAI/litellm/discussions/42523 (copies seen 2026-11-22); not tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.runtime.stage import Json, fingerprint_of

ADDRESS_VERSION = 1
"""Raised by a person when the meaning of a request's fields changes."""

CHARACTERS_PER_TOKEN = 4
"""Characters of English text in a token, roughly; for estimates only."""

TOKENS_PER_MESSAGE = 8
"""Most tokens a message needs besides its text (role and separators)."""

TOKENS_PER_TEMPLATE = 128
"""Most tokens that a model's chat template adds by itself, such as a system message of its own."""

UNLIMITED_REPLY = 4096
"""Tokens reserved for the reply to a request that sets no limit."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation: who speaks (`system`, `user`, `assistant`) and the text."""

    role: str
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """One request for a completion of the conversation so far.

    Attributes:
        label: What it is for, for people (`question 81, turn 1`); not part of the address.
        settings: Further fields of the body: temperature, max_tokens, tools, ...
        sample: Number of an independent repetition of the same request.
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
        """Return the sha256 under which the reply of an endpoint is kept."""
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
        # A token of a byte-level vocabulary is one byte or more. Tools are sent as text as well.
        size = sum(len(m.content.encode()) for m in self.messages)
        tools = len(str(self.settings.get("tools", "")).encode())
        around = TOKENS_PER_MESSAGE * (len(self.messages) + 1) + TOKENS_PER_TEMPLATE
        return size + tools + around

    @property
    def most_completion_tokens(self) -> int:
        for name in ("max_tokens", "max_completion_tokens"):
            if isinstance(limit := self.settings.get(name), int):
                return limit
        return UNLIMITED_REPLY


@dataclass(frozen=True)
class Reply:
    """A reply as it came; from the cache, it cost nothing now."""

    raw: Mapping[str, Any]
    cached: bool = False

    @property
    def choice(self) -> Mapping[str, Any]:
        choice: Mapping[str, Any] = self.raw["choices"][0]
        return choice

    @property
    def text(self) -> str:
        """The message's text; empty where there is none (refused, filtered or a tool call)."""
        content = (self.choice.get("message") or {}).get("content")
        return content if isinstance(content, str) else ""

    @property
    def tool_arguments(self) -> str | None:
        """The arguments of the first tool call, None where there is no tool call."""
        try:
            arguments = self.choice["message"]["tool_calls"][0]["function"]["arguments"]
        except (KeyError, IndexError, TypeError):
            return None
        return arguments if isinstance(arguments, str) else None

    def other_model(self, asked: str) -> str | None:
        """Return which model the reply names, None where that is the one asked for, or nobody.

        A seller's prefix (`models/`) and the date or number of a version (`-0613`, `:latest`) do
        not make another model. Ids of replies prove nothing: some servers repeat them.
        """
        named = self.raw.get("model")
        if not isinstance(named, str) or not named:
            return None
        own, wanted = (name.rpartition("/")[2].lower() for name in (named, asked))
        rest = own.removeprefix(wanted) if own.startswith(wanted) else "another"
        return None if _VERSION.fullmatch(rest) else named

    @property
    def usage(self) -> tuple[int, int] | None:
        """Tokens of the prompt and of the completion, None where the endpoint does not say."""
        try:
            usage = self.raw["usage"]
            counts = usage["prompt_tokens"], usage.get("completion_tokens", 0)
        except (KeyError, TypeError):
            return None
        return counts if all(type(n) is int and n >= 0 for n in counts) else None


def is_reply(raw: object) -> bool:
    """Return whether a JSON body has the form of a completion: a first choice with a message."""
    try:
        return isinstance(raw["choices"][0]["message"], Mapping)  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return False


_VERSION = re.compile(r"([-:@](latest|v?\d[\d.-]*))?")

THINKING_TOKENS = 8192
"""Room for a model's thinking, added to the limit of a reply; ours."""

_SILENCED_MODELS = re.compile(r"(?:.*/)?gpt-6-(?:sol|luna)(?![^-.])")
_THINKING_MODELS = re.compile(r"(?:.*/)?(?:o[1-9]|gpt-[5-9])(?![^-.])(?!.*-chat)")


def worded(model: str, settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return a request's settings as a model takes them, by its name.

    OpenAI's o1 and later and gpt-5 and later think, their chat variants and all other models do
    not; gpt-6-sol and gpt-6-luna are told not to.
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
