"""The judge client: one payment for each request, bounded, within a budget, without secrets."""

import json
import logging
import re
import threading
from base64 import b64encode
from dataclasses import replace
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_stand_in import PRICE, StandIn, ask_for, client_of, completion

from harness.endpoint.budget import BudgetReachedError, Ledger
from harness.endpoint.client import Client, ServedModel, cost_of, estimate, work_through
from harness.endpoint.connection import REDACTED, Endpoint, FunctionEndpoint
from harness.endpoint.errors import UnansweredError
from harness.endpoint.prices import TokenPrice, listed_price, parse_price, price_list
from harness.endpoint.replies import ReplyCache
from harness.endpoint.request import (
    TOKENS_PER_TEMPLATE,
    ChatRequest,
    Message,
    Reply,
    normalized_settings,
)
from harness.errors import HarnessError, UserError
from harness.extensions import judge

KEY = "sk-a-key-of-the-tests-0123456789"


def ask_all(client: Client, requests: list[ChatRequest], concurrency: int = 4) -> list[str | None]:
    served = ServedModel(client, "m", concurrency=concurrency)
    outcomes = work_through(requests, lambda r: client.ask(r).text, served)
    return [outcome.result for outcome in outcomes]


def kept(client: Client, request: ChatRequest) -> bool:
    return client.cache.get(client.address(request)) is not None


messages = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=5)), min_size=1, max_size=3
)
identities = st.tuples(
    st.sampled_from(["http://a", "http://b"]),
    st.sampled_from(["gpt-4", "gpt-5"]),
    messages,
    st.dictionaries(st.sampled_from(["temperature", "max_tokens"]), st.integers(0, 1)),
    st.integers(0, 1),
)


@given(identities, identities, st.text(), st.text())
def test_two_requests_have_one_address_just_when_all_that_matters_is_equal(
    first: Any, second: Any, label: str, other_label: str
) -> None:
    def address(identity: Any, name: str) -> str:
        endpoint, model, talk, settings, sample = identity
        sent = tuple(Message(role, text) for role, text in talk)
        return ChatRequest(name, model, sent, settings, sample).address(endpoint)

    assert (address(first, label) == address(second, other_label)) == (first == second)


def test_equal_requests_at_the_same_time_are_paid_once(tmp_path: Path) -> None:
    with StandIn(latency_s=0.05) as server:
        assert len(set(ask_all(client_of(server, tmp_path), [ask_for("same")] * 8, 8))) == 1
        assert server.requests == 1


def kept_lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "replies").glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_a_line_that_is_not_whole_is_asked_for_again_and_the_others_are_not(tmp_path: Path) -> None:
    """The last line may end anywhere, as after a kill; then a process adds lines of its own."""
    with StandIn() as server:
        ask_all(client_of(server, tmp_path), [ask_for("a"), ask_for("b")], concurrency=1)
        (path,) = (tmp_path / "replies").glob("*.jsonl")
        whole = path.read_bytes()
        last = len(whole) - len(whole.splitlines(keepends=True)[-1])
        for end in (last, last + 1, last + 20, last + 90, len(whole) - 2, len(whole) - 1):
            path.write_bytes(whole[:end])
            before = server.requests
            again = client_of(server, tmp_path)
            assert kept(again, ask_for("a"))
            again.ask(ask_for("b"))
            assert server.requests == before + 1
            for spare in set((tmp_path / "replies").glob("*.jsonl")) - {path}:
                spare.unlink()


def test_several_commands_share_what_they_have_kept(tmp_path: Path) -> None:
    """Each adds to a file of its own; who comes later sees both."""
    with StandIn() as server:
        first, second = client_of(server, tmp_path), client_of(server, tmp_path)
        ask_all(first, [ask_for("a"), ask_for("b")])
        ask_all(second, [ask_for("c")])
        ask_all(first, [ask_for("d")])
        third = client_of(server, tmp_path)
        assert all(kept(third, ask_for(text)) for text in "abcd")
    assert len(list((tmp_path / "replies").glob("*.jsonl"))) == 2
    assert len({entry["address"] for entry in kept_lines(tmp_path)}) == 4


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(FileIO):
        def write(self, line: Any) -> int:
            return 0

    monkeypatch.setattr("harness.endpoint.replies.FileIO", Full)
    with StandIn() as server, pytest.raises(HarnessError, match="while keeping a reply in"):
        client_of(server, tmp_path).ask(ask_for("a"))


