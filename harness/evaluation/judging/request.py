"""Requests and replies of a chat endpoint, as values.

A request's address is the sha256 of everything that can change the reply: the endpoint, the model,
the messages in their order (and with them the answers that are judged, and which is shown first),
the settings, and how often the same thing is asked. Two requests with the same address are the
same request, and are paid once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.runtime.stage import Json, canonical_json, digest

ADDRESS_VERSION = 1
"""Raised by a person when the meaning of a request's fields changes."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation: who speaks (`system`, `user`, `assistant`) and the text."""

    role: str
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """One request for a completion.

    Attributes:
        label: What it is for, for people (`question 81, turn 1`); not part of the address.
        model: Name of the model at the endpoint.
        messages: The conversation so far.
        settings: Further fields of the body: temperature, max_tokens, tools, ...
        sample: Number of an independent repetition of the same request.
    """

    label: str
    model: str
    messages: tuple[Message, ...]
    settings: Mapping[str, Json] = field(default_factory=dict)
    sample: int = 0

    def body(self) -> dict[str, Any]:
        """Return the JSON body that is sent."""
        messages = [{"role": m.role, "content": m.content} for m in self.messages]
        return {"model": self.model, "messages": messages, **self.settings}

    def address(self, endpoint: str) -> str:
        """Return the sha256 under which the reply is kept.

        Args:
            endpoint: The endpoint's address: the same name may be another model elsewhere.

        Raises:
            FingerprintError: A setting is not plain JSON.
        """
        identity = {
            "version": ADDRESS_VERSION,
            "endpoint": endpoint,
            "body": self.body(),
            "sample": self.sample,
        }
        return digest(canonical_json(identity, "request"))

    @property
    def max_tokens(self) -> int | None:
        """Most tokens the reply may have; None where the request sets no limit."""
        for name in ("max_tokens", "max_completion_tokens"):
            if isinstance(limit := self.settings.get(name), int):
                return limit
        return None


@dataclass(frozen=True)
class Reply:
    """A reply as it came, with what is read from it.

    Attributes:
        raw: The whole JSON body.
        cached: Whether it was read from the cache, and so cost nothing now.
    """

    raw: Mapping[str, Any]
    cached: bool = False

    @property
    def choice(self) -> Mapping[str, Any]:
        """The first choice."""
        choice: Mapping[str, Any] = self.raw["choices"][0]
        return choice

    @property
    def text(self) -> str:
        """The message's text; empty where there is none (refused, filtered or a tool call)."""
        content = (self.choice.get("message") or {}).get("content")
        return content if isinstance(content, str) else ""

    @property
    def tool_arguments(self) -> str | None:
        """The arguments of the first tool call, or None where there is no tool call."""
        calls = (self.choice.get("message") or {}).get("tool_calls")
        first = calls[0] if isinstance(calls, list) and calls else None
        function = first.get("function") if isinstance(first, Mapping) else None
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        return arguments if isinstance(arguments, str) else None

    @property
    def usage(self) -> tuple[int, int] | None:
        """Tokens of the prompt and of the completion, or None where the endpoint does not say."""
        usage = self.raw.get("usage")
        if not isinstance(usage, Mapping):
            return None
        counts = (usage.get("prompt_tokens"), usage.get("completion_tokens", 0))
        if all(type(count) is int and count >= 0 for count in counts):
            return int(counts[0]), int(counts[1])  # type: ignore[arg-type]
        return None


def is_reply(raw: object) -> bool:
    """Return whether a JSON body has the form of a completion: one choice or more, as objects."""
    if not isinstance(raw, Mapping):
        return False
    choices = raw.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        return False
    return isinstance(choices[0].get("message"), Mapping)
