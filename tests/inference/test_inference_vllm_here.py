"""vLLM in this process, with its library replaced: what it is asked, and what becomes of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.errors import HarnessError, UserError
from harness.inference.logprob_check import Agreement, measure
from harness.inference.request import Renderer, Request, Sampling
from harness.inference.solver import Solver, opening
from harness.models.loading import Conversation

CONVERSATIONS: list[Conversation] = [[{"role": "user", "content": text}] for text in ("a", "b c")]
SAMPLING: dict[str, Any] = {
    "n": 2, "seed": 5, "temperature": 0.7, "top_p": 0.9, "max_new_tokens": 8,
}  # fmt: skip


class DeadError(Exception):
    """vLLM's, in its place."""


class Engine:
    """Answers the last request first, with two tokens of its seed and the end of the turn."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        if arguments.dtype == "half":
            raise ValueError("no half\nof it")
        self.arguments = arguments
        self.asked: list[tuple[str, list[int], Any]] = []
        self.waiting: list[tuple[str, list[int], Any]] = []
        self.stepped = 0
        self.ended = False
        self.engine_core = SimpleNamespace(shutdown=self.end)

    def end(self) -> None:
        self.ended = True

    def add_request(self, name: str, prompt: dict[str, list[int]], parameters: Any) -> None:
        self.asked.append((name, prompt["prompt_token_ids"], parameters))
        self.waiting.append(self.asked[-1])

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[SimpleNamespace]:
        self.stepped += 1
        if self.stepped == 1:
            return [SimpleNamespace(request_id=self.waiting[-1][0], finished=False)]
        if self.arguments.max_model_len == 3:
            raise DeadError
        name, _, parameters = self.waiting.pop()
        tokens = [8 + parameters.seed % 7, 9, parameters.stop_token_ids[0]]
        told = [{token: SimpleNamespace(logprob=-0.5)} for token in tokens]
        output = SimpleNamespace(token_ids=tokens, logprobs=told)
        return [SimpleNamespace(request_id=name, finished=True, outputs=[output])]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Replace what is imported of vLLM; return the engines that are started."""
    started: list[Engine] = []

    class EngineArgs:
        @staticmethod
        def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
            for name in ("model", "served-model-name", "dtype", "generation-config", "seed"):
                parser.add_argument(f"--{name}")
            parser.add_argument("--max-model-len", type=int)
            parser.add_argument("--tensor-parallel-size", type=int)
            return parser

        @staticmethod
        def from_cli_args(found: argparse.Namespace) -> argparse.Namespace:
            return found

    class LLMEngine:
        @staticmethod
        def from_engine_args(found: argparse.Namespace, enable_multiprocessing: bool) -> Engine:
            assert enable_multiprocessing
            started.append(Engine(found))
            return started[-1]

    for name, things in {
        "vllm": {"SamplingParams": SimpleNamespace},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"EngineArgs": EngineArgs},
        "vllm.utils": {},
        "vllm.utils.argparse_utils": {"FlexibleArgumentParser": argparse.ArgumentParser},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.llm_engine": {"LLMEngine": LLMEngine},
        "vllm.v1.engine.exceptions": {"EngineDeadError": DeadError},
    }.items():
        module = ModuleType(name)
        vars(module).update(things)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("HARNESS_VLLM_PYTHON", raising=False)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "fake_engines"))
    return started


def opened(policy: Path, folder: Path, **changes: Any) -> Any:
    asked: dict[str, Any] = {"dtype": "float32", "batch_size": 4, "log": folder / "log"}
    return opening("vllm 0.30.0", policy, **asked | changes)


def test_every_answer_is_asked_for_with_its_own_seed_and_put_in_its_place(
    policy_path: Path, engines: list[Engine], tmp_path: Path
) -> None:
    with Solver(policy_path, opened(policy_path, tmp_path, gpus=2), tmp_path) as solver:
        answers = solver.answer(CONVERSATIONS, **SAMPLING)
    [engine] = engines
    renderer = Renderer(policy_path)
    wanted = renderer.requests(CONVERSATIONS, n=2, seed=5, max_new_tokens=8)
    assert [tokens for _, tokens, _ in engine.asked] == [
        list(r.tokens) for r in wanted for _ in range(2)
    ]
    for _, _, one in engine.asked:
        given = (one.n, one.temperature, one.top_p, one.top_k, one.max_tokens, one.logprobs)
        assert given == (1, 0.7, 0.9, 0, 8, None)
    for own, request in zip(answers, wanted, strict=True):
        assert [a.tokens for a in own] == [(8 + seed % 7, 9) for seed in request.seeds]
        assert [a.text for a in own] == [renderer.text(a.tokens) for a in own]
    assert engine.ended
    assert engine.arguments.tensor_parallel_size == 2
    assert engine.arguments.max_model_len == renderer.context


def test_its_log_probabilities_are_held_against_the_trainers(
    policy_path: Path, engines: list[Engine], tmp_path: Path
) -> None:
    found = measure(policy_path, opened(policy_path, tmp_path), dtype="float32", texts=("a b",))
    assert (found.answers, found.tokens) == (2, 4)
    assert not found.agrees  # of 22 words in a random policy none has the chance exp(-0.5)
    assert isinstance(found, Agreement)


@pytest.mark.parametrize(
    ("changes", "own", "message", "kind"),
    [
        ({}, "--no-such-thing 1", "holds arguments that vllm 0.30.0 does not take", UserError),
        ({"dtype": "half"}, "", r"could not start on .*: no half$", HarnessError),
    ],
)
def test_an_engine_that_does_not_start_is_one_sentence(
    policy_path: Path,
    engines: list[Engine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    own: str,
    message: str,
    kind: type[Exception],
) -> None:
    monkeypatch.setenv("HARNESS_VLLM_ARGS", own)
    with (
        Solver(policy_path, opened(policy_path, tmp_path, **changes), tmp_path) as solver,
        pytest.raises(kind, match=message),
    ):
        solver.answer(CONVERSATIONS, **SAMPLING)
    assert not engines


def test_an_engine_that_dies_is_one_sentence(policy_path: Path, engines: list[Engine]) -> None:
    class Short:
        context = 3
        stops = (5,)

        def text(self, tokens: Sequence[int]) -> str:
            return str(tokens)

    with (
        opened(policy_path, Path())(Short()) as engine,
        pytest.raises(HarnessError, match=r"engine vllm 0.30.0 died in the middle"),
    ):
        engine.answer([Request(0, (2,), (1,), 4)], Sampling(1.0, 1.0, (5,)), lambda _: None)
    assert engines[0].ended