def test_as_many_requests_are_under_way_as_allowed_and_no_more(tmp_path: Path) -> None:
    """Each reply waits until three requests are there; a fourth would be counted."""
    together = threading.Barrier(3, timeout=60.0)

    def reply(body: Any) -> Any:
        together.wait()
        return completion("fine")

    with StandIn(reply) as server:
        client = client_of(server, tmp_path, timeout_s=60.0)
        ask_all(client, [ask_for(str(i)) for i in range(12)], 3)
        assert server.most_under_way == 3


def test_pauses_grow_and_follow_the_endpoint_s_wish(tmp_path: Path) -> None:
    """Derivation: full jitter is below 0.5 x 2^n; the endpoint asks for 7 s, and then for a day."""
    pauses: list[float] = []
    statuses = iter([(503, {}), (503, {}), (429, {"Retry-After": "7"})])
    long = (429, {"Retry-After": "86400"})

    def reply(body: Any) -> Any:
        status, headers = next(statuses, long)
        return status, {"error": {"message": "busy"}}, headers

    with StandIn(reply) as server:
        client = client_of(server, tmp_path, sleep=pauses.append, attempts=5)
        with pytest.raises(UnansweredError, match=r"429.*, 5 times"):
            client.ask(ask_for("a"))
        assert server.requests == 5
    assert pauses[0] <= 0.5
    assert pauses[1] <= 1.0
    assert pauses[2:] == [7.0, 60.0]


def test_a_slow_or_unreachable_endpoint_is_one_sentence_and_is_tried_again(tmp_path: Path) -> None:
    """What was sent may have to be paid; what was not, not."""
    with StandIn(latency_s=0.3) as server:
        client = client_of(server, tmp_path, timeout_s=0.05, attempts=2)
        with pytest.raises(UnansweredError, match=r"did not reply within 0.05 s.*2 times"):
            client.ask(ask_for("a"))
        assert client.ledger.spending.usd_unconfirmed > 0
    client = client_of("http://127.0.0.1:9/v1", tmp_path, attempts=2)
    with pytest.raises(UnansweredError, match=r"127.0.0.1:9 cannot be reached"):
        client.ask(ask_for("a"))
    assert client.ledger.spending.usd_unconfirmed == 0


@pytest.mark.parametrize("status", [400, 500])
def test_an_endpoint_that_answers_nothing_ends_the_evaluation_early(
    tmp_path: Path, status: int
) -> None:
    with StandIn(lambda body: (status, {}, {})) as server:
        client = client_of(server, tmp_path, attempts=2)
        with pytest.raises(HarnessError, match="5 requests in a row had no answer"):
            ask_all(client, [ask_for(str(i)) for i in range(500)], 2)
        assert server.requests < 100


def test_an_item_without_an_answer_lets_the_others_finish(tmp_path: Path) -> None:
    def reply(body: Any) -> Any:
        is_bad = body["messages"][0]["content"] == "3"
        return (500, {}, {}) if is_bad else completion("fine")

    requests = [ask_for(str(i)) for i in range(10)]
    with StandIn(reply) as server:
        with pytest.raises(HarnessError, match="1 of 10 requests had no answer"):
            ask_all(client_of(server, tmp_path, attempts=2), requests, 2)
        server.reply = lambda body: completion("fine")
        before = server.requests
        assert ask_all(client_of(server, tmp_path), requests) == ["fine"] * 10
        assert server.requests == before + 1


def test_a_refused_item_is_left_out(tmp_path: Path) -> None:
    def reply(body: Any) -> Any:
        refusal: Any = (400, {"error": {"message": "too long"}}, {})
        return refusal if body["messages"][0]["content"] == "3" else completion("fine")

    requests = [ask_for(str(i)) for i in range(6)]
    with StandIn(reply) as server:
        client = client_of(server, tmp_path)
        served = ServedModel(client, "m", concurrency=1)
        outcomes = work_through(requests, lambda r: client.ask(r).text, served)
        assert [o.refused for o in outcomes] == [False] * 3 + [True] + [False] * 2
        assert "too long" in str(outcomes[3].failure)
        assert server.requests == 6


@pytest.mark.parametrize(
    ("status", "error", "headers", "says"),
    [
        (404, {"message": "unknown"}, {}, "no model judge.*unknown"),
        (429, {"code": "insufficient_quota"}, {}, "no quota left"),
        (401, {"message": "wrong key"}, {}, "does not accept the key in JUDGE_TEST_KEY"),
        (400, {"param": "temperature"}, {}, "does not take temperature"),
        (307, {}, {"Location": "http://there/v1"}, "on to http://there/v1 .* is not followed"),
    ],
)
def test_what_would_fail_for_every_request_ends_the_evaluation_at_once(
    tmp_path: Path, status: int, error: Any, headers: dict[str, str], says: str
) -> None:
    with StandIn(lambda body: (status, {"error": error}, headers)) as server:
        with pytest.raises(HarnessError, match=says):
            ask_all(client_of(server, tmp_path), [ask_for(str(i)) for i in range(100)], 2)
        assert server.requests < 50  # of 100: those that were under way, many on a slow machine


