"""The endpoint of the stand-ins with what tests want of it, and clients that ask it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from stand_in.build import answered, questioned
from stand_in.server import ROLES, Body, MockEndpoint, Request, answer, completion, digest

from harness.endpoint.budget import Ledger
from harness.endpoint.client import Client, ServedModel
from harness.endpoint.connection import Endpoint
from harness.endpoint.prices import TokenPrice
from harness.endpoint.replies import ReplyCache
from harness.endpoint.request import ChatRequest, Message

judge = answer

__all__ = ["Body", "StandIn", "completion", "digest", "judge"]

PRICE = TokenPrice(10.0, 30.0)


def ask_for(text: str, **settings: Any) -> ChatRequest:
    settings = {"temperature": 0, "max_tokens": 10, **settings}
    return ChatRequest(f"prompt {text}", "judge", (Message("user", text),), settings)


def client_of(
    server: StandIn | str,
    folder: Path,
    budget: float | None = None,
    price: TokenPrice | None = PRICE,
    timeout_s: float = 10.0,
    **options: Any,
) -> Client:
    """Return a client of a server or address, which keeps replies in a folder and never sleeps."""
    url = server if isinstance(server, str) else server.url
    endpoint = Endpoint(url, "JUDGE_TEST_KEY", timeout_s)
    options = {"sleep": lambda seconds: None, **options}
    replies = folder / "replies"
    return Client(endpoint, ReplyCache(replies), Ledger(replies, budget), price, **options)


def named(model: str) -> ServedModel:
    """Return a judge that is asked nothing."""
    return ServedModel(cast(Client, None), model)


def write_lines(path: Path, *records: Any) -> Path:
    """Write records as JSON, one a line."""
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return path


FAILURES = ("429", "500", "cut", "broken", "empty")
"""What a disturbed server does instead of replying: two statuses, a body that ends early, one that
is no JSON, and a completion without choices."""


def write_mt_bench(folder: Path, *questions: Any) -> Path:
    """Write an MT-Bench of some questions, with a reference to question 2; return its folder."""
    folder.mkdir()
    write_lines(folder / "question.jsonl", *questions)
    reference = {"question_id": 2, "model_id": "gpt-4", "choices": [{"turns": ["ref 1", "ref 2"]}]}
    write_lines(folder / "reference_answer_gpt-4.jsonl", reference)
    one = "[[rating]] {question} | {answer}"
    two = "[[rating]] {question_1} {answer_1} {question_2} {answer_2}"
    templates = {
        "single-v1": one,
        "single-math-v1": one + " | {ref_answer_1}",
        "single-v1-multi-turn": two,
        "single-math-v1-multi-turn": two + " | {ref_answer_1} {ref_answer_2}",
    }
    prompts = [
        {"name": name, "system_prompt": f"system of {name}", "prompt_template": template}
        for name, template in templates.items()
    ]
    write_lines(folder / "judge_prompts.jsonl", *prompts)
    return folder


def write_answered_mt_bench(folder: Path, questions: int) -> Path:
    """Write an MT-Bench of so many questions, and in `answers.jsonl` what a model `m` says."""
    numbers = range(questions)
    turns = [[f"{i}?", f"and {i}?"] for i in numbers]
    said = [[f"a model says {i}", f"a model adds {i}"] for i in numbers]
    write_mt_bench(folder, *questioned(numbers, ["writing"] * questions, turns))
    write_lines(folder / "answers.jsonl", *answered(numbers, said, "m"))
    return folder


class StandIn(MockEndpoint):
    """A server on loopback, for a `with` statement.

    `reply` returns a completion, or (status, body, headers); a text as body is sent as it is.
    The first attempt of a share of requests is `failing`, in one of `FAILURES`. `instead`, given a
    request and how often it has come, returns what answers in place of the server, or None.
    """

    def __init__(
        self,
        reply: Callable[[Body], Any] = answer,
        latency_s: float = 0.0,
        failing: float = 0.0,
        key: str | None = None,
        port: int = 0,
        instead: Callable[[Body, int], Callable[[Any, Body], None] | None] | None = None,
    ) -> None:
        super().__init__(port)
        self.reply = reply
        self.instead = instead or (lambda body, times: None)
        self.latency_s = latency_s
        self.failing = failing
        self.key = key
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answered: Counter[int] = Counter()
        self.seen: Counter[int] = Counter()
        self.under_way = self.most_under_way = 0
        self.guard = threading.Lock()

    @property
    def requests(self) -> int:
        return len(self.bodies)

    def failure(self, number: int) -> str | None:
        """Return how the first attempt of a request fails, or None if it does not."""
        if self.seen[number] > 1 or number % 1000 >= 1000 * self.failing:
            return None
        return FAILURES[number // 1000 % len(FAILURES)]

    def respond(self, request: Request, body: Body) -> None:
        number = digest(body)
        with self.guard:
            self.bodies.append(dict(body))
            self.headers.append({k.lower(): v for k, v in request.headers.items()})
            self.seen[number] += 1
            failure = self.failure(number)
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        if self.latency_s:
            time.sleep(self.latency_s)
        instead = self.instead(body, self.seen[number])
        if instead is not None:
            request.close_connection = True
            instead(request, body)
            with self.guard:
                self.under_way -= 1
            return
        status, text, headers = self._answer(request, body, failure)
        with self.guard:
            self.answered[number] += status == 200 and failure is None
            # Once the reply is on its way, the client may send the next request.
            self.under_way -= 1
        request.send(status, text, headers, cut=failure == "cut" and status == 200)

    def _answer(
        self, request: Request, body: Body, failure: str | None
    ) -> tuple[int, str, dict[str, str]]:
        if self.key and request.headers["Authorization"] != f"Bearer {self.key}":
            words = {"error": {"message": f"Wrong key: {request.headers['Authorization']}"}}
            return 401, json.dumps(words), {}
        if failure in ("429", "500"):
            return int(failure), json.dumps({"error": {"message": "later"}}), {}
        if failure == "cut":
            return 200, json.dumps(completion("half")), {}
        if failure is not None:
            return 200, '{"choices": [' if failure == "broken" else '{"choices": []}', {}
        reply = self.reply(body)
        status, payload, headers = reply if isinstance(reply, tuple) else (200, reply, {})
        return status, payload if isinstance(payload, str) else json.dumps(payload), headers


@contextmanager
def serving(reply: Callable[[Body], Any] = answer, **how: Any) -> Iterator[StandIn]:
    """Serve, and name the address in the environment as that of every role."""
    with StandIn(reply, **how) as server:
        addresses = {f"HARNESS_{role}_URL": server.url for role in ROLES}
        with patch.dict(os.environ, addresses):
            yield server


def main() -> None:
    """Serve until stopped: `python judge_stand_in.py PORT LATENCY_S FAILING`."""
    port, latency, failing = sys.argv[1:4]
    with StandIn(latency_s=float(latency), failing=float(failing), port=int(port)) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        server.thread.join()


if __name__ == "__main__":
    main()
