"""Where the model of a role is asked: at an endpoint that the environment names, or its seller's.

Which model rewrites is what a run *is*; where it is served, with which key, how many requests at
once and for how much money is not, and stands in no declaration. For each role (`CREATOR` rewrites
prompts, `SCORER` judges them, `JUDGE` judges a benchmark's answers, `SOLVER` is the policy where an
endpoint serves it) the variables `HARNESS_CREATOR_URL`, `_KEY`, `_CONCURRENCY`, `_TIMEOUT` (seconds
that a reply may take) and `_PRICE` are read. Without an address it is the seller's own, which takes
the seller's key, sent nowhere else. A judge that a plug-in adds is a function here, and free. For a
role that the harness serves itself it sets these variables for the processes that ask, and
`_KEPT_AS`, under which replies are kept: the address is another with each start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from harness.endpoint.budget import Ledger, shared_file
from harness.endpoint.client import Client, ReplyCache, ServedModel
from harness.endpoint.connection import SELLERS, TIMEOUT_S, Endpoint, FunctionEndpoint
from harness.endpoint.prices import TokenPrice, parse_price, read_prices
from harness.errors import UserError
from harness.extensions import JUDGES
from harness.project import work_dir
from harness.runtime.stage import Json

Role = Literal["CREATOR", "SCORER", "JUDGE", "SOLVER"]

CONCURRENCY = 8
MOST_CONCURRENCY = 256


def price_of(role: Role, model: str) -> TokenPrice | None:
    """Return the price of a role's model: the user's, else the list's; None if neither has one."""
    if role == "JUDGE" and model in JUDGES:
        return TokenPrice(0.0, 0.0)
    variable = f"HARNESS_{role}_PRICE"
    text = os.environ.get(variable)
    return parse_price(variable, text) if text else read_prices().of(model)


def model_of(
    role: Role,
    model: str,
    settings: Mapping[str, Json] | None = None,
    ledger: Ledger | None = None,
    *,
    keyless: bool = False,
) -> ServedModel:
    """Return a role's model behind a client that keeps its replies in the work folder.

    Without a ledger that of the run counts what is spent; `keyless` where perhaps nothing is sent.

    Raises:
        UserError: Nothing says where, a key is lacking, or a variable cannot be read.
    """
    server = _server(role, model)
    if not keyless:
        server.check_key()
    at_once = _number(f"HARNESS_{role}_CONCURRENCY") or CONCURRENCY
    if at_once != int(at_once) or at_once > MOST_CONCURRENCY:
        raise UserError(
            f"HARNESS_{role}_CONCURRENCY is {at_once:g}; give a whole number from 1 to "
            f"{MOST_CONCURRENCY}"
        )
    ledger = ledger or Ledger(_number("HARNESS_BUDGET_USD"), shared_file())
    client = Client(server, ReplyCache(work_dir() / "replies"), ledger, price_of(role, model))
    return ServedModel(client, model, settings or {}, int(at_once))


def _server(role: Role, model: str) -> Endpoint | FunctionEndpoint:
    if role == "JUDGE" and model in JUDGES:
        return FunctionEndpoint(model)
    timeout_s = _number(f"HARNESS_{role}_TIMEOUT") or TIMEOUT_S
    if url := os.environ.get(f"HARNESS_{role}_URL"):
        kept_as = os.environ.get(f"HARNESS_{role}_KEPT_AS")
        return Endpoint(url, f"HARNESS_{role}_KEY", timeout_s, kept_as)
    for beginning, (url, key_variable) in SELLERS.items():
        if model.startswith(beginning):
            return Endpoint(url, key_variable, timeout_s)
    raise UserError(
        f"Nothing says where the model {model} is served; declare it in the profile's `serving`, "
        f"or name the address of an endpoint that has it in HARNESS_{role}_URL"
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
