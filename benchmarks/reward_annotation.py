"""How fast completions are scored at a reward model's shape, batched by length and in order.

Builds a sequence classifier with random weights (a Llama of 8B shape, or a tiny one), draws prompts
and completions of very different lengths, and scores them twice through `harness.models`: as the
harness does, in batches of similar length, and in the order they come in. Prints JSON: completions
and real tokens a second, the share of padding of both, and the greatest difference of a reward.

    python benchmarks/reward_annotation.py --shape tiny               # on a processor
    python benchmarks/reward_annotation.py --shape llama-8b --completions 600 --dtype bfloat16
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from random_models import SHAPES, WORDS, device_name, write_random_model
from transformers import LlamaForSequenceClassification

from harness.models import reader
from harness.models.loading import fastest_device
from harness.models.reader import Answered
from harness.models.reward_model import load_reward_model, score
from harness.quiet import silence


def conversations(count: int, longest: int) -> list[Answered]:
    """Return prompts with completions whose lengths are spread like answers': many short ones."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(np.log(longest / 6), 0.8, count), 4, longest - 64).astype(int)

    def words(n: int) -> str:
        return " ".join(f"w{i}" for i in draw.integers(WORDS, size=n))

    return [Answered([{"role": "user", "content": words(32)}], (words(n),)) for n in lengths]


def in_order(
    sequences: Sequence[Sequence[int]], size: int, tokens: int | None = None
) -> Iterator[list[int]]:
    """Yield positions in batches as they come, under the limits of `batches_by_length`."""
    batch: list[int] = []
    for i, sequence in enumerate(sequences):
        longest = max([len(sequence), *(len(sequences[j]) for j in batch)])
        if batch and (len(batch) == size or (tokens and longest * (len(batch) + 1) > tokens)):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--completions", type=int, default=120)
    parser.add_argument("--longest", type=int, default=512, help="tokens of the longest")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    asked = parser.parse_args()
    silence()
    device = fastest_device()
    if device == "cpu":
        torch.set_num_threads(1)
    texts = conversations(asked.completions, asked.longest)
    with tempfile.TemporaryDirectory() as scratch:
        weights = write_random_model(
            LlamaForSequenceClassification, asked.shape, Path(scratch), asked.dtype, num_labels=1,
            max_position_embeddings=asked.longest,
        )  # fmt: skip
        model = load_reward_model(Path(scratch), "one answer", device=device, dtype=asked.dtype)
    score(model, texts[:2], batch_size=2)  # what is done once is done now
    by_length, rewards = timed(model, texts, asked.batch)
    reader.batches_by_length = in_order  # type: ignore[attr-defined]
    as_they_come, others = timed(model, texts, asked.batch)
    found = {
        "shape": asked.shape, "weights": weights, "dtype": asked.dtype,
        "device": device_name(),
        "completions": asked.completions, "by_length": by_length, "in_order": as_they_come,
        "greatest_difference": float(np.abs(rewards - others).max()),
    }  # fmt: skip
    print(json.dumps(found, indent=1))


def timed(model: Any, texts: Any, batch: int) -> tuple[dict[str, float], Any]:
    """Score once; return how fast, with how much padding, and the rewards."""
    sequences = [encoded.tokens for encoded in model.encode(texts)]
    by_length = reader.batches_by_length  # type: ignore[attr-defined]
    batches = list(by_length(sequences, batch, reader.BATCH_TOKENS))
    tokens = sum(map(len, sequences))
    padded = sum(len(b) * max(len(sequences[i]) for i in b) for b in batches)
    start = time.perf_counter()
    rewards, _ = score(model, texts, batch_size=batch)
    seconds = time.perf_counter() - start
    told = {
        "completions_per_s": round(len(texts) / seconds, 2),
        "tokens_per_s": round(tokens / seconds),
        "padding": round(1 - tokens / padded, 3),
    }
    return told, rewards


if __name__ == "__main__":
    main()
