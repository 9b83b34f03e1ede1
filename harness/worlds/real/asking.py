"""Asking a judge one question about each of many texts, and taking nothing but a proper reply.

A reply that cannot be read is asked for again, as another sample of the same request; after
`attempts` of them the text has no value. No value is ever put in its place: what is missing is
counted, and means are over what is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from harness.endpoint.client import Client, Done, work_through
from harness.endpoint.request import ChatRequest, Message
from harness.foreign import ForeignTextError, read_json
from harness.runtime.stage import Json, canonical_json, digest

ATTEMPTS = 3
"""Samples of a reply until a text is given up."""

SETTINGS: Mapping[str, Json] = {"temperature": 0.0, "max_tokens": 64}
"""How replies are drawn: greedily, and no longer than one small object needs."""

Value = TypeVar("Value")

_FENCED = re.compile(r"```(?:json)?(.*)```", re.DOTALL)


@dataclass(frozen=True)
class Judge:
    """Who is asked.

    Attributes:
        client: The client of its endpoint.
        model: Its name there.
        concurrency: Most requests at once.
        attempts: Samples of a reply until a text is given up.
        settings: How replies are drawn.
    """

    client: Client
    model: str
    concurrency: int = 8
    attempts: int = ATTEMPTS
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

    def request(self, judge: Judge, text: str, sample: int) -> ChatRequest:
        """Return the request for a reply about a text."""
        message = Message("user", self.wording.replace("{prompt}", text))
        return ChatRequest(self.name, judge.model, (message,), judge.settings, sample)


@dataclass(frozen=True)
class Values(Generic[Value]):
    """What a judge said of several texts.

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


def ask(judge: Judge, question: Question[Value], text: str) -> tuple[Value | None, int]:
    """Return a judge's value of one text, None if it gave none, and how many replies were broken.

    Raises:
        HarnessError: The endpoint did not answer, refused the text, or the budget is used up.
    """
    for broken in range(judge.attempts):
        reply = judge.client.ask(question.request(judge, text, sample=broken))
        value = question.read(reply.text)
        if value is not None:
            return value, broken
    return None, judge.attempts


def ask_about_all(
    judge: Judge,
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
        lambda text: ask(judge, question, text),
        judge.client,
        judge.concurrency,
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
