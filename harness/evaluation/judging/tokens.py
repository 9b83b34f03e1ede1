"""How many tokens a request has, before anyone counted: about, and at most."""

from __future__ import annotations

from harness.evaluation.judging.request import ChatRequest

CHARACTERS_PER_TOKEN = 4
"""Characters of English text in a token, roughly; for estimates only."""

TOKENS_PER_MESSAGE = 8
"""Most tokens a message needs besides its text (role and separators)."""

TOKENS_PER_TEMPLATE = 128
"""Most tokens that a model's chat template adds by itself, such as a system message of its own."""

UNLIMITED_REPLY = 4096
"""Tokens reserved for the reply to a request that sets no limit."""


def expected_prompt_tokens(request: ChatRequest) -> int:
    """Return about how many tokens a request's prompt has."""
    characters = sum(len(m.content) for m in request.messages)
    return characters // CHARACTERS_PER_TOKEN + TOKENS_PER_MESSAGE * len(request.messages)


def most_prompt_tokens(request: ChatRequest) -> int:
    """Return how many tokens a request's prompt has at most.

    A token of a byte-level vocabulary is one byte or more. Tools are sent as text as well.
    """
    size = sum(len(m.content.encode()) for m in request.messages)
    tools = len(str(request.settings.get("tools", "")).encode())
    return size + tools + TOKENS_PER_MESSAGE * (len(request.messages) + 1) + TOKENS_PER_TEMPLATE


def most_completion_tokens(request: ChatRequest) -> int:
    """Return how many tokens the reply has at most."""
    return UNLIMITED_REPLY if request.max_tokens is None else request.max_tokens
