"""Do the engine and the trainer agree on what the policy is?

The engine samples answers at temperature 1 from all tokens and tells the log-probability of each
token it drew; the model as the training loads it reads the same tokens in one pass and gives its
own. With e and t the two log-probabilities of a token,

    difference = |e - t|
    KL(engine || trainer) per token ~ mean of exp(t - e) - 1 - (t - e)

The estimate of the divergence is never negative and is exact in expectation, because the tokens are
the engine's own draws. Another template, a missing soft-cap, a wrong number format or another
checkpoint show at once; what is left otherwise is rounding, for which there is a tolerance.

Source: the estimator is k3 of J. Schulman, "Approximating KL divergence" (2020).
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from transformers import AutoModelForCausalLM

from harness.errors import HarnessError
from harness.inference.request import Answered, Renderer, Request, Sample, Sampling
from harness.inference.solver import Opened
from harness.models.loading import batches_by_length, fastest_device, from_folder, pad

PROMPTS = (
    "Why does bread rise?",
    "Write a short poem about a lighthouse in winter.",
    "List three uses of a paper clip that nobody thinks of.",
    "What is 17 times 23? Show the steps.",
    "Explain to a child how the moon changes its shape.",
    "Write a Python function that reverses the words of a sentence.",
    "Which is heavier, a litre of oil or a litre of water, and how would you show it?",
    "Draft a polite letter that turns down an invitation.",
)
"""What the policy is asked; any text would do."""

TOLERANCE = {"float32": 0.001, "bfloat16": 0.05}
"""Largest mean difference of log-probabilities, in nats, by number format. The first was held
against real engines on small models; the second is ours, and was not measured at full size."""

_BATCH = 8


@dataclass(frozen=True)
class Agreement:
    """How far an engine and the trainer are apart.

    Attributes:
        answers: answers compared.
        tokens: their tokens.
        mean_difference: mean absolute difference of log-probabilities, in nats.
        max_difference: the largest.
        kl: estimate of the divergence per token, in nats.
        tolerance: largest mean difference allowed.
    """

    answers: int
    tokens: int
    mean_difference: float
    max_difference: float
    kl: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the mean difference is within the tolerance."""
        return self.mean_difference <= self.tolerance


def measure(
    folder: Path,
    opened: Opened,
    *,
    dtype: str,
    tolerance: float | None = None,
    texts: Sequence[str] = PROMPTS,
    n: int = 2,
    max_new_tokens: int = 64,
    seed: int = 0,
) -> Agreement:
    """Compare an engine's log-probabilities with the trainer's, both in one number format.

    The engine is ended before the model is loaded, so both may need all of the GPU. Without a
    tolerance, that of the number format holds.
    """
    renderer = Renderer(folder)
    conversations = [[{"role": "user", "content": text}] for text in texts]
    asked = renderer.requests(conversations, n=n, seed=seed, max_new_tokens=max_new_tokens)
    answered: Answered = {}
    with opened(renderer) as engine:
        sampling = Sampling(1.0, 1.0, renderer.stops, log_probabilities=True)
        engine.answer(asked, sampling, answered.update)
    pairs = [(one, sample) for one in asked for sample in answered[one.position] if sample.tokens]
    if not pairs:
        raise HarnessError(
            f"the policy at {folder} ends every answer at once, so there is nothing to compare."
        )
    limit = TOLERANCE[dtype] if tolerance is None else tolerance
    return compared([s for _, s in pairs], trainers(folder, renderer, pairs, dtype), limit)


def compared(
    samples: Sequence[Sample], theirs: Sequence[Sequence[float]], tolerance: float
) -> Agreement:
    """Compare the log-probabilities told with answers and the trainer's of the same tokens."""
    for sample in samples:
        if len(sample.log_probabilities) != len(sample.tokens):
            raise HarnessError(
                f"the engine told {len(sample.log_probabilities)} log-probabilities of an answer "
                f"of {len(sample.tokens)} tokens: use a version that tells them all."
            )
    steps = [
        (engine, trainer)
        for sample, own in zip(samples, theirs, strict=True)
        for engine, trainer in zip(sample.log_probabilities, own, strict=True)
    ]
    differences = [abs(engine - trainer) for engine, trainer in steps]
    return Agreement(
        answers=len(samples),
        tokens=len(steps),
        mean_difference=fmean(differences),
        max_difference=max(differences),
        kl=fmean(math.expm1(trainer - engine) - (trainer - engine) for engine, trainer in steps),
        tolerance=tolerance,
    )


def trainers(
    folder: Path, renderer: Renderer, pairs: Sequence[tuple[Request, Sample]], dtype: str
) -> list[list[float]]:
    """Return the trainer's log-probability of each token of some answers."""
    device = fastest_device()
    model = from_folder(AutoModelForCausalLM, folder, dtype).to(device).eval()
    sequences = [[*one.tokens, *sample.tokens] for one, sample in pairs]
    found: list[list[float]] = [[] for _ in pairs]
    for batch in batches_by_length(sequences, _BATCH):
        ids, mask = pad(renderer.tokenizer, [sequences[i] for i in batch], "right", device)
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        scores = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].tolist()
        for row, i in enumerate(batch):
            begin = len(pairs[i][0].tokens) - 1
            found[i] = scores[row][begin : len(sequences[i]) - 1]
    del model
    gc.collect()
    return found
