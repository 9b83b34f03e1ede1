"""Replies that no honest endpoint sends: kept once, counted within bounds, waited for no longer."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
DIGITS = "9" * 5000


@contextmanager
def raw_server(*parts: bytes, gap_s: float = 0.0) -> Iterator[str]:
    """Send these parts to whoever connects, with a gap between them, and go on with the last."""
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()
    listener.settimeout(0.05)

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.recv(1 << 16)
                index = 0
                while not over.is_set():
                    try:
                        connection.sendall(parts[min(index, len(parts) - 1)])
                    except OSError:
                        break
                    index += 1
                    over.wait(gap_s)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        over.set()
        listener.close()
        thread.join(5)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n"


@pytest.mark.parametrize("body", [DEEP, f'{{"choices": {DEEP}}}', "[", "\x00"])
def test_a_body_that_cannot_be_read_lets_the_others_go_on(tmp_path: Path, body: str) -> None:
    with StandIn(lambda request: body) as server:
        client = client_of(server.url, tmp_path, attempts=2)
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
    with raw_server(HEAD, b" ", gap_s=0.02) as url:
        client = client_of(url, tmp_path, timeout_s=0.3, attempts=1)
        begun = time.monotonic()
        with pytest.raises(UnansweredError, match=r"did not reply within 0.3 s to prompt a"):
            client.ask(ask_for("a"))
        assert time.monotonic() - begun < 3.0


def test_a_reply_without_end_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 10_000)
    with raw_server(HEAD, b" " * 1000) as url:
        client = client_of(url, tmp_path, attempts=1)
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
