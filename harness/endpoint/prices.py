"""Model prices in dollars per million tokens, each with its source; unknown is not zero."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.registry.documents import read_yaml

SHIPPED = Path(__file__).with_name("prices.yaml")


@dataclass(frozen=True)
class TokenPrice:
    """Dollars per million prompt and completion tokens."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost in dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@functools.cache
def price_list() -> Mapping[str, Any]:
    """Return the prices of this package, with the list's date and sources."""
    listed: Mapping[str, Any] = read_yaml(SHIPPED)
    return listed


def listed_price(model: str) -> TokenPrice | None:
    found = price_list()["models"].get(model)
    return None if found is None else TokenPrice(found["prompt"], found["completion"])


def parse_price(option: str, text: str) -> TokenPrice:
    """Parse `IN,OUT`, in dollars per million tokens."""
    try:
        prompt, completion = (float(part) for part in text.split(","))
    except ValueError:
        prompt = completion = -1.0
    if not (0.0 <= prompt < float("inf") and 0.0 <= completion < float("inf")):
        raise UserError(
            f"`{option} {text}` is not a price; write dollars for a million tokens of prompt and "
            "of completion, as `10,30`"
        )
    return TokenPrice(prompt, completion)
