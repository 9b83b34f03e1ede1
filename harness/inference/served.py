"""Engines beside the model in this process: vLLM, SGLang, and any server of OpenAI's completions.

*Over HTTP* prompts are token ids. Each answer is a request of its own with a seed of its own, so
neither the order of the requests nor their number at once decides a draw. `top_k` is always sent,
because servers have defaults of their own. Where the server tells which prompt it read, that is
compared with what it was sent: a second BOS would be seen there.

*Servers of our own.* vLLM and SGLang take sampling defaults from the model's
`generation_config.json` unless told otherwise, which would change what a request leaves out; both
are told to take none. SGLang gives requests random numbers of their own only when it is started for
deterministic inference. `HARNESS_VLLM_ARGS` and `HARNESS_SGLANG_ARGS` hold further arguments.

*vLLM in this process*, where it is installed beside the training. Requests are handed over all at
once and vLLM batches them as it likes; answers are taken as they are finished. vLLM computes in
processes that it starts itself; they end with the block, and with this process if that is killed.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from harness.endpoint.connection import Connection
from harness.errors import HarnessError, UserError
from harness.foreign import ForeignTextError, read_json
from harness.inference.environment import Installed
from harness.inference.request import Answered, Renderer, Request, Sample, Sampling
from harness.quiet import QUIET
from harness.runtime.processes import HOST, Program, free_port, running, watchdog

if TYPE_CHECKING:
    import openai

PATIENCE_S = 3600.0
"""Seconds that an answer may take, from asking to its last byte and with further attempts; it may
stand in the server's queue before it is begun."""

RETRIES = 4
"""Further attempts at an endpoint that is overloaded or cannot be reached; the same seed gives the
same answer. A server of our own is not asked twice: if it fails, it is dead."""

_TO_DIE_S = 5.0


_Token = Annotated[int, Field(ge=0, lt=2**31)]


class _LogProbabilities(BaseModel):
    token_logprobs: list[float] = []


class _Choice(BaseModel):
    """An answer as servers send it, in what is read of it."""

    text: str | None = None
    token_ids: list[_Token] | None = None
    prompt_token_ids: list[_Token] | None = None
    logprobs: _LogProbabilities | None = None


class _Unfinished:
    """Prompts that are not answered yet: each is delivered when it has all its answers."""

    def __init__(
        self,
        asked: Sequence[Request],
        done: Collection[int],
        deliver: Callable[[Answered], None],
    ) -> None:
        todo = [one for one in asked if one.position not in done]
        self.wanted = [(one, sample) for one in todo for sample in range(len(one.seeds))]
        self._lacking = {one.position: len(one.seeds) for one in todo}
        self._answers: dict[int, dict[int, Sample]] = {one.position: {} for one in todo}
        self._deliver = deliver

    def add(self, position: int, sample: int, answer: Sample) -> None:
        own = self._answers[position]
        own[sample] = answer
        if len(own) == self._lacking[position]:
            del self._answers[position]
            self._deliver({position: [own[i] for i in sorted(own)]})