@pytest.mark.parametrize("cents", [0.0, 0.5, 2.5])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_budget_is_never_passed(tmp_path: Path, cents: float, concurrency: int) -> None:
    """Derivation: a reply costs 0.13 cents; it is begun while its 0.13 and the bound fit."""
    requests = [ask_for("x" * 90 + str(i)) for i in range(30)]
    with StandIn() as server:
        client = client_of(server, tmp_path, budget=cents / 100)
        with pytest.raises(BudgetReachedError, match="--budget-usd"):
            ask_all(client, requests, concurrency)
        answered = server.requests
    usd = client.ledger.spending.usd
    assert usd is not None
    assert usd == pytest.approx(answered * 0.0013)
    assert usd <= cents / 100
    # The stop is no earlier than one request at its most before the budget.
    assert usd + PRICE.of(requests[-1].most_prompt_tokens, 10) > cents / 100


@given(
    st.lists(st.tuples(st.integers(0, 130), st.integers(0, 10)), max_size=20), st.floats(0, 0.02)
)
def test_whatever_replies_cost_the_ledger_stays_within_its_budget(
    replies: list[tuple[int, int]], budget: float
) -> None:
    """The endpoint's counts stay within the bounds of tokens: 110 bytes and 16 besides."""
    with TemporaryDirectory() as folder:
        ledger, request = Ledger(Path(folder), budget), ask_for("x" * 114)
        for prompt, reply in replies:
            try:
                most = ledger.reserve(request, PRICE)
            except BudgetReachedError:
                break
            usage = {"prompt_tokens": prompt, "completion_tokens": reply}
            ledger.settle(most, request, Reply({"usage": usage}), PRICE)
    assert (ledger.spending.usd or 0.0) <= budget


def test_a_reply_without_a_limit_counts_whole_and_is_not_asked_for_within_a_budget(
    tmp_path: Path,
) -> None:
    """Derivation: 100 tokens of prompt at 10 dollars, and 20,000 of reply at 30, are 60.1 cents."""
    request = replace(ask_for("x" * 90), settings={})
    usage = {"prompt_tokens": 100, "completion_tokens": 20_000}
    with StandIn(lambda body: completion("long") | {"usage": usage}) as server:
        client = client_of(server, tmp_path / "without")
        client.ask(request)
        assert client.ledger.spending.usd == pytest.approx(0.601)
        client_of(server, tmp_path / "free", 1.0, TokenPrice(0.0, 0.0)).ask(request)
        with pytest.raises(UserError, match=r"longest reply.*max_new_tokens"):
            client_of(server, tmp_path / "within", 1.0).ask(request)
        assert server.requests == 2


def test_without_a_price_the_cost_is_unknown_and_not_zero(tmp_path: Path) -> None:
    with StandIn() as server:
        client = client_of(server, tmp_path, price=None)
        client.ask(ask_for("a"))
        assert client.ledger.spending.usd is None
        assert estimate([ask_for("b")], client, 10).usd is None


def test_an_estimate_counts_what_is_not_in_the_cache_and_sends_nothing(tmp_path: Path) -> None:
    """Derivation: 400 characters are 100 tokens and 8 besides; 108 x 10 + 5 x 30 = 1230."""
    requests = [ask_for("a" * 400), ask_for("b" * 400), ask_for("b" * 400)]
    with StandIn() as server:
        client = client_of(server, tmp_path)
        client.ask(requests[0])
        found = estimate(requests, client, reply_tokens=5)
        assert server.requests == 1
    assert (found.requests, found.from_cache) == (2, 1)
    assert found.usd == pytest.approx(1230e-6)
    assert found.usd_at_most == pytest.approx(PRICE.of(400 + 16 + TOKENS_PER_TEMPLATE, 10))


