"""Laws of the creator over an endpoint: failures, refusals, costs, and nothing asked twice."""

from pathlib import Path
from typing import Any

import pytest
from judge_stand_in import StandIn, ask_for, client_of, completion, digest

from harness.endpoint.access import model_of
from harness.endpoint.client import ServedModel
from harness.endpoint.connection import Endpoint
from harness.endpoint.prices import TokenPrice
from harness.errors import UserError
from harness.eva.evolving import Prompt, evolve
from harness.worlds.real.creator import EndpointGenerator, ModelCreator, evolve_concurrently

TOLD = {name: f"{name}: <prompt>{{prompt}}</prompt>" for name in ("breadth", "constraints")}
SAMPLING = {"temperature": 0.88, "top_p": 1.0, "max_tokens": 666}


def rewrite(body: Any) -> Any:
    """A usable rewrite, or every fifth time one of the failures that models have."""
    message, number = body["messages"][-1]["content"], digest(body)
    parent = message.partition("<prompt>")[2].partition("</prompt>")[0]
    asked = f"How would you answer question {number} if you had only one day for it?"
    good = f"<new_prompt>{asked}</new_prompt>"
    if number % 5:
        return completion(f"Sure!\n{good}\n")
    cut = completion(good[:30])
    cut["choices"][0]["finish_reason"] = "length"
    failures: tuple[Any, ...] = (
        completion("I'm sorry, but I can't help with that."),
        completion(f"<new_prompt>{parent}</new_prompt>"),
        cut,
        completion(None, refusal="I will not do that."),
        (400, {"error": {"message": "the prompt was filtered"}}, {}),
        completion(f"Rewritten prompt: {parent} now"),
    )
    return failures[number // 5 % 6]


def test_unusable_rewrites_are_counted_by_reason_and_only_usable_ones_kept(tmp_path: Path) -> None:
    """Every request carries model, sampling and words."""
    prompts = [Prompt(f"p{i}", f"What is the number {i} good for?") for i in range(12)]
    with StandIn(rewrite) as server:
        client = client_of(server, tmp_path, price=None)
        served = ServedModel(client, "writer", SAMPLING, concurrency=4)
        creator, over = ModelCreator(EndpointGenerator(served), TOLD), evolve_concurrently(served)
        result = evolve(prompts, creator, evolutions=3, retries=4, seed=1, over=over)
    assert result.attempts == len(result.prompts) + result.unusable.total()
    expected = {"refusal", "unmarked", "unchanged"}
    assert expected <= set(result.unusable) <= {*expected, "cut off"}
    assert all(p.prompt.startswith("How would you answer question") for p in result.prompts)
    for body in server.bodies:
        assert body.items() >= {"model": "writer", **SAMPLING}.items()
        (message,) = body["messages"]
        assert message["role"] == "user"
        assert message["content"].partition(":")[0] in TOLD


def server_of(model: str) -> Endpoint:
    server = model_of("creator", model).client.endpoint
    assert isinstance(server, Endpoint)
    return server


def test_where_a_model_is_reached_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:8000/v1")
    found = model_of("creator", "google/gemma-2-9b-it")
    assert found.client.endpoint.address == "http://127.0.0.1:8000/v1"
    assert server_of("google/gemma-2-9b-it").key_variable == "HARNESS_CREATOR_KEY"
    assert (found.concurrency, found.client.price) == (8, None)
    monkeypatch.setenv("HARNESS_CREATOR_CONCURRENCY", "32")
    monkeypatch.setenv("HARNESS_CREATOR_PRICE", "2.5,10")
    found = model_of("creator", "google/gemma-2-9b-it")
    assert (found.concurrency, found.client.price) == (32, TokenPrice(2.5, 10.0))
    with pytest.raises(UserError, match="HARNESS_SCORER_URL"):
        model_of("scorer", "google/gemma-2-9b-it")


def test_what_a_served_model_said_is_found_again_at_another_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each start of the harness's own server has another port, and the same namespace."""
    monkeypatch.setenv("HARNESS_CREATOR_CACHE_NAMESPACE", "served/a")
    requests = []
    for _ in range(2):
        with StandIn(lambda body: completion("said")) as server:
            monkeypatch.setenv("HARNESS_CREATOR_URL", server.url)
            assert model_of("creator", "writer").client.ask(ask_for("a")).text == "said"
        requests.append(server.requests)
    assert requests == [1, 0]


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", ""])
def test_the_user_says_how_long_a_reply_may_take(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """At an endpoint of their own, or where none is named, at the provider's."""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setenv("HARNESS_CREATOR_URL", url)
    monkeypatch.setenv("HARNESS_CREATOR_TIMEOUT", "7")
    assert server_of("gpt-4o-mini").timeout_s == 7


@pytest.mark.parametrize(
    ("model", "variable", "host"),
    [
        ("gpt-4o-mini", "OPENAI_API_KEY", "api.openai.com"),
        ("gemini-1.5-pro", "GEMINI_API_KEY", "generativelanguage.googleapis.com"),
    ],
)
def test_a_providers_key_goes_to_the_provider_alone(
    monkeypatch: pytest.MonkeyPatch, model: str, variable: str, host: str
) -> None:
    with pytest.raises(UserError, match=f"set {variable}, or name another endpoint"):
        model_of("creator", model)
    monkeypatch.setenv(variable, "a-key")
    assert (server_of(model).key_variable, server_of(model).host) == (variable, host)
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:1/v1")
    assert server_of(model).key_variable == "HARNESS_CREATOR_KEY"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CONCURRENCY", "300", "is 300; give a whole number from 1 to 256"),
        ("CONCURRENCY", "0", "is 0; give a whole number from 1 to 256"),
        ("CONCURRENCY", "2.5", "is 2.5; give a whole number"),
        ("CONCURRENCY", "many", "is `many`; give a number"),
        ("TIMEOUT", "0", "is 0; give the seconds"),
        ("TIMEOUT", "-1", "is `-1`; give a number, 0 or more"),
        ("PRICE", "5", "is not a price"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv(f"HARNESS_CREATOR_{name}", value)
    with pytest.raises(UserError, match=f"HARNESS_CREATOR_{name}.*{message}"):
        model_of("creator", "writer")
