"""Engines that are servers: how each is started on a policy, and what it must be told.

Both take sampling defaults from the model's `generation_config.json` unless told otherwise, which
would change what a request leaves out; both are told to take none. SGLang gives requests random
numbers of their own only when it is started for deterministic inference.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.quiet import QUIET
from harness.solver.completions import CompletionsEngine
from harness.solver.environment import Installed
from harness.solver.process import HOST, free_port, running
from harness.solver.rendering import Renderer

SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""Ends of names of environment variables that a server is not given."""


@contextmanager
def served_engine(
    installed: Installed,
    folder: Path,
    renderer: Renderer,
    *,
    dtype: str,
    concurrency: int,
    log: Path,
) -> Iterator[CompletionsEngine]:
    """Start an engine's server on a policy and yield the engine; the server ends with the block.

    Args:
        installed: the engine, with an environment of its own.
        folder: the policy's.
        renderer: the policy's.
        dtype: number format, `float32` or `bfloat16`.
        concurrency: most requests at once.
        log: file for what the server prints.

    Raises:
        HarnessError: the server died or was not ready in time.
    """
    name, port = f"policy-{uuid.uuid4().hex[:8]}", free_port()
    arguments = ARGUMENTS[installed.name](folder, name, dtype, renderer.context)
    command = [
        str(installed.python),
        *("-m", MODULES[installed.name]),
        *("--host", HOST, "--port", str(port)),
        *arguments,
        *installed.arguments,
    ]
    with running(installed.identity, command, environment(), log, port) as server:
        engine = CompletionsEngine(
            f"http://{HOST}:{port}/v1",
            name,
            renderer,
            concurrency=concurrency,
            no_cut=NO_CUT[installed.name],
            server=server,
        )
        engine.check_model(f"the engine {installed.identity}")
        yield engine


def vllm_arguments(folder: Path, name: str, dtype: str, context: int) -> list[str]:
    """Return vLLM's arguments, in process and as a server."""
    return [
        *("--model", str(folder), "--served-model-name", name),
        *("--dtype", dtype, "--max-model-len", str(context)),
        *("--generation-config", "vllm", "--seed", "0"),
    ]


def sglang_arguments(folder: Path, name: str, dtype: str, context: int) -> list[str]:
    """Return SGLang's arguments."""
    return [
        *("--model-path", str(folder), "--served-model-name", name),
        *("--dtype", dtype, "--context-length", str(context)),
        *("--sampling-defaults", "openai", "--random-seed", "0"),
        "--enable-deterministic-inference",
    ]


ARGUMENTS = {"vllm": vllm_arguments, "sglang": sglang_arguments}
MODULES = {"vllm": "vllm.entrypoints.openai.api_server", "sglang": "sglang.launch_server"}
NO_CUT: Mapping[str, int] = {"vllm": 0, "sglang": -1}
"""What `top_k` means all tokens."""


def environment() -> dict[str, str]:
    """Return a server's environment variables: ours, quiet and without secrets.

    SGLang tells the log-probabilities of the model as it is only when a variable says so.
    """
    ours = {k: v for k, v in os.environ.items() if not k.upper().endswith(SECRETS)}
    return {**QUIET, **ours, "SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}
