"""Requests to models behind endpoints: how many a stage sends, how long, and what they cost.

Requests are counted as they are when nothing fails; of rewrites a share is asked for again. Prices
are those that a user gives for a role (`HARNESS_CREATOR_PRICE`), else the list's
(`harness.endpoint.prices`). A model without a price has none, which is not zero.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from harness.endpoint.prices import Price, parse_price, read_prices
from harness.worlds.real.asking import Role


@dataclass(frozen=True)
class Calls:
    """Requests of one kind to one model.

    Attributes:
        role: whose requests they are.
        model: who is asked.
        requests: how many.
        prompt_tokens: tokens of all prompts together.
        completion_tokens: tokens of all replies together.
    """

    role: Role
    model: str
    requests: float
    prompt_tokens: float
    completion_tokens: float

    @property
    def usd(self) -> float | None:
        """Their price in dollars; None where the model's price is not known."""
        price = price_of(self.role, self.model)
        if price is None:
            return None
        return price.of(round(self.prompt_tokens), round(self.completion_tokens))

    def __add__(self, other: Calls) -> Calls:
        return Calls(
            self.role,
            self.model,
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


def calls(role: Role, model: str, requests: float, prompt: float, reply: float) -> Calls:
    """Return requests with a mean length of prompt and reply, in tokens."""
    return Calls(role, model, requests, requests * prompt, requests * reply)


def price_of(role: Role, model: str) -> Price | None:
    """Return the price of a role's model: the user's, else the list's; None if neither has one.

    Raises:
        UserError: the user's price cannot be read.
    """
    variable = f"HARNESS_{role}_PRICE"
    text = os.environ.get(variable)
    return parse_price(variable, text) if text else read_prices().of(model)
