"""The transformers engine: our own sampling loop on a model in this process.

Prompts of similar length are answered together, each read once for all its answers. Where a batch
does not fit into the GPU's memory it is halved, and so are those after it; a single answer that
does not fit is an error. A token is drawn at a number that belongs to its answer's seed and its
place in the answer, so batching enters through rounding alone.

Transformers' own continuous batching (`generate_batch`) is not used: it draws all answers from one
stream of random numbers, so an answer would depend on what happens to be answered beside it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from harness.errors import HarnessError
from harness.inference.request import Answered, Renderer, Request, Sample, Sampling
from harness.models.loading import batches_by_length, fastest_device, from_folder, pad
from harness.models.policy import decode


@contextmanager
def transformers_engine(
    folder: Path, renderer: Renderer, *, dtype: str, batch_size: int
) -> Iterator[TransformersEngine]:
    """Yield an engine on the GPU, if there is one; its memory is freed at the end."""
    device = fastest_device()
    try:
        model = from_folder(AutoModelForCausalLM, folder, dtype).to(device).eval()
    except torch.OutOfMemoryError as error:
        raise HarnessError(
            f"the model at {folder} does not fit into the memory of {device}: free it, use a "
            "larger one, or the engine vllm on several GPUs."
        ) from error
    engine = TransformersEngine(model, renderer, batch_size)
    del model
    try:
        yield engine
    finally:
        del engine.model
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()


class TransformersEngine:
    """Answers prompts with a model in this process.

    Attributes:
        model: a causal language model in evaluation mode.
    """

    def __init__(self, model: Any, renderer: Renderer, batch_size: int) -> None:
        self.model = model
        self._renderer = renderer
        self._batch_size = batch_size
        self._fits = batch_size  # answers that go into the memory together, as far as is known

    def answer(
        self,
        asked: Sequence[Request],
        sampling: Sampling,
        deliver: Callable[[Answered], None],
        done: Collection[int] = (),
    ) -> None:
        """Answer prompts, shortest first; see `SolverEngine`.

        A batch of which a prompt is missing is answered whole, so that every prompt is answered
        beside the same ones as in a run that was never stopped.

        Raises:
            HarnessError: a single answer does not fit into the memory.
        """
        samples = max((len(one.seeds) for one in asked), default=1)
        size = max(1, self._batch_size // samples)
        for batch in batches_by_length([one.tokens for one in asked], size):
            together = [asked[i] for i in batch]
            if all(one.position in done for one in together):
                continue
            answers = self._answers(together, sampling)
            deliver({one.position: own for one, own in zip(together, answers, strict=True)})

    def _answers(self, batch: Sequence[Request], sampling: Sampling) -> list[list[Sample]]:
        """Return the answers of a batch, sampled in as many parts as the memory asks for."""
        number = sum(len(one.seeds) for one in batch)
        if number <= self._fits:
            try:
                return self._sampled(batch, sampling)
            except torch.OutOfMemoryError:
                pass  # what it held is free only after this block
            if number == 1:
                raise HarnessError(
                    f"a single answer to a prompt of {len(batch[0].tokens)} tokens does not fit "
                    "into the memory of the GPU beside the model: free it, or use a larger one, a "
                    "lower `max_new_tokens` or the engine vllm; the answers so far are kept."
                )
            torch.cuda.empty_cache()
            self._fits = number // 2
        first, second = _halves(batch)
        answers = [self._answers(half, sampling) for half in (first, second)]
        if len(batch) > 1:
            return [*answers[0], *answers[1]]
        return [[*answers[0][0], *answers[1][0]]]

    def _sampled(self, batch: Sequence[Request], sampling: Sampling) -> list[list[Sample]]:
        n, longest = len(batch[0].seeds), max(one.room for one in batch)
        device = str(self.model.device)
        ids, mask = pad(self._renderer.tokenizer, [one.tokens for one in batch], "left", device)
        uniforms = [
            np.random.default_rng(seed).random(longest) for one in batch for seed in one.seeds
        ]
        answers = decode(
            self.model,
            ids,
            mask,
            n=n,
            max_new_tokens=longest,
            stops=sampling.stops,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            uniforms=torch.from_numpy(np.stack(uniforms)).to(device),
        )
        cut = [tuple(tokens[: batch[row // n].room]) for row, tokens in enumerate(answers)]
        samples = [Sample(self._renderer.text(tokens), len(tokens), tokens) for tokens in cut]
        return [samples[row : row + n] for row in range(0, len(samples), n)]


def _halves(batch: Sequence[Request]) -> tuple[list[Request], list[Request]]:
    """Return two parts of a batch: its prompts divided, or the answers of its only one."""
    if len(batch) > 1:
        return list(batch[: len(batch) // 2]), list(batch[len(batch) // 2 :])
    [one] = batch
    middle = len(one.seeds) // 2
    return [replace(one, seeds=one.seeds[:middle])], [replace(one, seeds=one.seeds[middle:])]
