"""Where a model is reached, and what may be spent on it: read from the environment.

Which model rewrites is what a run *is*; where it is served, with which key, how many requests at
once and for how much money is not, and stands in no declaration. For each role (`CREATOR` rewrites
prompts, `SCORER` judges them, `JUDGE` judges a benchmark's answers, `SOLVER` is the policy where an
endpoint serves it) these variables are read:

- `HARNESS_CREATOR_URL`: address of an OpenAI-compatible endpoint; without it the seller's own, for
  models whose names begin with `gpt-` or `gemini-`;
- `HARNESS_CREATOR_KEY`: the key of that address, if it asks for one. The seller's own address takes
  the seller's variable (`OPENAI_API_KEY`, `GEMINI_API_KEY`), which is sent nowhere else;
- `HARNESS_CREATOR_CONCURRENCY`: most requests at once, 8 without it;
- `HARNESS_CREATOR_PRICE`: dollars for a million tokens in and out, as `2.5,10`; without it the list
  price, where known;
- `HARNESS_CREATOR_BUDGET_USD`: dollars that a stage may spend; without it there is no limit.

Which settings a model takes follows from its name alone (`harness.endpoint.request`), so
that it is part of what a run is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.endpoint.budget import Ledger
from harness.endpoint.cache import ReplyCache
from harness.endpoint.client import Client
from harness.endpoint.connection import OPENAI_URL, Endpoint
from harness.endpoint.prices import Price, parse_price, read_prices
from harness.endpoint.request import Dialect, dialect_of
from harness.errors import UserError
from harness.project import work_dir

Role = Literal["CREATOR", "SCORER", "JUDGE", "SOLVER"]

CONCURRENCY = 8
MOST_CONCURRENCY = 256

SELLERS: Mapping[str, tuple[str, str]] = {
    "gpt-": (OPENAI_URL, "OPENAI_API_KEY"),
    "gemini-": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
}
"""Address and key variable of those who sell a model, by how its name begins."""


@dataclass(frozen=True)
class Access:
    """How a model is reached.

    Attributes:
        url: Address of the endpoint.
        key_variable: Name of the environment variable with its key.
        concurrency: Most requests at once.
        price: What it costs; None where that is not known.
        budget_usd: What may be spent; None for no limit.
        role: Whose it is.
        dialect: The settings it takes.
    """

    url: str
    key_variable: str
    concurrency: int
    price: Price | None
    budget_usd: float | None
    role: Role
    dialect: Dialect

    def client(self) -> Client:
        """Return a client that keeps its replies in the work folder."""
        ledger = Ledger(self.budget_usd, raised_by=f"HARNESS_{self.role}_BUDGET_USD")
        endpoint = Endpoint(self.url, self.key_variable)
        cache = ReplyCache(work_dir() / "replies")
        return Client(endpoint, cache, ledger, self.price, dialect=self.dialect)


def access_to(role: Role, model: str) -> Access:
    """Return how a role's model is reached.

    Raises:
        UserError: Nothing says where, a key is lacking, or a variable cannot be read.
    """
    url, key_variable = _place(role, model)
    price_text = os.environ.get(f"HARNESS_{role}_PRICE")
    price = read_prices().of(model)
    if price_text:
        price = parse_price(f"HARNESS_{role}_PRICE", price_text)
    budget = _number(f"HARNESS_{role}_BUDGET_USD")
    if budget is not None and price is None:
        raise UserError(
            f"HARNESS_{role}_BUDGET_USD needs the price of {model}, which is not known; give it in "
            f"HARNESS_{role}_PRICE"
        )
    concurrency = _number(f"HARNESS_{role}_CONCURRENCY")
    if concurrency is None:
        concurrency = CONCURRENCY
    if concurrency != int(concurrency) or not 1 <= concurrency <= MOST_CONCURRENCY:
        raise UserError(
            f"HARNESS_{role}_CONCURRENCY is {concurrency:g}; give a whole number from 1 to "
            f"{MOST_CONCURRENCY}"
        )
    dialect = dialect_of(model, f"HARNESS_{role}")
    return Access(url, key_variable, int(concurrency), price, budget, role, dialect)


def _place(role: Role, model: str) -> tuple[str, str]:
    """Return address and key variable."""
    if url := os.environ.get(f"HARNESS_{role}_URL"):
        return url, f"HARNESS_{role}_KEY"
    for beginning, (url, key_variable) in SELLERS.items():
        if model.startswith(beginning):
            if not os.environ.get(key_variable):
                raise UserError(
                    f"There is no key for {model}; set {key_variable}, or name another endpoint in "
                    f"HARNESS_{role}_URL"
                )
            return url, key_variable
    raise UserError(
        f"Nothing says where the model {model} is served; start a server for it and name its "
        f"address in HARNESS_{role}_URL, as in http://127.0.0.1:8000/v1"
    )


def _number(variable: str) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise UserError(f"{variable} is `{text}`; give a number, 0 or more")
    return value