PLAIN: Any = {"max_tokens": 100, "temperature": 0, "top_p": 1.0, "tools": [{}]}
THINKING: Any = {"max_completion_tokens": 100 + 8192, "tools": [{}]}
SILENCED: Any = {
    "max_completion_tokens": 100, "temperature": 0, "top_p": 1.0, "tools": [{}],
    "reasoning_effort": "none",
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("gpt-4", PLAIN), ("gpt-4o-mini", PLAIN), ("gpt-4-1106-preview", PLAIN),
        ("gpt-5", THINKING), ("gpt-5.4-mini", THINKING), ("o1", THINKING), ("o3-mini", THINKING),
        ("openai/gpt-5-mini", THINKING), ("gpt-5-chat-latest", PLAIN), ("o1ympus", PLAIN),
        ("meta-llama/Llama-3.1-70B-Instruct", PLAIN), ("gpt-50b", PLAIN),
        ("gpt-6-sol", SILENCED), ("openai/gpt-6-luna", SILENCED), ("gpt-6.1-sol", THINKING),
        ("gpt-6-astra", THINKING), ("gpt-6-solo", THINKING),
    ],
)  # fmt: skip
def test_a_model_s_name_says_how_it_is_asked(model: str, settings: Any) -> None:
    assert normalized_settings(model, PLAIN) == settings


def test_a_model_that_thinks_is_asked_and_estimated_with_room_for_it(tmp_path: Path) -> None:
    request = replace(ask_for("a"), model="o1")
    with StandIn() as server:
        client = client_of(server, tmp_path)
        found = estimate([request], client, reply_tokens=5)
        client.ask(request)
        assert kept(client, request)
        assert server.bodies[0]["max_completion_tokens"] == 10 + 8192
    assert found.usd_at_most == pytest.approx(PRICE.of(1 + 16 + TOKENS_PER_TEMPLATE, 10 + 8192))


def test_the_cost_counts_replies_whenever_they_were_paid(tmp_path: Path) -> None:
    """Derivation: a reply of the stand-in has 100 + 10 tokens."""
    requests = [ask_for("a"), ask_for("b"), ask_for("a")]
    with StandIn() as server:
        paid = ask_all(client_of(server, tmp_path), requests[:1])
        client = client_of(server, tmp_path)
        assert ask_all(client, requests)[::2] == paid * 2
        assert server.requests == 2
    assert (client.ledger.spending.requests, client.ledger.spending.from_cache) == (1, 2)
    assert set(client.used) == {client.address(request) for request in requests}
    assert cost_of([client]) == {
        "replies": 2,
        "prompt_tokens": 200,
        "completion_tokens": 20,
        "usd": pytest.approx(PRICE.of(200, 20)),
    }
    assert cost_of([client, client_of(server, tmp_path, price=None)])["usd"] is None
    assert client.ledger.spending.usd == pytest.approx(PRICE.of(100, 10))


def test_the_shipped_prices_say_their_date_and_sources() -> None:
    prices = price_list()
    assert (prices["as_of"], prices["source"][:10]) == ("2026-11-22", "copies of ")
    assert {price["source"] for price in prices["models"].values()} == prices["sources"].keys()
    assert min(min(it["prompt"], it["completion"]) for it in prices["models"].values()) > 0.0
    assert listed_price("gpt-4") == TokenPrice(30.0, 60.0)
    assert listed_price("unheard") is None


@pytest.mark.parametrize("text", ["10", "a,b", "1,2,3", "-1,2", "inf,1"])
def test_a_price_of_another_form_is_a_mistake(text: str) -> None:
    with pytest.raises(UserError, match="--price"):
        parse_price("--price", text)


def everything(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*map(str, files), *(path.read_text() for path in files)])


@pytest.mark.parametrize("status", [200, 400, 401, 404, 418, 500])
def test_the_key_is_in_no_file_no_error_and_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    said = f"You sent me {KEY}"
    reply: Any = status, {"error": {"message": said}}, {}
    if status == 200:
        reply = completion(said)
    elif status == 418:
        reply = status, said, {}
    monkeypatch.setenv("JUDGE_TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    with StandIn(lambda body: reply) as server:
        client = client_of(server, tmp_path, attempts=2)
        try:
            said = client.ask(ask_for("a")).text
            assert REDACTED in said
        except HarnessError as error:
            said = f"{error} {error.__cause__} {error!r}"
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in said + everything(tmp_path) + caplog.text + repr(client.endpoint.__dict__)


@pytest.mark.parametrize("slash", ["/", r"\/"])
def test_a_key_is_taken_out_however_json_spells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slash: str
) -> None:
    key = 'c2VjcmV0/a2V5"LXNlY3JldA'
    monkeypatch.setenv("JUDGE_TEST_KEY", key)
    body = json.dumps({"error": {"message": key}}).replace("/", slash)
    with (
        StandIn(lambda sent: (400, body, {})) as server,
        pytest.raises(HarnessError, match=re.escape(REDACTED)) as caught,
    ):
        client_of(server, tmp_path).ask(ask_for("a"))
    assert "a2V5" not in str(caught.value)


