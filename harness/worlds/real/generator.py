"""What writes text for a creator: one small interface, and an endpoint behind it.

A `TextGenerator` is given a conversation and a sample number, and returns what was written. An
endpoint's is here; an engine of this machine is another class with the same method. A generator may
be called from many threads, and gives the same text for the same conversation and sample: an
endpoint's replies are kept on disk for that, so a stage that was killed finds those it had.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.endpoint.budget import tokens_of
from harness.endpoint.client import PATIENCE, Client, UnansweredError
from harness.endpoint.request import ChatRequest, Message, Reply
from harness.errors import HarnessError
from harness.runtime.stage import Json


@dataclass(frozen=True)
class Written:
    """What a generator wrote.

    Attributes:
        text: The text; empty where nothing was written.
        cut: Whether it ended at the longest length allowed instead of by itself.
        refused: Whether the endpoint itself says that it was refused or filtered.
    """

    text: str
    cut: bool = False
    refused: bool = False


class TextGenerator(Protocol):
    """Writes text; may be called from many threads."""

    def write(self, messages: Sequence[Message], sample: int, label: str) -> Written:
        """Return what a model writes.

        Args:
            messages: The conversation so far.
            sample: Another number draws another text for the same conversation.
            label: What it is for, for people.
        """
        ...


@dataclass
class Tokens:
    """Tokens of all conversations and replies, as far as the endpoint counted them.

    Attributes:
        prompt: Tokens of the conversations.
        completion: Tokens of the replies.
        uncounted: Replies that came without a count.
    """

    prompt: int = 0
    completion: int = 0
    uncounted: int = 0


@dataclass
class EndpointGenerator:
    """Has a model at an OpenAI-compatible endpoint write (a `TextGenerator`).

    Attributes:
        client: The client of the endpoint.
        model: The model's name there.
        settings: Sampling: temperature, top_p, max_tokens.
        tokens: What was written so far took; replies that were kept from before count as well.
    """

    client: Client
    model: str
    settings: Mapping[str, Json]
    tokens: Tokens = field(default_factory=Tokens)
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _refused: int = 0
    _answered: bool = False

    def write(self, messages: Sequence[Message], sample: int, label: str) -> Written:
        """Return what the model writes.

        Raises:
            HarnessError: The endpoint refuses everything, did not answer in all attempts, or the
                budget is used up.
        """
        request = ChatRequest(label, self.model, tuple(messages), self.settings, sample)
        try:
            reply = self.client.ask(request)
        except UnansweredError as error:
            if not error.refused:
                raise
            self._note_refusal(error)
            return Written("", refused=True)
        self._count(self.client.worded(request), reply)
        return _written(reply)

    def _note_refusal(self, error: UnansweredError) -> None:
        """Tell a prompt that is refused from an endpoint that refuses everything."""
        with self._guard:
            self._refused += 1
            if not self._answered and self._refused >= PATIENCE:
                raise HarnessError(
                    f"The first {self._refused} requests were refused, the last because: {error}; "
                    "correct the model or its settings and run the same command again."
                ) from error

    def _count(self, request: ChatRequest, reply: Reply) -> None:
        with self._guard:
            self._answered = True
            if reply.usage is None:
                self.tokens.uncounted += 1
            else:
                prompt, completion = tokens_of(request, reply)
                self.tokens.prompt += prompt
                self.tokens.completion += completion


def _written(reply: Reply) -> Written:
    finish = reply.choice.get("finish_reason")
    message = reply.choice.get("message") or {}
    refused = finish == "content_filter" or bool(message.get("refusal"))
    return Written(reply.text, cut=finish == "length", refused=refused)
