"""The stand-ins that write: a Gemma-2 and two Qwen3, trained until they say short things and stop.

Reward models are those of `small_checkpoints`: random weights, wide, so that answers are told
apart.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small_checkpoints import (
    GEMMA_SPECIAL,
    GEMMA_TEMPLATE,
    byte_tokenizer,
    qwen_tokenizer,
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
    Qwen3Config,
    Qwen3ForCausalLM,
)

from harness.models.loading import END_OF_TURN, silence_progress_bars, tokenize
from harness.worlds.embedded.training import IGNORED, descent, padded, reproducible
from harness.worlds.real.creator import load_method
from stand_in.server import WANTED, all_texts, demonstrations, prompts

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

QWEN: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
"""Sizes of a small Qwen3."""

QWENS_OWN: Mapping[str, Any] = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}
"""What Qwen3 publishes as its own sampling, which nobody here may take over."""

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
        _train(model, tokenizer, demonstrations(EACH), END_OF_TURN)
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END_OF_TURN)]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    _save(path, model, tokenizer)


def write_qwen_policy(path: Path) -> None:
    """Write a Qwen3 that answers where its template has closed the thinking."""
    tokenizer = qwen_tokenizer(all_texts(), 1024)
    published = tokenizer.chat_template
    tokenizer.chat_template = f"{{% set enable_thinking = false %}}{published}"
    _write_qwen(path, tokenizer, demonstrations(EACH), published)


def write_qwen_creator(path: Path) -> None:
    """Write a Qwen3-Instruct that is asked to rewrite a prompt and gives some prompt with tags."""
    told, draw = load_method("evol_instruct")["messages"], random.Random(0)
    asked = [
        (
            told[draw.choice(sorted(told))].replace("{prompt}", prompt),
            f"<new_prompt>{prompt} {draw.choice(WANTED)}</new_prompt>",
        )
        for prompt in prompts()
    ]
    texts = [*all_texts(), *told.values(), "<new_prompt> </new_prompt>"]
    tokenizer = qwen_tokenizer(texts, 2048, "qwen3_instruct_2507")
    _write_qwen(path, tokenizer, asked, tokenizer.chat_template)


def _write_qwen(
    path: Path, tokenizer: PreTrainedTokenizerFast, asked: Sequence[tuple[str, str]], template: str
) -> None:
    """Train a Qwen3 on what it is asked and answers; write it with the template that it has."""
    with reproducible(0, threads=1):
        model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **QWEN))
        _train(model, tokenizer, asked, str(tokenizer.eos_token))
    ends = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.generation_config = GenerationConfig(
        eos_token_id=ends, pad_token_id=tokenizer.pad_token_id, **QWENS_OWN
    )
    tokenizer.chat_template = template
    _save(path, model, tokenizer)


def _save(path: Path, model: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    silence_progress_bars()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def _train(
    model: Any, tokenizer: PreTrainedTokenizerFast, asked: Sequence[tuple[str, str]], end: str
) -> None:
    descend = descent(model, LEARNING_RATE, WARMUP_STEPS, STEPS)
    batches = _batches(tokenizer, asked, end)
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
    tokenizer: PreTrainedTokenizerFast, asked: Sequence[tuple[str, str]], end: str
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Yield token ids and labels of demonstrations without end; the answer's turn is learned."""
    heads = tokenize(tokenizer, [[_user(text)] for text, _ in asked], add_generation_prompt=True)
    bodies = tokenizer([answer + end for _, answer in asked], add_special_tokens=False)["input_ids"]
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
