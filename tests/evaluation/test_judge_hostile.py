"""Replies that no honest endpoint sends: kept once, counted within bounds, waited for no longer."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import StandIn, ask_for, client_of, completion

from harness.endpoint import connection
from harness.endpoint.connection import UnansweredError
from harness.endpoint.request import Reply
from harness.evaluation.benchmarks.mt_bench import parse_rating
from harness.worlds.real.scoring import only_field

DEEP = "[" * 100_000 + "]" * 100_000


def pours(data: bytes, gap_s: float = 0.0) -> Any:
    """Return what answers with a head and then with these bytes, again and again."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n"

    def pour(request: Any, body: Any) -> None:
        request.wfile.write(head)
        while not threading.Event().wait(gap_s):  # until nobody reads any more, which is an error
            request.wfile.write(data)
            request.wfile.flush()

    return lambda body, times: pour


@pytest.mark.parametrize("body", [DEEP, f'{{"choices": {DEEP}}}', "[", "\x00"])
def test_a_body_that_cannot_be_read_lets_the_others_go_on(tmp_path: Path, body: str) -> None:
    with StandIn(lambda request: body) as server:
        client = client_of(server, tmp_path, attempts=2)
        with pytest.raises(UnansweredError, match=r"no JSON that can be read for prompt a"):
            client.ask(ask_for("a"))
    assert client.ledger.spending.usd_unconfirmed > 0


@pytest.mark.parametrize(
    "calls", [[5], [{"function": "rank"}], [{"function": [1]}], {"a": 1}, [[]]]
)
def test_a_tool_call_of_another_form_is_none(calls: Any) -> None:
    reply = Reply({"choices": [{"message": {"content": None, "tool_calls": calls}}]})
    assert reply.tool_arguments is None


def test_long_replies_are_read_in_linear_time() -> None:
    """Each took minutes: the patterns tried every way to divide digits, or blanks, in two."""
    begun = time.monotonic()
    assert parse_rating("[[" + "1" * 200_000) is None
    assert parse_rating("[" + "1" * 200_000) is None
    assert only_field("```" + " " * 100_000 + "x", "score") is None
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("number", ["904", "0", "10.5", "9" * 400, "9" * 5000])
def test_a_rating_that_is_not_on_the_scale_is_none(number: str) -> None:
    assert parse_rating(f"[[{number}]]") is None
    assert parse_rating(f"[[{number}]], no, [[7]]") is None


def test_a_reply_that_drips_is_a_timeout_of_the_whole_request(tmp_path: Path) -> None:
    """A byte every 20 ms never leaves the gap of 0.3 s, and the body would take two days."""
    with StandIn(instead=pours(b" ", gap_s=0.02)) as server:
        client = client_of(server, tmp_path, timeout_s=0.3, attempts=1)
        begun = time.monotonic()
        with pytest.raises(UnansweredError, match=r"did not reply within 0.3 s to prompt a"):
            client.ask(ask_for("a"))
        assert time.monotonic() - begun < 3.0


def test_a_reply_without_end_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 10_000)
    with StandIn(instead=pours(b" " * 1000)) as server:
        client = client_of(server, tmp_path, attempts=1)
        with pytest.raises(UnansweredError, match=r"broke off"):
            client.ask(ask_for("a"))


def test_what_is_sent_twice_answers_one_request(tmp_path: Path) -> None:
    """Each reply quotes its request; the surplus of one must not be taken for the next one's."""

    def twice(request: Any, body: Any) -> None:
        said = json.dumps(completion(body["messages"][0]["content"]))
        for _ in range(2):
            request.send(200, said)
        request.close_connection = False

    asked = [str(number) for number in range(12)]
    with StandIn(instead=lambda body, times: twice) as server:
        client = client_of(server.url, tmp_path)
        assert [client.ask(ask_for(text)).text for text in asked] == asked


@pytest.mark.parametrize(
    ("asked", "named", "is_another"),
    [
        ("gpt-4", "gpt-4-0613", False), ("gpt-4o", "gpt-4o-2024-08-06", False),
        ("gemini-1.5-pro", "models/gemini-1.5-pro-002", False), ("llama3", "llama3:latest", False),
        ("openai/gpt-4o", "gpt-4o", False), ("judge", None, False), ("judge", 7, False),
        ("gpt-4", "gpt-4-turbo", True), ("gpt-4", "gpt-4o", True), ("gpt-4o", "gpt-4", True),
        ("judge", "another", True),
    ],
)  # fmt: skip
def test_a_reply_says_whether_it_is_another_models(
    asked: str, named: Any, is_another: bool
) -> None:
    assert Reply({"model": named}).other_model(asked) == (named if is_another else None)


def test_replies_of_another_model_are_said_aloud_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when they are kept ones: what was said of them the first time may be forgotten."""
    with StandIn(lambda body: completion("fine") | {"model": "another"}) as server:
        for _ in range(2):
            client = client_of(server.url, tmp_path)
            for text in "ab":
                client.ask(ask_for(text))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert f"{server.url} answers as `another` to requests for `judge`" in said[0]
