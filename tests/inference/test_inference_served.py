"""Laws of engines that are servers, held to a stand-in that is started as vLLM is."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asked import CONVERSATIONS, SAMPLING, TEXTS, Requests, kept_in
from judge_stand_in import StandIn

from harness.endpoint.access import model_of
from harness.errors import HarnessError, UserError
from harness.inference.request import AnswersOf, Request, Sampling, seed_of
from harness.inference.served import CompletionsEngine
from harness.inference.solver import Solver, Start, started
from harness.models.policy import Completion
from harness.registry.serving import Served
from harness.serving.engines import environment


def start(policy: Path, keep: Path, **how: Any) -> Start:
    keep.mkdir(exist_ok=True)
    usual: dict[str, Any] = {"identity": "vllm 0.30.0", "dtype": "float32", "batch_size": 4}
    return partial(started, folder=policy, log=keep / "engine.log", **{**usual, **how})


@contextmanager
def solver(policy: Path, keep: Path, engine: str = "vllm 0.30.0") -> Iterator[Solver]:
    with Solver(policy, start(policy, keep, identity=engine), keep) as solving:
        yield solving


def answers(policy: Path, keep: Path, conversations: Any = CONVERSATIONS, **other: Any) -> Any:
    with solver(policy, keep) as solving:
        return solving.generate(conversations, **{**SAMPLING, **other})


def test_requests_carry_tokens_with_one_bos_and_all_of_the_sampling(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path
) -> None:
    """The text is <bos> <start_of_turn> user a b c <end_of_turn> <start_of_turn> model."""
    with solver(policy_path, tmp_path / "keep") as solving:
        [[answer]] = solving.generate(CONVERSATIONS[:1], **{**SAMPLING, "n": 1})
    [sent] = fake_vllm()
    assert sent["prompt"] == [2, 4, 6, 8, 9, 10, 5, 4, 7]
    assert sent["prompt"].count(2) == 1
    assert (sent["n"], sent["temperature"], sent["top_p"]) == (1, 0.7, 0.9)
    assert (sent["top_k"], sent["max_tokens"]) == (0, 12)
    assert sent["stop_token_ids"] == [1, 5]
    assert sent["seed"] == seed_of(11, 0, 0)
    assert 1 <= answer.n_tokens == len(answer.text.split()) <= 8


def test_every_answer_has_a_seed_of_its_own_however_many_are_asked_for_at_once(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path
) -> None:
    """Alone in order, or four at a time as they come: the answers and their order are the same."""
    together = answers(policy_path, tmp_path / "keep")
    seeds = [sent["seed"] for sent in fake_vllm()]
    assert sorted(seeds) == sorted({seed_of(11, p, s) for p in range(len(TEXTS)) for s in range(3)})
    assert all(0 <= seed < 2**31 for seed in seeds)
    for folder, size in (("one", 1), ("many", 32)):
        keep = tmp_path / folder
        with Solver(policy_path, start(policy_path, keep, batch_size=size), keep) as solving:
            assert solving.generate(CONVERSATIONS, **SAMPLING) == together


def test_an_engine_that_dies_in_the_middle_keeps_what_was_answered(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 24 answers it gives 10, so at least two prompts are whole; the rest is asked again.

    Once every answer is kept, nothing is started.
    """
    undisturbed = answers(policy_path, tmp_path / "undisturbed")
    monkeypatch.setenv("FAKE_DIES_AFTER", "10")
    with pytest.raises(HarnessError) as caught:
        answers(policy_path, tmp_path / "keep")
    said = str(caught.value)
    assert "vllm 0.30.0 died in the middle (exit code 3)" in said
    assert "RuntimeError: the engine core is gone" in said
    kept = kept_in(tmp_path / "keep")
    assert 2 <= kept <= 3
    monkeypatch.delenv("FAKE_DIES_AFTER")
    before = len(fake_vllm())
    assert answers(policy_path, tmp_path / "keep") == undisturbed
    assert len(fake_vllm()) - before == 3 * (8 - kept)
    monkeypatch.setenv("FAKE_DIES_AT_START", "1")
    assert answers(policy_path, tmp_path / "keep") == undisturbed


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("FAKE_ADDS_BOS", "1", "read a prompt of 8 tokens where it was sent 7"),
        ("FAKE_FAILS_AFTER", "0", r"vllm 0.30.0 died in the middle .* the core is lost"),
    ],
)
def test_an_engine_that_adds_a_bos_or_answers_with_an_error_is_refused(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    variable: str, value: str, says: str,
) -> None:  # fmt: skip
    """With an error: what computes has died, and what listens answers 500 and then ends too."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(HarnessError, match=says):
        answers(policy_path, tmp_path / "keep", CONVERSATIONS[5:6])


def test_secrets_are_not_handed_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    given = environment()
    assert given["CUDA_VISIBLE_DEVICES"] == "3"
    assert not {"sk-secret", "hf-secret"} & set(given.values())


def test_an_endpoint_is_reached_with_its_key_and_by_the_policys_name(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in, started by the one solver, is an endpoint for the other."""
    monkeypatch.setenv("HARNESS_SOLVER_KEY", "sk-solver")
    with solver(policy_path, tmp_path / "own") as own:
        own.generate(CONVERSATIONS[:1], **SAMPLING)
        engine = own._engine
        assert isinstance(engine, CompletionsEngine)
        url, name = engine.url, engine.model
        keep = tmp_path / "keep"
        monkeypatch.setenv("HARNESS_SOLVER_URL", url)

        def asked_at(model: str) -> list[list[Completion]]:
            at = model_of("policy", model)
            asks = start(policy_path, keep, identity="endpoint", endpoint=at)
            with Solver(policy_path, asks, keep) as solving:
                return solving.generate(CONVERSATIONS, **SAMPLING)

        with pytest.raises(UserError, match=f"serves {name} and no `google/gemma`"):
            asked_at("google/gemma")
        assert len(asked_at(name)) == len(TEXTS)
    last = fake_vllm()[-1]
    assert last["key"] == "Bearer sk-solver"
    assert last["top_k"] == -1


