"""Random models of published sizes, with a tokenizer of the made-up words `w0`, `w1` and so on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from harness.models.loading import fastest_device

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 4000, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "query_pre_attn_scalar": 32,
    },
    "gemma-2-2b": {
        "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "query_pre_attn_scalar": 256,
    },
    "gemma-2-9b": {
        "vocab_size": 256000, "hidden_size": 3584, "intermediate_size": 14336,
        "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "query_pre_attn_scalar": 256,
    },
    "llama-8b": {
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    },
}  # fmt: skip
"""Sizes of a tiny model, and of Gemma-2 and Llama 3 as in their `config.json`."""

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "user", "model"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "<start_of_turn> {{ 'model' if m['role'] == 'assistant' else m['role'] }} {{ m['content'] }} "
    "<end_of_turn> {% endfor %}{% if add_generation_prompt %}<start_of_turn> model{% endif %}"
)
WORDS = 3000
"""Words that every model knows."""


def write_random_model(kind: Any, shape: str, folder: Path, dtype: str, **settings: Any) -> int:
    """Write a model of a class of transformers with its tokenizer; return its number of weights."""
    config = kind.config_class(
        **SHAPES[shape], pad_token_id=0, eos_token_id=1, bos_token_id=2, **settings
    )
    torch.manual_seed(0)
    torch.set_default_dtype(getattr(torch, dtype))
    with torch.device(fastest_device()):
        model = kind(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    weights = int(model.num_parameters())
    del model
    torch.cuda.empty_cache()
    words = [*SPECIAL, *(f"w{i}" for i in range(config.vocab_size - len(SPECIAL)))]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        unk_token="<unk>", additional_special_tokens=SPECIAL[4:6], chat_template=TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    return weights


def device_name() -> str:
    """Return the name of the GPU, or `cpu`."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
