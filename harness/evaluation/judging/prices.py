"""What a judge costs: prices by model, and how many tokens a text has before anyone counted.

Prices are in dollars for a million tokens, as their sellers list them; `--price` overrides them,
and a model without a known price has none: its cost is then not known, which is not zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import UserError
from harness.evaluation.judging.request import ChatRequest

PER_MILLION = 1e6
CHARACTERS_PER_TOKEN = 4
"""Characters of English text in a token, roughly; for estimates only."""

TOKENS_PER_MESSAGE = 8
"""Most tokens a message needs besides its text (role and separators)."""

UNLIMITED_REPLY = 4096
"""Tokens reserved for the reply to a request that sets no limit."""


@dataclass(frozen=True)
class Price:
    """Dollars for a million tokens of the prompt and of the completion."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the price of so many tokens, in dollars."""
        dollars = prompt_tokens * self.prompt + completion_tokens * self.completion
        return dollars / PER_MILLION


PRICES = {
    "gpt-4": Price(30.0, 60.0),
    "gpt-4-0314": Price(30.0, 60.0),
    "gpt-4-0613": Price(30.0, 60.0),
    "gpt-4-1106-preview": Price(10.0, 30.0),
    "gpt-4-0125-preview": Price(10.0, 30.0),
    "gpt-4-turbo": Price(10.0, 30.0),
    "gpt-4-turbo-2024-04-09": Price(10.0, 30.0),
    "gpt-4o": Price(2.5, 10.0),
    "gpt-4o-2024-05-13": Price(5.0, 15.0),
    "gpt-4o-2024-08-06": Price(2.5, 10.0),
    "gpt-4o-2024-11-20": Price(2.5, 10.0),
    "gpt-4o-mini": Price(0.15, 0.6),
    "gpt-4o-mini-2024-07-18": Price(0.15, 0.6),
    "gpt-4.1": Price(2.0, 8.0),
    "gpt-4.1-mini": Price(0.4, 1.6),
    "gpt-4.1-nano": Price(0.1, 0.4),
}
"""List prices of the judges that the benchmarks and the paper use, and of their successors."""


def parse_price(option: str, text: str) -> Price:
    """Read a price from `IN,OUT`, dollars for a million tokens.

    Raises:
        UserError: The text is not two numbers, zero or more.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 2 or not all(0.0 <= number < float("inf") for number in numbers):
        raise UserError(
            f"`{option} {text}` is not a price; write dollars for a million tokens of prompt and "
            "of completion, as `10,30`"
        )
    return Price(*numbers)


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
    return size + tools + TOKENS_PER_MESSAGE * (len(request.messages) + 1)


def most_completion_tokens(request: ChatRequest) -> int:
    """Return how many tokens the reply has at most."""
    return UNLIMITED_REPLY if request.max_tokens is None else request.max_tokens
