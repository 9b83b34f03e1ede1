"""What a profile says of its servers: the command lines it comes to, and what cannot be meant."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from toy_servers import served

from harness.errors import UserError
from harness.registry.serving import Serving
from harness.serving.engines import Installed, ServedCheckpoint, command

MODEL = ServedCheckpoint(
    Path("/models/q"), "owner/q", "bfloat16", 8192, gpu_memory=0.3, at_once=64,
    template={"enable_thinking": False},
)  # fmt: skip


def told(engine: str, **changes: Any) -> dict[str, str]:
    model = ServedCheckpoint(**vars(MODEL) | changes)
    arguments = command(Installed(engine, engine, "/opt/bin/python"), model, 8123)
    assert arguments[:2] == ["/opt/bin/python", "-m"]
    return dict(itertools.pairwise([*arguments, ""]))


def test_vllm_is_told_all_of_the_profiles_words() -> None:
    given = told("vllm", sampling={"top_k": 20})
    assert given["-m"] == "vllm.entrypoints.openai.api_server"
    assert (given["--host"], given["--port"]) == ("127.0.0.1", "8123")
    assert (given["--model"], given["--served-model-name"]) == ("/models/q", "owner/q")
    assert (given["--dtype"], given["--max-model-len"]) == ("bfloat16", "8192")
    assert (given["--gpu-memory-utilization"], given["--max-num-seqs"]) == ("0.3", "64")
    assert json.loads(given["--default-chat-template-kwargs"]) == {"enable_thinking": False}
    assert given["--generation-config"] == "vllm"  # none of the model's own sampling
    assert json.loads(given["--override-generation-config"]) == {"top_k": 20}


def test_whole_numbers_stay_whole_on_their_way_to_the_server() -> None:
    """With a `top_k` of 20.0 vLLM refuses every request."""
    words = served(sampling={"top_k": 20, "min_p": 0.5}).sampling
    given = told("vllm", sampling=words)
    assert given["--override-generation-config"] == '{"top_k": 20, "min_p": 0.5}'


def test_sglang_is_told_the_same_in_its_words() -> None:
    given = told("sglang")
    assert given["-m"] == "sglang.launch_server"
    assert (given["--model-path"], given["--context-length"]) == ("/models/q", "8192")
    assert (given["--mem-fraction-static"], given["--max-running-requests"]) == ("0.3", "64")
    assert json.loads(given["--default-chat-template-kwargs"]) == {"enable_thinking": False}
    assert given["--sampling-defaults"] == "openai"
    assert "--enable-deterministic-inference" in given


def test_what_is_not_said_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own arguments come last, so that they win."""
    own = "--gpu-memory-utilization 0.5 --download-dir '/a b'"
    monkeypatch.setenv("HARNESS_VLLM_ARGS", own)
    given = told("vllm", gpu_memory=None, at_once=None, template={})
    assert not {"--max-num-seqs", "--default-chat-template-kwargs"} & set(given)
    assert (given["--gpu-memory-utilization"], given["--download-dir"]) == ("0.5", "/a b")


@pytest.mark.parametrize(
    ("role", "changes", "message"),
    [
        ("judge", {"engine": "sglang", "sampling": {"top_k": 1}}, "`sampling` is vLLM's"),
        ("judge", {"model": None}, "`judge`: `model` must name the checkpoint"),
        ("policy", {}, "`policy`: its stages name the checkpoint"),
        ("judge", {"gpu_memory": 1.0}, "less than 1"),
        ("judge", {"gpu": 0.5}, "gpu"),
    ],
)
def test_what_cannot_be_meant_is_an_error(role: str, changes: dict[str, Any], message: str) -> None:
    words = served().model_dump() | changes
    with pytest.raises(ValueError, match=message):
        Serving.model_validate({role: words})


def test_what_changes_replies_is_told_apart_from_what_does_not() -> None:
    usual = served().numerics()
    changes: dict[str, Any]
    for changes in ({"gpu_memory": 0.3}, {"at_once": 8}):
        assert served(**changes).numerics() == usual
    for changes in (
        {"template": {"enable_thinking": False}},
        {"sampling": {"top_k": 20}},
        {"max_length": 512},
        {"dtype": "float32"},
        {"engine": "sglang"},
        {"model": f"owner/other@{'1' * 40}"},
    ):
        assert served(**changes).numerics() != usual


@pytest.mark.parametrize("text", ["--dtype half", "--enforce-eager --max_model_len=64", "--port 1"])
def test_what_changes_answers_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HARNESS_VLLM_ARGS", text)
    with pytest.raises(UserError, match=r"HARNESS_VLLM_ARGS holds `--\w+.*leave it out"):
        told("vllm")