class CompletionsEngine:
    """Answers prompts by a server that speaks OpenAI's completions; it may be a process of ours.

    `no_cut` is what `top_k` means all tokens there.
    """

    def __init__(
        self,
        url: str,
        model: str,
        renderer: Renderer,
        *,
        concurrency: int,
        no_cut: int,
        server: Program | None = None,
        key_variable: str | None = None,
    ) -> None:
        self._url = url
        self._model = model
        self._renderer = renderer
        self._concurrency = concurrency
        self._no_cut = no_cut
        self._server = server
        self._key_variable = key_variable
        self._given_up = False

    def check_model(self, who: str) -> None:
        """Check that the server, which messages call `who`, has the policy under its name."""
        import openai

        connection = self._connect()
        try:
            names = connection.model_names()
        except openai.OpenAIError as error:
            raise self._failure(error, "the list of its models") from None
        except (ForeignTextError, KeyError, TypeError):
            raise HarnessError(
                f"{who} at {self._url} sent no list of its models: see that it speaks OpenAI's API."
            ) from None
        finally:
            connection.close()
        if self._model not in names:
            raise UserError(
                f"{who} at {self._url} serves {', '.join(names) or 'no model'} and no "
                f"`{self._model}`: start it with the policy's folder under that name."
            )

    def answer(
        self,
        asked: Sequence[Request],
        sampling: Sampling,
        deliver: Callable[[Answered], None],
        done: Collection[int] = (),
    ) -> None:
        """Answer prompts, many at once; see `Engine`.

        Raises:
            HarnessError: the server died, refused a prompt, or read another prompt.
        """
        unfinished = _Unfinished(asked, done, deliver)
        wanted = iter(unfinished.wanted)
        running: dict[Future[Sample], tuple[Request, int]] = {}
        connection, pool = self._connect(), ThreadPoolExecutor(self._concurrency, "answers")
        self._given_up = False
        try:
            while True:
                while len(running) < self._concurrency and (next_one := next(wanted, None)):
                    future = pool.submit(self._sample, connection, *next_one, sampling)
                    running[future] = next_one
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    one, sample = running.pop(future)
                    unfinished.add(one.position, sample, future.result())
        finally:
            self._given_up = True
            connection.close()  # breaks off what is still under way after a failure
            pool.shutdown(cancel_futures=True)

    def _sample(
        self, connection: Connection, one: Request, sample: int, sampling: Sampling
    ) -> Sample:
        """Request one answer."""
        import openai

        try:
            text = connection.post("/completions", self._body(one, sample, sampling))
        except openai.OpenAIError as error:
            raise self._failure(error, f"a prompt of {len(one.tokens)} tokens") from None
        try:
            return self._read(_Choice.model_validate(read_json(text)["choices"][0]), one, sampling)
        except (ForeignTextError, ValidationError, KeyError, IndexError, TypeError):
            raise HarnessError(
                f"the engine at {self._url} sent a reply without an answer that can be read."
            ) from None

    def _body(self, one: Request, sample: int, sampling: Sampling) -> dict[str, Any]:
        """Return what is sent for one answer."""
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": list(one.tokens),
            "n": 1,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": one.room,
            "seed": one.seeds[sample],
            "top_k": self._no_cut,
            "stop_token_ids": list(sampling.stops),
            "return_token_ids": True,
        }
        return body | ({"logprobs": 0} if sampling.log_probabilities else {})

    def _read(self, choice: _Choice, one: Request, sampling: Sampling) -> Sample:
        read, ids = choice.prompt_token_ids, choice.token_ids
        if read is not None and tuple(read) != one.tokens:
            raise HarnessError(
                f"the engine at {self._url} read a prompt of {len(read)} tokens where it was sent "
                f"{len(one.tokens)}, so it adds tokens of its own: use a version that takes token "
                "ids as they are."
            )
        if ids is None:
            if sampling.log_probabilities:
                raise HarnessError(f"the engine at {self._url} does not tell its answers' tokens.")
            text = (choice.text or "").strip()
            return Sample(text, self._renderer.count(text))
        tokens = until_stop(ids, sampling.stops)
        scores: tuple[float, ...] = ()
        if sampling.log_probabilities and choice.logprobs is not None:
            scores = tuple(choice.logprobs.token_logprobs[: len(tokens)])
        return Sample(self._renderer.text(tokens), len(tokens), tokens, scores)

    def _connect(self) -> Connection:
        retries = 0 if self._server else RETRIES
        return Connection(self._url, self._key_variable, PATIENCE_S, retries)

    def _failure(self, error: openai.OpenAIError, what: str) -> HarnessError:
        """Return the error for a request that failed."""
        import openai

        if isinstance(error, openai.APIStatusError):
            status = error.status_code
            if status in (401, 403):
                # The endpoint's own words often hold a part of the key.
                return UserError(
                    f"the endpoint at {self._url} does not accept the key in "
                    f"{self._key_variable} (HTTP {status}): set one that may use it."
                )
            if self._server is None or status < 500:
                return HarnessError(
                    f"the engine at {self._url} refused {what} (HTTP {status}: "
                    f"{self._connect().quoted(error.message)})"
                )
        if self._server is not None and not self._given_up:
            # What computes dies before what listens, which then answers with an error for a while.
            if self._server.dies(_TO_DIE_S):
                return self._server.died("in the middle")
            return HarnessError(
                f"{self._server.name} failed in the middle; {self._server.quoted()}"
            )
        cause = type(error.__cause__ or error).__name__
        return HarnessError(
            f"the engine at {self._url} cannot be reached, or the connection broke off ({cause}): "
            "see that it runs, and run the same command again"
        )


def until_stop(tokens: Sequence[int], stops: Collection[int]) -> tuple[int, ...]:
    """Return the tokens before the first that ends an answer."""
    end = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
    return tuple(tokens[:end])


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

        unfinished = _Unfinished(asked, done, deliver)
        try:
            for one, sample in unfinished.wanted:
                prompt = {"prompt_token_ids": list(one.tokens)}
                parameters = _parameters(one, sample, sampling)
                self._engine.add_request(f"{one.position}-{sample}", prompt, parameters)
            while self._engine.has_unfinished_requests():
                for output in self._engine.step():
                    if not output.finished:
                        continue
                    position, sample = map(int, output.request_id.split("-"))
                    answer = self._sample(output.outputs[0], sampling)
                    unfinished.add(position, sample, answer)
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
