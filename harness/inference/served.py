"""Engines behind a server: vLLM, SGLang, or any other with OpenAI's completions API.

Prompts are token ids. Each answer is a separate request with its own seed, so sampling depends on
neither request order nor concurrency. `top_k` is always sent, because servers have their own
defaults. If the server returns the prompt it read, that is compared with the one sent, which would
reveal a second BOS. `harness.serving` starts our own servers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from harness.endpoint.client import ServedModel
from harness.endpoint.connection import Endpoint
from harness.endpoint.errors import LostError, OverloadedError
from harness.errors import HarnessError, UserError
from harness.inference.request import AnswersOf, Renderer, Request, Sampling
from harness.models.loading import text_of
from harness.models.policy import Completion
from harness.runtime.processes import Program
from harness.serving.engines import NO_CUT, Installed, ServedCheckpoint
from harness.serving.servers import serving

TIMEOUT_S = 3600.0
"""Timeout of a request in seconds; long, since it may wait in the server's queue."""

ATTEMPTS = 5
"""Attempts at an overloaded or unreachable endpoint; the same seed gives the same answer. Our own
servers are asked once: if one fails, it is dead."""

_TO_DIE_S = 5.0


_Token = Annotated[int, Field(ge=0, lt=2**31)]


class _Choice(BaseModel):
    """The fields read from a server's answer."""

    text: str | None = None
    token_ids: list[_Token] | None = None
    prompt_token_ids: list[_Token] | None = None


@dataclass
class CompletionsEngine:
    """Answers prompts through OpenAI's completions API; `server` is set if the process is ours."""

    url: str
    model: str
    renderer: Renderer
    concurrency: int
    no_cut: int
    server: Program | None = None
    key_variable: str | None = None
    _given_up: bool = field(default=False, init=False)

    def check_model(self, who: str) -> None:
        """Check that the server, called `who` in messages, serves the policy under its name."""
        endpoint = self._connect()
        try:
            names = endpoint.model_names()
        except (LostError, OverloadedError) as error:
            raise self._failure(error) from None
        finally:
            endpoint.close()
        if self.model not in names:
            raise UserError(
                f"{who} at {self.url} serves {', '.join(names) or 'no model'} and no "
                f"`{self.model}`: start it with the policy's folder under that name."
            )

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        deliver: Callable[[AnswersOf], None],
        done: Collection[int] = (),
    ) -> None:
        """Answer prompts concurrently; see `SolverEngine`."""
        todo = [one for one in requests if one.position not in done]
        answers: dict[int, dict[int, Completion]] = {one.position: {} for one in todo}
        endpoint, pool = self._connect(), ThreadPoolExecutor(self.concurrency, "answers")
        self._given_up = False
        try:
            running = {
                pool.submit(self._sample, endpoint, one, sample, sampling): (one, sample)
                for one in todo
                for sample in range(len(one.seeds))
            }
            for future in as_completed(running):
                one, sample = running[future]
                own = answers[one.position]
                own[sample] = future.result()
                if len(own) == len(one.seeds):
                    deliver({one.position: [own[i] for i in sorted(own)]})
        finally:
            self._given_up = True
            endpoint.close()  # aborts requests in flight after a failure
            pool.shutdown(wait=False, cancel_futures=True)

    def _sample(
        self, endpoint: Endpoint, one: Request, sample: int, sampling: Sampling
    ) -> Completion:
        body, what = self._body(one, sample, sampling), f"a prompt of {len(one.tokens)} tokens"
        try:
            reply = endpoint.post("/completions", body, what)
        except (LostError, OverloadedError) as error:
            raise self._failure(error) from None
        try:
            choice = _Choice.model_validate(reply["choices"][0])
        except (ValidationError, KeyError, IndexError, TypeError):
            raise HarnessError(
                f"the engine at {self.url} sent a reply without an answer that can be read."
            ) from None
        return self._read(choice, one, sampling)

    def _body(self, one: Request, sample: int, sampling: Sampling) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(one.tokens),
            "n": 1,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": one.room,
            "seed": one.seeds[sample],
            "top_k": self.no_cut,
            "stop_token_ids": list(sampling.stops),
            "return_token_ids": True,
        }

    def _read(self, choice: _Choice, one: Request, sampling: Sampling) -> Completion:
        read, ids = choice.prompt_token_ids, choice.token_ids
        if read is not None and tuple(read) != one.tokens:
            raise HarnessError(
                f"the engine at {self.url} read a prompt of {len(read)} tokens where it was sent "
                f"{len(one.tokens)}, so it adds tokens of its own: use a version that takes token "
                "ids as they are."
            )
        if ids is None:
            text = (choice.text or "").strip()
            return Completion(text, self.renderer.count(text))
        end = next((i for i, token in enumerate(ids) if token in sampling.stops), len(ids))
        return Completion(text_of(self.renderer.tokenizer, ids[:end]), end)

    def _connect(self) -> Endpoint:
        attempts = 1 if self.server else ATTEMPTS
        return Endpoint(self.url, self.key_variable, TIMEOUT_S, attempts=attempts)

    def _failure(self, error: HarnessError) -> HarnessError:
        if self.server is None or self._given_up:
            return HarnessError(f"{error}; see that it runs, and run the same command again")
        # Compute processes die before the HTTP process, which returns errors for a while.
        if self.server.dies(_TO_DIE_S):
            return self.server.died("in the middle")
        return HarnessError(f"{self.server.name} failed in the middle; {self.server.quoted()}")


@contextmanager
def served_engine(
    installed: Installed,
    wanted: ServedCheckpoint,
    renderer: Renderer,
    *,
    concurrency: int,
    log: Path,
) -> Iterator[CompletionsEngine]:
    """Start a server for a policy and yield its engine; the server stops with the block."""
    with serving(installed, wanted, log) as server:
        engine = CompletionsEngine(
            server.url,
            wanted.name,
            renderer,
            concurrency=concurrency,
            no_cut=NO_CUT[installed.name],
            server=server.program,
        )
        engine.check_model(f"the engine {installed.identity}")
        yield engine


@contextmanager
def endpoint_engine(
    served: ServedModel, renderer: Renderer, no_cut: int
) -> Iterator[CompletionsEngine]:
    """Yield the engine of a server that the harness did not start."""
    endpoint = served.client.endpoint
    assert isinstance(endpoint, Endpoint)
    engine = CompletionsEngine(
        endpoint.address,
        served.model,
        renderer,
        concurrency=served.concurrency,
        no_cut=no_cut,
        key_variable=endpoint.key_variable,
    )
    engine.check_model("the endpoint")
    yield engine
