"""Finds the endpoint of a role's model: one named in the environment, or the provider's API.

Which model rewrites is part of a run's identity; where it is served, the key, the concurrency and
the price are not: they are in `HARNESS_CREATOR_URL`, `_KEY`, `_CONCURRENCY`, `_TIMEOUT` and
`_PRICE`, and so on for each role. The default is the provider's API, with the provider's key, which
is sent nowhere else. For roles that the harness serves itself, it sets these variables, and
`_CACHE_NAMESPACE`, which replaces the address in the cache's keys, because it changes with each
start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from harness.endpoint.budget import Ledger
from harness.endpoint.client import Client, ServedModel
from harness.endpoint.connection import PROVIDERS, TIMEOUT_S, Endpoint, FunctionEndpoint
from harness.endpoint.prices import TokenPrice, listed_price, parse_price
from harness.endpoint.replies import ReplyCache
from harness.errors import UserError
from harness.extensions import JUDGES
from harness.project import replies_dir
from harness.registry.serving import ServedRole, address, variable
from harness.runtime.stage import Json

Unset = TypeVar("Unset", bound=float | None)

CONCURRENCY = 8
MOST_CONCURRENCY = 256


def price_of(role: ServedRole, model: str) -> TokenPrice | None:
    """Return the price of a role's model: the user's, else the price list's, else None."""
    if role == "judge" and model in JUDGES:
        return TokenPrice(0.0, 0.0)
    name = variable(role, "PRICE")
    text = os.environ.get(name)
    return parse_price(name, text) if text else listed_price(model)


def model_of(
    role: ServedRole,
    model: str,
    settings: Mapping[str, Json] | None = None,
    ledger: Ledger | None = None,
) -> ServedModel:
    """Return a role's model behind a client that caches replies in the work folder.

    A caller that passes a ledger must check the key before anything is sent.
    """
    server = _server(role, model)
    if ledger is None:
        server.check_key(variable(role, "URL"))
    name = variable(role, "CONCURRENCY")
    at_once = _number(name, CONCURRENCY)
    if at_once != int(at_once) or not 1 <= at_once <= MOST_CONCURRENCY:
        raise UserError(f"{name} is {at_once:g}; give a whole number from 1 to {MOST_CONCURRENCY}")
    ledger = ledger or Ledger(replies_dir(), _number("HARNESS_BUDGET_USD", None))
    client = Client(server, ReplyCache(replies_dir()), ledger, price_of(role, model))
    return ServedModel(client, model, settings or {}, int(at_once))


def _server(role: ServedRole, model: str) -> Endpoint | FunctionEndpoint:
    if role == "judge" and model in JUDGES:
        return FunctionEndpoint(model)
    timeout = variable(role, "TIMEOUT")
    timeout_s = _number(timeout, TIMEOUT_S)
    if not timeout_s:
        raise UserError(f"{timeout} is 0; give the seconds that a reply may take")
    if url := address(role):
        namespace = os.environ.get(variable(role, "CACHE_NAMESPACE"))
        return Endpoint(url, variable(role, "KEY"), timeout_s, namespace)
    for beginning, (url, key_variable) in PROVIDERS.items():
        if model.startswith(beginning):
            return Endpoint(url, key_variable, timeout_s)
    raise UserError(
        f"Nothing says where the model {model} is served; declare it in the profile's `serving`, "
        f"or name the address of an endpoint that has it in {variable(role, 'URL')}"
    )


def _number(name: str, unset: Unset) -> float | Unset:
    text = os.environ.get(name)
    if not text:
        return unset
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise UserError(f"{name} is `{text}`; give a number, 0 or more")
    return value
