"""The transformers engine: our own sampling loop on an in-process model.

Prompts of similar length are batched, with one prefill for all answers to a prompt. A batch that
runs out of GPU memory is halved, and so are later ones; a single answer that does not fit is an
error. Each token is drawn with a random number fixed by its answer's seed and its position, so
batching affects only rounding.

Transformers' continuous batching (`generate_batch`) is not used: it samples all answers from one
random stream, so an answer would depend on the others in its batch.
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
from harness.inference.request import AnswersOf, Renderer, Request, Sampling
from harness.models.loading import (
    batches_by_length,
    fastest_device,
    from_folder,
    on_fast_kernels,
    pad,
)
from harness.models.policy import Completion, completion_of, decode


@contextmanager
def transformers_engine(
    folder: Path, renderer: Renderer, *, dtype: str, batch_size: int
) -> Iterator[TransformersEngine]:
    """Yield an engine on the fastest device; its memory is freed at the end."""
    device = fastest_device()
    try:
        model = on_fast_kernels(from_folder(AutoModelForCausalLM, folder, dtype).to(device).eval())
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
    """Answers prompts with an in-process model."""

    def __init__(self, model: Any, renderer: Renderer, batch_size: int) -> None:
        self.model = model
        self._renderer = renderer
        self._batch_size = batch_size
        self._fits = batch_size  # number of answers believed to fit in memory together

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        deliver: Callable[[AnswersOf], None],
        done: Collection[int] = (),
    ) -> None:
        """Answer prompts, shortest first, in the same batches as an uninterrupted run."""
        samples = max((len(one.seeds) for one in requests), default=1)
        size = max(1, self._batch_size // samples)
        for batch in batches_by_length([one.tokens for one in requests], size):
            together = [requests[i] for i in batch]
            if all(one.position in done for one in together):
                continue
            answers = self._answers(together, sampling)
            deliver({one.position: own for one, own in zip(together, answers, strict=True)})

    def _answers(self, batch: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Return a batch's answers, sampled in as many parts as memory requires."""
        number = sum(len(one.seeds) for one in batch)
        if number <= self._fits:
            try:
                return self._sampled(batch, sampling)
            except torch.OutOfMemoryError:
                pass  # its memory is only freed after this block
            if number == 1:
                raise HarnessError(
                    f"a single answer to a prompt of {len(batch[0].tokens)} tokens does not fit "
                    "into the memory of the GPU beside the model: free it, or use a larger one, a "
                    "lower `max_new_tokens` or the engine vllm; the answers so far are kept."
                )
            torch.cuda.empty_cache()
            self._fits = number // 2
        first, second = (self._answers(half, sampling) for half in _halves(batch))
        return [*first, *second] if len(batch) > 1 else [[*first[0], *second[0]]]

    def _sampled(self, batch: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
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
            context=self._renderer.context,
        )
        cut = [tokens[: batch[row // n].room] for row, tokens in enumerate(answers)]
        tokenizer, stops = self._renderer.tokenizer, sampling.stops
        samples = [completion_of(tokenizer, tokens, stops) for tokens in cut]
        return [samples[row : row + n] for row in range(0, len(samples), n)]


def _halves(batch: Sequence[Request]) -> tuple[list[Request], list[Request]]:
    """Split a batch in two: by prompts, or a single prompt's answers."""
    if len(batch) > 1:
        return list(batch[: len(batch) // 2]), list(batch[len(batch) // 2 :])
    [one] = batch
    middle = len(one.seeds) // 2
    return [replace(one, seeds=one.seeds[:middle])], [replace(one, seeds=one.seeds[middle:])]
