"""What a profile says of its servers: the command lines it comes to, and what cannot be meant."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from toy_servers import served

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
    given = told("vllm")
    assert given["-m"] == "vllm.entrypoints.openai.api_server"
    assert (given["--host"], given["--port"]) == ("127.0.0.1", "8123")
    assert (given["--model"], given["--served-model-name"]) == ("/models/q", "owner/q")
    assert (given["--dtype"], given["--max-model-len"]) == ("bfloat16", "8192")
    assert (given["--gpu-memory-utilization"], given["--max-num-seqs"]) == ("0.3", "64")
    assert json.loads(given["--default-chat-template-kwargs"]) == {"enable_thinking": False}
    assert given["--generation-config"] == "vllm"  # none of the model's own sampling


def test_sglang_is_told_the_same_in_its_words() -> None:
    given = told("sglang")
    assert given["-m"] == "sglang.launch_server"
    assert (given["--model-path"], given["--context-length"]) == ("/models/q", "8192")
    assert (given["--mem-fraction-static"], given["--max-running-requests"]) == ("0.3", "64")
    assert json.loads(given["--default-chat-template-kwargs"]) == {"enable_thinking": False}
    assert given["--sampling-defaults"] == "openai"
    assert "--enable-deterministic-inference" in given


def test_what_is_not_said_is_left_to_the_engine() -> None:
    given = told("vllm", gpu_memory=None, at_once=None, template={})
    left = {"--gpu-memory-utilization", "--max-num-seqs", "--default-chat-template-kwargs"}
    assert not left & set(given)


@pytest.mark.parametrize(
    ("role", "changes", "message"),
    [
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
        {"max_length": 512},
        {"dtype": "float32"},
        {"engine": "sglang"},
        {"model": f"owner/other@{'1' * 40}"},
    ):
        assert served(**changes).numerics() != usual
