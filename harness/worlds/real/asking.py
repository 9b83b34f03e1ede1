"""Models behind endpoints: how one is reached, what may be spent on it, and asking it questions.

*Access* is read from the environment. Which model rewrites is what a run *is*; where it is served,
with which key, how many requests at once and for how much money is not, and stands in no
declaration. For each role (`CREATOR` rewrites prompts, `SCORER` judges them, `JUDGE` judges a
benchmark's answers, `SOLVER` is the policy where an endpoint serves it) these variables are read:

- `HARNESS_CREATOR_URL`: address of an OpenAI-compatible endpoint; without it the seller's own, for
  models whose names begin with `gpt-` or `gemini-`;
- `HARNESS_CREATOR_KEY`: the key of that address, if it asks for one. The seller's own address takes
  the seller's variable (`OPENAI_API_KEY`, `GEMINI_API_KEY`), which is sent nowhere else;
- `HARNESS_CREATOR_CONCURRENCY`: most requests at once, 8 without it;
- `HARNESS_CREATOR_PRICE`: dollars for a million tokens in and out, as `2.5,10`; without it the list
  price, where known;
- `HARNESS_CREATOR_BUDGET_USD`: dollars that a stage may spend; without it there is no limit.

A judge that a plug-in adds is a function here, and free; none of these is read for it.

Which settings a model takes follows from its name alone (`harness.endpoint.request`), so
that it is part of what a run is.

*Questions.* A scorer is asked one question about each of many texts, and nothing but a proper reply
is taken. One that cannot be read is asked for again, as another sample of the same request; after
`ATTEMPTS` of them the text has no value. No value is ever put in its place: what is missing is
counted, and means are over what is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from harness.endpoint.budget import Ledger, shared_book
from harness.endpoint.client import Client, Done, ReplyCache, work_through
from harness.endpoint.connection import OPENAI_URL, TIMEOUT_S, Endpoint, FunctionEndpoint
from harness.endpoint.prices import Price, parse_price, read_prices
from harness.endpoint.request import (
    PLAIN,
    ChatParameters,
    ChatRequest,
    Message,
    chat_parameters_of,
)
from harness.errors import UserError
from harness.extensions import JUDGES
from harness.foreign import ForeignTextError, read_json
from harness.project import spending_dir, work_dir
from harness.runtime.stage import Json, canonical_json, digest

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
        server: What answers: an endpoint, or a plug-in's function.
        concurrency: Most requests at once.
        price: What it costs; None where that is not known.
        budget_usd: What may be spent; None for no limit.
        role: Whose it is.
        parameters: The settings it takes.
    """

    server: Endpoint | FunctionEndpoint
    concurrency: int
    price: Price | None
    budget_usd: float | None
    role: Role
    parameters: ChatParameters

    def client(self) -> Client:
        """Return a client that keeps its replies in the work folder."""
        ledger = Ledger(
            self.budget_usd,
            raised_by=f"HARNESS_{self.role}_BUDGET_USD",
            book=shared_book(spending_dir()),
            role=self.role,
            total_usd=_number("HARNESS_BUDGET_USD"),
        )
        cache = ReplyCache(work_dir() / "replies")
        return Client(self.server, cache, ledger, self.price, parameters=self.parameters)


def price_of(role: Role, model: str) -> Price | None:
    """Return the price of a role's model: the user's, else the list's; None if neither has one.

    Raises:
        UserError: The user's price cannot be read.
    """
    if role == "JUDGE" and model in JUDGES:
        return Price(0.0, 0.0)
    variable = f"HARNESS_{role}_PRICE"
    text = os.environ.get(variable)
    return parse_price(variable, text) if text else read_prices().of(model)


def access_to(role: Role, model: str, timeout_s: float = TIMEOUT_S) -> Access:
    """Return how a role's model is reached.

    Raises:
        UserError: Nothing says where, a key is lacking, or a variable cannot be read.
    """
    if role == "JUDGE" and model in JUDGES:
        return Access(FunctionEndpoint(model), CONCURRENCY, Price(0.0, 0.0), None, role, PLAIN)
    url, key_variable = _place(role, model)
    price = price_of(role, model)
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
    parameters = chat_parameters_of(model, f"HARNESS_{role}")
    server = Endpoint(url, key_variable, timeout_s)
    return Access(server, int(concurrency), price, budget, role, parameters)


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


