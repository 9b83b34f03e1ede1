"""The stand-in policy: a small Gemma-2, trained until it says short sentences and ends its turn.

Reward models are those of `small_checkpoints`: random weights, wide, so that answers are told
apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small_checkpoints import (
    GEMMA_SPECIAL,
    GEMMA_TEMPLATE,
    byte_tokenizer,
    write_armo,
    write_classifier,
    write_pair_llm,
    write_pairrm,
)
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

from harness.models.loading import END_OF_TURN, silence_progress_bars, tokenize
from harness.worlds.embedded.pretrain import IGNORED, descent, padded, reproducible
from stand_in.server import all_texts, demonstrations

CONTEXT = 512
"""Longest sequence that a model reads, in tokens."""

GEMMA: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 128,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
"""Sizes of a small Gemma-2; ids as the tokenizer has them."""

STEPS = 150
WARMUP_STEPS = 10
BATCH = 24
LEARNING_RATE = 3e-3
EACH = 3
"""Demonstrations of each prompt."""


def write_policy(path: Path) -> None:
    """Draw a model's weights, train it briefly, and write it with its tokenizer."""
    tokenizer = byte_tokenizer(
        GEMMA_SPECIAL, "<bos>", all_texts(), 1024, eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.chat_template = "{{ bos_token }}" + GEMMA_TEMPLATE
    with reproducible(0, threads=1):
        config = Gemma2Config(vocab_size=len(tokenizer), attn_implementation="eager", **GEMMA)
        model = Gemma2ForCausalLM(config)
        _train(model, tokenizer)
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END_OF_TURN)]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    silence_progress_bars()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def _train(model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    descend = descent(model, LEARNING_RATE, WARMUP_STEPS, STEPS)
    batches = _batches(tokenizer)
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
    tokenizer: PreTrainedTokenizerFast,
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Yield token ids and labels of demonstrations without end; the answer's turn is learned."""
    asked = [([_user(prompt)], answer) for prompt, answer in demonstrations(EACH)]
    heads = tokenize(tokenizer, [head for head, _ in asked], add_generation_prompt=True)
    bodies = tokenizer([answer + END_OF_TURN for _, answer in asked], add_special_tokens=False)[
        "input_ids"
    ]
    pairs = list(zip(heads, bodies, strict=True))
    draw = random.Random(0)
    while True:
        batch = draw.sample(pairs, BATCH)
        yield (
            [head + body for head, body in batch],
            [[IGNORED] * len(head) + body for head, body in batch],
        )


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


WRITERS: Mapping[str, Callable[[Path], object]] = {
    "ArmoRM": partial(write_armo, max_position_embeddings=CONTEXT),
    "Skywork-Reward": partial(write_classifier, max_position_embeddings=CONTEXT),
    "PairRM": write_pairrm,
    "pair-preference-model": partial(write_pair_llm, max_position_embeddings=CONTEXT),
}
"""What writes each reward model, by the name of what it stands for."""
