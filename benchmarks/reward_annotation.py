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
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from harness.models import reader
from harness.models.loading import fastest_device
from harness.models.reader import Answered
from harness.models.reward_model import load_reward_model, score
from harness.quiet import silence

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 1000, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    },
    "llama-8b": {
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    },
}  # fmt: skip
"""Sizes of an 8B Llama 3 as in its `config.json`, and a tiny one."""

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "user", "assistant"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %} {{ m['role'] }} {{ m['content'] }} <eos>{% endfor %}"
)
WORDS = 900


def build(shape: str, folder: Path, longest: int, dtype: str) -> int:
    """Write a random reward model with a tokenizer; return its number of weights."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *(f"w{i}" for i in range(WORDS))])}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        unk_token="<unk>", chat_template=TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    config = LlamaConfig(
        **SHAPES[shape], num_labels=1, pad_token_id=0, eos_token_id=1, bos_token_id=2,
        max_position_embeddings=longest,
    )  # fmt: skip
    model = LlamaForSequenceClassification(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    return int(model.num_parameters())


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
        weights = build(asked.shape, Path(scratch), asked.longest, asked.dtype)
        model = load_reward_model(Path(scratch), "one answer", device=device, dtype=asked.dtype)
    score(model, texts[:2], batch_size=2)  # what is done once is done now
    by_length, rewards = timed(model, texts, asked.batch)
    reader.batches_by_length = in_order
    as_they_come, others = timed(model, texts, asked.batch)
    found = {
        "shape": asked.shape, "weights": weights, "dtype": asked.dtype,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "completions": asked.completions, "by_length": by_length, "in_order": as_they_come,
        "greatest_difference": float(np.abs(rewards - others).max()),
    }  # fmt: skip
    print(json.dumps(found, indent=1))


def timed(model: Any, texts: Any, batch: int) -> tuple[dict[str, float], Any]:
    """Score once; return how fast, with how much padding, and the rewards."""
    sequences = [encoded.tokens for encoded in model.encode(texts)]
    batches = list(reader.batches_by_length(sequences, batch, reader.BATCH_TOKENS))
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