ATTEMPTS = 3
"""Samples of a reply until a text is given up."""

SETTINGS: Mapping[str, Json] = {"temperature": 0.0, "max_tokens": 64}
"""How replies are drawn: greedily, and no longer than one small object needs."""

Value = TypeVar("Value")

_FENCED = re.compile(r"```(?:json)?(.*)```", re.DOTALL)


@dataclass(frozen=True)
class Scorer:
    """Who is asked about prompts.

    Attributes:
        client: The client of its endpoint.
        model: Its name there.
        concurrency: Most requests at once.
        settings: How replies are drawn.
    """

    client: Client
    model: str
    concurrency: int = CONCURRENCY
    settings: Mapping[str, Json] = field(default_factory=lambda: SETTINGS)


@dataclass(frozen=True)
class Question(Generic[Value]):
    """What is asked about a text, and how the reply is read.

    Attributes:
        name: What is asked for, in a word.
        wording: The message, with `{prompt}` where the text goes.
        read: Returns the value in a reply, or None where it has none.
    """

    name: str
    wording: str
    read: Callable[[str], Value | None]

    def identity(self, model: str, settings: Mapping[str, Json] = SETTINGS) -> str:
        """Return what identifies the values that a model gives: its name and what it is told."""
        told = {"wording": self.wording, "settings": dict(settings)}
        return f"{model}/{self.name}@{digest(canonical_json(told, 'question'))[:16]}"

    def request(self, scorer: Scorer, text: str, sample: int) -> ChatRequest:
        """Return the request for a reply about a text."""
        message = Message("user", self.wording.replace("{prompt}", text))
        return ChatRequest(self.name, scorer.model, (message,), scorer.settings, sample)


@dataclass(frozen=True)
class Values(Generic[Value]):
    """What a scorer said of several texts.

    Attributes:
        values: The value of each text, in order; None where there is none.
        broken: Replies that could not be read.
        refused: Texts that the endpoint refused to judge.
    """

    values: tuple[Value | None, ...]
    broken: int
    refused: int

    @property
    def missing(self) -> int:
        """Texts without a value."""
        return self.values.count(None)

    @property
    def known(self) -> list[Value]:
        """The values there are."""
        return [value for value in self.values if value is not None]


def ask(scorer: Scorer, question: Question[Value], text: str) -> tuple[Value | None, int]:
    """Return a scorer's value of one text, None if it gave none, and how many replies were broken.

    Raises:
        HarnessError: The endpoint did not answer, refused the text, or the budget is used up.
    """
    for broken in range(ATTEMPTS):
        reply = scorer.client.ask(question.request(scorer, text, sample=broken))
        value = question.read(reply.text)
        if value is not None:
            return value, broken
    return None, ATTEMPTS


def ask_about_all(
    scorer: Scorer,
    question: Question[Value],
    texts: Sequence[str],
    done: Done = lambda count, total: None,
) -> Values[Value]:
    """Ask a question about every text; equal texts are asked about once.

    Raises:
        HarnessError: The endpoint answers nothing, or the budget is used up; what had arrived is
            kept, and the next call goes on from there.
    """
    distinct = list(dict.fromkeys(texts))
    outcomes = work_through(
        distinct,
        lambda text: ask(scorer, question, text),
        scorer.client,
        scorer.concurrency,
        done,
    )
    found = {
        text: (None, 0) if outcome.result is None else outcome.result
        for text, outcome in zip(distinct, outcomes, strict=True)
    }
    return Values(
        values=tuple(found[text][0] for text in texts),
        broken=sum(broken for _, broken in found.values()),
        refused=sum(outcome.refused for outcome in outcomes),
    )


def only_field(reply: str, name: str) -> Any:
    """Return the one field of the JSON object that a reply consists of, or None.

    A fence of code around the object is allowed; words before or after it, other fields and two
    objects are not.
    """
    fenced = _FENCED.fullmatch(reply.strip())
    try:
        found = read_json(fenced[1] if fenced else reply)
    except ForeignTextError:
        return None
    return found[name] if isinstance(found, dict) and set(found) == {name} else None