@pytest.mark.usefixtures("registries")
def test_half_an_emoji_from_a_judge_of_ones_own_can_be_kept(tmp_path: Path) -> None:
    @judge("halves", version="1")
    def halves(messages: object) -> str:
        return "half \ud83d"

    client = Client(FunctionEndpoint("halves"), ReplyCache(tmp_path), Ledger(tmp_path))
    assert client.ask(ask_for("a")).text == "half \ufffd"


def test_a_placeholder_for_a_key_blots_out_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_TEST_KEY", "EMPTY")
    with StandIn(lambda body: completion("EMPTY words")) as server:
        assert client_of(server, tmp_path).ask(ask_for("a")).text == "EMPTY words"


def test_requests_go_through_the_environments_proxy_unless_it_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in is the proxy; nothing listens at the address that is asked for."""
    with StandIn() as proxy:
        monkeypatch.setenv("http_proxy", f"me:password@{proxy.url[len('http://') : -len('/v1')]}")
        client_of("http://127.0.0.1:9/v1", tmp_path).ask(ask_for("a"))
        (headers,) = proxy.headers
        assert headers["proxy-authorization"] == f"Basic {b64encode(b'me:password').decode()}"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with pytest.raises(UnansweredError, match=r"127\.0\.0\.1:9 cannot be reached \("):
            client_of("http://127.0.0.1:9/v1", tmp_path, attempts=1).ask(ask_for("b"))


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_TEST_KEY", raising=False)
    with pytest.raises(UserError, match=r"set JUDGE_TEST_KEY, or name .* in HARNESS_CREATOR_URL"):
        Endpoint("https://api.openai.com/v1/", "JUDGE_TEST_KEY").check_key("HARNESS_CREATOR_URL")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@host/v1", "http://host/v1?key=secret", "ftp://host", "host:80", "",
        "http://localhost..x:8000/v1", f"http://{'x' * 64}/v1",
    ],
)  # fmt: skip
def test_an_address_that_is_none_or_carries_a_secret_is_a_mistake(url: str) -> None:
    with pytest.raises(UserError) as caught:
        Endpoint(url, "JUDGE_TEST_KEY")
    assert "secret" not in str(caught.value)


def test_an_interrupted_evaluation_sends_nothing_more(tmp_path: Path) -> None:
    """The interrupt comes after two items; those under way are kept, the others never sent."""

    def interrupt(count: int, total: int) -> None:
        if count >= 2:
            raise KeyboardInterrupt

    requests = [ask_for(str(i)) for i in range(100)]
    with StandIn(latency_s=0.01) as server:
        client = client_of(server, tmp_path)
        with pytest.raises(KeyboardInterrupt):
            work_through(requests, client.ask, ServedModel(client, "m", concurrency=2), interrupt)
        sent = server.requests
        assert sent < 20
        assert sum(kept(client, request) for request in requests) == sent
        assert None not in ask_all(client_of(server, tmp_path), requests)
        assert set(server.answered.values()) == {1}


@pytest.mark.parametrize(
    "key", ["sk-two\nlines-0123456789", "sk-ümlaut-0123456789", "sk-\x1b[31m-012345"]
)
def test_a_key_that_no_header_can_carry_is_a_mistake_that_does_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("JUDGE_TEST_KEY", key)
    with StandIn() as server:
        with pytest.raises(UserError, match="JUDGE_TEST_KEY has characters") as caught:
            client_of(server, tmp_path, attempts=1).ask(ask_for("a"))
        assert server.requests == 0
    assert "0123456789" not in str(caught.value)


def test_the_key_is_not_in_the_place_that_an_endpoint_sends_requests_on_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_TEST_KEY", KEY)
    there: Any = 307, {}, {"Location": f"http://there/?token={KEY}"}
    with (
        StandIn(lambda body: there) as server,
        pytest.raises(UserError, match=r"\[key\]") as caught,
    ):
        client_of(server, tmp_path).ask(ask_for("a"))
    assert KEY not in str(caught.value)


def test_what_may_have_been_paid_counts_although_the_ledger_is_deleted(tmp_path: Path) -> None:
    request = ask_for("a")
    most = PRICE.of(request.most_prompt_tokens, request.most_completion_tokens)
    ledger = Ledger(tmp_path, 1.5 * most)
    ledger.lose(ledger.reserve(request, PRICE))
    (tmp_path / "ledger.json").unlink()
    with pytest.raises(BudgetReachedError):
        ledger.reserve(request, PRICE)
