"""A Gemma-2 of a few thousand random weights with a word-level tokenizer, for tests."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma2ForSequenceClassification,
    PreTrainedTokenizerFast,
)

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
WORDS = ["user", "model", *"abcdefghijklmnop"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "<start_of_turn> {{ 'model' if m['role'] == 'assistant' else m['role'] }} {{ m['content'] }} "
    "<end_of_turn> {% endfor %}{% if add_generation_prompt %}<start_of_turn> model{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose chat template puts one `<bos>` and no newlines."""
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<start_of_turn>", "<end_of_turn>"],
        chat_template=TEMPLATE,
    )


def build_tiny_gemma(
    path: Path, *, seed: int = 0, outputs: int | None = None, **config: Any
) -> Path:
    """Save a random checkpoint: a policy, or with `outputs` a model with that many scalar heads.

    Weights are drawn wider than usual, so that the model's preferences are pronounced.
    """
    settings: dict[str, Any] = {
        "vocab_size": len(SPECIAL + WORDS),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 32,
        "query_pre_attn_scalar": 8,
        "max_position_embeddings": 128,
        "sliding_window": 64,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
        "initializer_range": 0.3,
        "attn_implementation": "eager",
        **config,
    }
    torch.manual_seed(seed)
    kind = Gemma2ForCausalLM
    if outputs is not None:
        kind, settings["num_labels"] = Gemma2ForSequenceClassification, outputs
    kind(Gemma2Config(**settings)).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path
