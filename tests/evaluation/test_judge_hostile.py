"""Replies that no honest endpoint sends: kept once, counted within bounds, not waited for."""

import gzip
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import PRICE, StandIn, ask_for, client_of, completion
from misbehaving import HEAD, drip

from harness.endpoint import connection
from harness.endpoint.budget import BudgetReachedError
from harness.endpoint.connection import Endpoint
from harness.endpoint.errors import UnansweredError
from harness.endpoint.request import Reply
from harness.errors import HarnessError
from harness.evaluation.benchmarks.mt_bench import parse_rating
from harness.worlds.real.scoring import only_field


def sends(data: bytes, status: int = 200, **headers: str) -> Any:
    """Return what answers with a body and headers as they are."""

    def send(request: Any, body: Any) -> None:
        request.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **headers}.items():
            request.send_header(name.replace("_", "-"), text)
        request.end_headers()
        request.wfile.write(data)

    return lambda body, times: send


@pytest.mark.parametrize(
    "calls", [[5], [{"function": "rank"}], [{"function": [1]}], {"a": 1}, [[]]]
)
def test_a_tool_call_of_another_form_is_none(calls: Any) -> None:
    reply = Reply({"choices": [{"message": {"content": None, "tool_calls": calls}}]})
    assert reply.tool_arguments is None


def test_long_replies_are_read_in_linear_time() -> None:
    """Each took minutes: the patterns tried every way to divide digits, or blanks, in two."""
    begun = time.process_time()
    assert parse_rating("[[" + "1" * 200_000) is None
    assert parse_rating("[" + "1" * 200_000) is None
    assert only_field("```" + " " * 100_000 + "x", "score") is None
    assert time.process_time() - begun < 5.0


@pytest.mark.parametrize("number", ["904", "0", "10.5", "9" * 400, "9" * 5000])
def test_a_rating_that_is_not_on_the_scale_is_none(number: str) -> None:
    assert parse_rating(f"[[{number}]]") is None
    assert parse_rating(f"[[{number}]], no, [[7]]") is None


@pytest.mark.parametrize(
    ("head", "data"),
    [
        (HEAD, b" "),
        (b"HTTP/1.1 200 OK\r\n", b"X-Drop: 1\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["body", "headers", "100 Continue"],
)
def test_a_reply_that_drips_is_a_timeout_of_the_whole_request(
    tmp_path: Path, head: bytes, data: bytes
) -> None:
    """A piece every 0.1 s never leaves the gap of 0.3 s, for hours; then the socket is closed."""
    closed = threading.Event()

    def drips(request: Any, body: Any) -> None:
        drip(request, head, data, 0.1)
        closed.set()

    with StandIn(instead=lambda body, times: drips) as server:
        client = client_of(server, tmp_path, timeout_s=0.3, attempts=1)
        with pytest.raises(UnansweredError, match=r"did not reply within 0.3 s to prompt a"):
            client.ask(ask_for("a"))
        assert closed.wait(60.0)


def test_a_reply_without_end_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 10_000)

    def pours(request: Any, body: Any) -> None:
        drip(request, data=b" " * 1000, gap_s=0.0)

    with StandIn(instead=lambda body, times: pours) as server:
        client = client_of(server, tmp_path, attempts=1)
        with pytest.raises(UnansweredError, match=r"broke off .*too large"):
            client.ask(ask_for("a"))


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "identity, gzip"])
def test_a_reply_that_is_packed_is_refused_unread(tmp_path: Path, encoding: str) -> None:
    packed = gzip.compress(json.dumps(completion("fine")).encode())
    with StandIn(instead=sends(packed, Content_Encoding=encoding)) as server:
        client = client_of(server, tmp_path, attempts=1)
        with pytest.raises(UnansweredError, match="is packed"):
            client.ask(ask_for("a"))
        assert server.headers[0]["accept-encoding"] == "identity"
    assert client.ledger.spending.usd_unconfirmed > 0


@pytest.mark.parametrize(
    "headers", [{"Content_Encoding": "identity"}, {"Content_Type": "application/json; charset=zip"}]
)
def test_a_header_changes_nothing_of_a_body_that_is_not_packed(
    tmp_path: Path, headers: dict[str, Any]
) -> None:
    """A charset named `zip` made an HTTP library fail with an `AssertionError`."""
    data = json.dumps(completion("caf\u00e9"), ensure_ascii=False).encode()
    with StandIn(instead=sends(data, **headers)) as server:
        assert client_of(server, tmp_path).ask(ask_for("a")).text == "caf\u00e9"


ESCAPES = "\x1b]0;owned\x07\x1b[2J \x9b2J\u202e\nharness: all is well"
"""Words that a terminal, or who reads it, would obey."""


ERROR = {"error": {"message": ESCAPES, "param": ESCAPES, "code": ESCAPES}}


@pytest.mark.parametrize(
    "reply",
    [
        *(sends(json.dumps(ERROR).encode(), status) for status in (400, 404, 429, 500)),
        *(sends(ESCAPES.encode(), status) for status in (400, 404, 429, 500)),
        sends(b"", 307, Location="http://there/\x1b]0;owned\x07\x9b2J"),
    ],
)
def test_what_an_endpoint_says_is_one_printable_line(tmp_path: Path, reply: Any) -> None:
    with StandIn(instead=reply) as server, pytest.raises(HarnessError) as caught:
        client_of(server, tmp_path, attempts=1).ask(ask_for("a"))
    assert "owned" in str(caught.value)
    assert str(caught.value).isprintable()


def test_money_stays_reserved_where_nobody_knows_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of ours comes after the request was sent, for all that is known."""
    request = ask_for("a")
    most = PRICE.of(request.most_prompt_tokens, request.most_completion_tokens)

    def fails(self: Any, request: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(Endpoint, "send", fails)
    client = client_of("http://127.0.0.1:9/v1", tmp_path, budget=1.5 * most)
    with pytest.raises(AssertionError):
        client.ask(request)
    assert client.ledger.spending.usd_unconfirmed == pytest.approx(most)
    with pytest.raises(BudgetReachedError):
        client.ask(request)


@pytest.mark.parametrize(
    ("status", "is_charged"), [(400, False), (429, False), (503, False), (500, True), (502, True)]
)
def test_a_status_says_whether_a_request_may_have_been_answered(
    tmp_path: Path, status: int, is_charged: bool
) -> None:
    """A gateway's 502 may come after the model behind it has written, and been paid for, it."""
    request = ask_for("a")
    most = PRICE.of(request.most_prompt_tokens, request.most_completion_tokens)
    with StandIn(lambda body: (status, {}, {})) as server:
        client = client_of(server, tmp_path, attempts=1)
        with pytest.raises(HarnessError):
            client.ask(request)
    assert client.ledger.spending.usd_unconfirmed == pytest.approx(most * is_charged)


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
