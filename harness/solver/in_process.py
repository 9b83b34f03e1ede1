"""The vllm engine in this process: for an environment where it is installed beside the training.

Requests are handed over all at once and vLLM batches them as it likes; answers are taken as they
are finished. vLLM computes in processes that it starts itself; they end with the block, and with
this process if that is killed (`guard`).

`HARNESS_VLLM_ARGS` holds further arguments, as for a server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UserError
from harness.solver.completions import until_stop
from harness.solver.environment import Installed
from harness.solver.guard import guarded
from harness.solver.rendering import Renderer
from harness.solver.request import Answered, Asked, Sample, Sampling
from harness.solver.served import NO_CUT, vllm_arguments


@contextmanager
def vllm_engine(
    installed: Installed, folder: Path, renderer: Renderer, *, dtype: str
) -> Iterator[VllmEngine]:
    """Load a policy into vLLM and yield the engine; its processes end with the block.

    Args:
        installed: the engine.
        folder: the policy's.
        renderer: the policy's.
        dtype: number format, `float32` or `bfloat16`.

    Raises:
        HarnessError: vLLM could not start, or does not take the arguments in the environment.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments = vllm_arguments(folder, "policy", dtype, renderer.context) + installed.arguments
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    try:
        chosen = EngineArgs.from_cli_args(parser.parse_args(arguments))
    except SystemExit as error:  # the parser has said what it does not take
        raise UserError(
            f"HARNESS_VLLM_ARGS holds arguments that {installed.identity} does not take: "
            f"{' '.join(installed.arguments)}"
        ) from error
    with guarded():
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
        asked: Sequence[Asked],
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


def _parameters(one: Asked, sample: int, sampling: Sampling) -> Any:
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
