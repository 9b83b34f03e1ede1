"""vLLM and SGLang: as servers in environments of their own, and vLLM in this process.

*Servers.* Both take sampling defaults from the model's `generation_config.json` unless told
otherwise, which would change what a request leaves out; both are told to take none. SGLang gives
requests random numbers of their own only when it is started for deterministic inference.

*vLLM in this process*, where it is installed beside the training. Requests are handed over all at
once and vLLM batches them as it likes; answers are taken as they are finished. vLLM computes in
processes that it starts itself; they end with the block, and with this process if that is killed.

`HARNESS_VLLM_ARGS` and `HARNESS_SGLANG_ARGS` hold further arguments.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError
from harness.inference.endpoint import CompletionsEngine, until_stop
from harness.inference.environment import Installed
from harness.inference.request import Answered, Renderer, Request, Sample, Sampling
from harness.quiet import QUIET
from harness.runtime.processes import HOST, free_port, running, watchdog

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
    gpus: int = 1,
    copies: int = 1,
) -> Iterator[CompletionsEngine]:
    """Start an engine's server on a policy and yield the engine; the server ends with the block.

    The policy is spread over the GPUs, or so many copies of it, which share the requests.
    """
    name, port = f"policy-{uuid.uuid4().hex[:8]}", free_port()
    arguments = ARGUMENTS[installed.name](folder, name, dtype, renderer.context)
    command = [
        installed.python or sys.executable,
        *("-m", MODULES[installed.name]),
        *("--host", HOST, "--port", str(port)),
        *arguments,
        *spread(installed, gpus, copies),
        *installed.arguments,
    ]
    with running(f"the engine {installed.identity}", command, log, environment()) as server:
        server.wait_until_healthy(port)
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


def spread(installed: Installed, gpus: int, copies: int = 1) -> list[str]:
    """Return the arguments that lay copies of a model on GPUs, unless the user's own say how."""
    own = {argument.partition("=")[0].replace("_", "-") for argument in installed.arguments}
    names = SPREADING[installed.name]
    if own & set(names):
        return []
    sizes = zip(names, (gpus // copies, copies), strict=False)
    return [part for name, size in sizes if size > 1 for part in (name, str(size))]


SPREADING = {
    "vllm": ("--tensor-parallel-size", "--data-parallel-size", "-tp", "-dp"),
    "sglang": ("--tensor-parallel-size", "--data-parallel-size", "--tp-size", "--tp", "--dp-size"),
}
"""Arguments that say how a model is laid on several GPUs: the first spreads each of its layers over
so many, the second has so many copies share the requests."""


@contextmanager
def vllm_engine(
    installed: Installed, folder: Path, renderer: Renderer, *, dtype: str, gpus: int = 1
) -> Iterator[VllmEngine]:
    """Load a policy into vLLM, spread over GPUs, and yield the engine.

    Its processes end with the block.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.llm_engine import LLMEngine

    settled = vllm_arguments(folder, "policy", dtype, renderer.context)
    arguments = [*settled, *spread(installed, gpus), *installed.arguments]
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    try:
        chosen = EngineArgs.from_cli_args(parser.parse_args(arguments))
    except SystemExit as error:  # the parser has said what it does not take
        raise UserError(
            f"HARNESS_VLLM_ARGS holds arguments that {installed.identity} does not take: "
            f"{' '.join(installed.arguments)}"
        ) from error
    with watchdog():
        try:
            engine = LLMEngine.from_engine_args(chosen, enable_multiprocessing=True)
        except (RuntimeError, ValueError) as error:
            [why, *_] = str(error).splitlines() or [repr(error)]
            raise HarnessError(
                f"the engine {installed.identity} could not start on {folder}: {why}"
            ) from error
        try:
            yield VllmEngine(engine, renderer, installed.identity)
        finally:
            engine.engine_core.shutdown()


class VllmEngine:
    """Answers prompts with vLLM in this process."""

    def __init__(self, engine: Any, renderer: Renderer, identity: str) -> None:
        """Answer with an engine of vLLM."""
        self._engine = engine
        self._renderer = renderer
        self._identity = identity

    def answer(
        self,
        asked: Sequence[Request],
        sampling: Sampling,
        deliver: Callable[[Answered], None],
        done: Collection[int] = (),
    ) -> None:
        """Answer prompts, as many at once as vLLM sees fit; see `Engine`.

        Raises:
            HarnessError: vLLM died.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        todo = {one.position: one for one in asked if one.position not in done}
        answers: dict[int, dict[int, Sample]] = {position: {} for position in todo}
        try:
            for one in todo.values():
                for sample in range(len(one.seeds)):
                    self._engine.add_request(
                        f"{one.position}-{sample}",
                        {"prompt_token_ids": list(one.tokens)},
                        _parameters(one, sample, sampling),
                    )
            while self._engine.has_unfinished_requests():
                for output in self._engine.step():
                    if not output.finished:
                        continue
                    position, sample = map(int, output.request_id.split("-"))
                    own = answers[position]
                    own[sample] = self._sample(output.outputs[0], sampling)
                    if len(own) == len(todo[position].seeds):
                        deliver({position: [own[i] for i in range(len(own))]})
        except EngineDeadError as error:
            raise HarnessError(
                f"the engine {self._identity} died in the middle; its last words are in the log of "
                "this worker"
            ) from error

    def _sample(self, output: Any, sampling: Sampling) -> Sample:
        tokens = until_stop(output.token_ids, sampling.stops)
        scores: tuple[float, ...] = ()
        if sampling.log_probabilities:
            told = zip(tokens, output.logprobs, strict=False)
            scores = tuple(float(step[token].logprob) for token, step in told)
        return Sample(self._renderer.text(tokens), len(tokens), tokens, scores)


def _parameters(one: Request, sample: int, sampling: Sampling) -> Any:
    from vllm import SamplingParams

    return SamplingParams(
        n=1,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=NO_CUT["vllm"],
        max_tokens=one.room,
        seed=one.seeds[sample],
        stop_token_ids=list(sampling.stops),
        logprobs=0 if sampling.log_probabilities else None,
        detokenize=False,
    )