def test_a_policy_is_served_as_its_profile_declares(
    policy_path: Path, fake_vllm: Requests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt is six tokens and its words; more than two leave less than an answer may have."""
    told = tmp_path / "arguments"
    monkeypatch.setenv("FAKE_ARGUMENTS", str(told))
    served = Served(engine="vllm", dtype="bfloat16", max_length=20, gpu_memory=0.5, at_once=8)
    begin = start(policy_path, tmp_path, served=served)
    with Solver(policy_path, begin, tmp_path, max_length=20) as solving:
        solving.generate(CONVERSATIONS, **{**SAMPLING, "n": 1})
        assert solving.shortened == sum(len(text.split()) > 2 for text in TEXTS)
    given = json.loads(told.read_text())
    assert given["gpu_memory_utilization"] == "0.5"
    assert (given["max_num_seqs"], given["max_model_len"]) == ("8", "20")
    assert given["dtype"] == "float32"  # the stage's, which is in its identity
    assert all(len(sent["prompt"]) + sent["max_tokens"] <= 20 for sent in fake_vllm())


class Words:
    """A renderer that splits at blanks."""

    def count(self, text: str) -> int:
        return len(text.split())

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000, '{"choices": []}', '{"choices": [{"text": 5}]}',
        '{"choices": [{"token_ids": [-1]}]}',
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_one_sentence(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.inference.served.ATTEMPTS", 1)
    with StandIn(lambda sent: body) as server, pytest.raises(HarnessError, match="can be read"):
        asked_at(server.url)


def test_half_an_emoji_in_an_answer_can_be_written() -> None:
    with StandIn(lambda sent: {"choices": [{"text": " cut \ud83d"}]}) as server:
        [[answer]] = asked_at(server.url).values()
    assert answer == Completion("cut \ufffd", 2)


@pytest.mark.parametrize(
    ("reply", "key", "says"),
    [
        (None, "sk-other", "does not accept the key in HARNESS_SOLVER_KEY (HTTP 401)"),
        ("too long for sk-solver", None, "refused a prompt of 2 tokens (HTTP 400: too long for "),
    ],
)
def test_what_refuses_a_key_or_a_prompt_is_quoted_without_the_key(
    monkeypatch: pytest.MonkeyPatch, reply: str | None, key: str | None, says: str
) -> None:
    """The stand-in repeats the key in its reply, as some endpoints do."""
    monkeypatch.setenv("HARNESS_SOLVER_KEY", "sk-solver")
    refusal: Any = (400, {"error": {"message": reply}}, {})
    with StandIn(lambda sent: refusal, key=key) as server, pytest.raises(HarnessError) as caught:
        asked_at(server.url, "HARNESS_SOLVER_KEY")
    assert isinstance(caught.value, UserError) == (key is not None)
    assert says in str(caught.value)
    assert "sk-solver" not in str(caught.value)


def test_a_failure_aborts_the_requests_in_flight() -> None:
    under_way, held = threading.Event(), threading.Event()

    def reply(body: Any) -> Any:
        if body["prompt"] == [2, 3]:
            under_way.set()
            held.wait()
        under_way.wait()
        return 400, {"error": {"message": "no"}}, {}

    words: Any = Words()
    asked = [Request(i, tokens, (11,), room=4) for i, tokens in enumerate([(2, 3), (4, 5)])]
    with StandIn(reply) as server:
        engine = CompletionsEngine(server.url, "m", words, concurrency=2, no_cut=0)
        with pytest.raises(HarnessError, match="refused"):
            engine.generate(asked, Sampling(0.0, 1.0, (1,)), lambda answers: None)
        asking = [it for it in threading.enumerate() if it.name.startswith("answers")]
        for thread in asking:
            thread.join(5.0)
        waiting = [thread for thread in asking if thread.is_alive()]
        held.set()
    assert not waiting


def asked_at(url: str, key_variable: str | None = None) -> AnswersOf:
    """Have an endpoint answer one prompt once."""
    words: Any = Words()
    engine = CompletionsEngine(url, "m", words, concurrency=1, no_cut=0, key_variable=key_variable)
    found: AnswersOf = {}
    asked = [Request(0, (2, 3), (11,), room=4)]
    engine.generate(asked, Sampling(0.0, 1.0, (1,)), found.update)
    return found
