"""The stand-in for the policy: a small Gemma-2, briefly taught to end its turns.

Random weights would answer with bytes and never stop, and then every answer has the longest length
there is. So the model is trained for some seconds on made-up demonstrations (`texts`), until it
says short sentences and closes its turn. It is no language model beyond that.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from harness.models.loading import END_OF_TURN, silence_progress_bars, tokenize
from harness.worlds.embedded.pretrain import descent, padded, reproducible
from harness.worlds.mock import tokenizers
from harness.worlds.mock.texts import demonstrations

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,  # the smallest that vLLM takes
    "query_pre_attn_scalar": 32,
    "max_position_embeddings": 512,
    "sliding_window": 128,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
"""Sizes of the model; all else is Gemma-2's."""

STEPS = 150
WARMUP_STEPS = 10
BATCH = 24
LEARNING_RATE = 3e-3
EACH = 3
"""Demonstrations of each prompt."""

IGNORED = -100
"""Label of tokens that are given, and not to be learned."""


def write_policy(path: Path, seed: int) -> None:
    """Draw a model's weights from a seed, train it briefly, and write it with its tokenizer."""
    tokenizer = tokenizers.gemma()
    with reproducible(seed, threads=1):
        config = Gemma2Config(vocab_size=len(tokenizer), attn_implementation="eager", **SIZES)
        model = Gemma2ForCausalLM(config)
        _train(model, tokenizer, seed)
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END_OF_TURN)]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id,
    )
    silence_progress_bars()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def _train(model: Any, tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
    descend = descent(model, LEARNING_RATE, WARMUP_STEPS, STEPS)
    batches = _batches(tokenizer, seed)
    for _ in range(STEPS):
        rows, labels = next(batches)
        tokens, mask = padded(rows, int(tokenizer.pad_token_id))
        targets, _ = padded(labels, IGNORED)
        logits = model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        descend(
            torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED
            )
        )


def _batches(
    tokenizer: PreTrainedTokenizerFast, seed: int
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Yield token ids and labels of demonstrations without end; the answer's turn is learned."""
    asked = [([_user(prompt)], answer) for prompt, answer in demonstrations(EACH)]
    heads = tokenize(tokenizer, [head for head, _ in asked], add_generation_prompt=True)
    bodies = tokenizer([answer + END_OF_TURN for _, answer in asked], add_special_tokens=False)[
        "input_ids"
    ]
    pairs = list(zip(heads, bodies, strict=True))
    draw = random.Random(seed)
    while True:
        batch = draw.sample(pairs, BATCH)
        yield (
            [head + body for head, body in batch],
            [[IGNORED] * len(head) + body for head, body in batch],
        )


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
