"""Small reward models with random weights, in the form of the four published ones.

Each is built by the class that reads the published checkpoint (or transformers' own), so its files
have the published architecture, fields and names of parameters. Weights are drawn from a seed and
wide, so that answers are told apart; what is preferred is arbitrary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    DebertaV2Config,
    Gemma2Config,
    Gemma2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

from harness.models import armo, pair_preference_llm, pairrm
from harness.worlds.mock import tokenizers

CONTEXT = 512
"""Longest sequence that a reward model reads, in tokens."""

GEMMA: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "max_position_embeddings": CONTEXT,
    "sliding_window": 128,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
"""Sizes of a small Gemma-2; ids as the tokenizer has them."""

LLAMA: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 500000.0,
    "bos_token_id": 0,
    "eos_token_id": 4,
    "pad_token_id": 5,
}
"""Sizes of a small Llama-3; ids as the tokenizer has them."""


def write_armo(path: Path, seed: int) -> None:
    """Write a reward model in the form of ArmoRM."""
    tokenizer = tokenizers.llama()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        num_objectives=19,
        gating_temperature=10,
        gating_hidden_dim=32,
        gating_n_hidden=3,
        **LLAMA,
    )
    _write(path, armo.ArmoModel(config), armo.ARCHITECTURE, tokenizer, seed)


def write_classifier(path: Path, seed: int) -> None:
    """Write a Gemma-2 with one number at the last token, as Skywork-Reward is."""
    tokenizer = tokenizers.gemma()
    config = Gemma2Config(vocab_size=len(tokenizer), num_labels=1, **GEMMA)
    kind = Gemma2ForSequenceClassification
    _write(path, kind(config), kind.__name__, tokenizer, seed)


def write_pairrm(path: Path, seed: int) -> None:
    """Write a pairwise model in the form of PairRM."""
    tokenizer = tokenizers.deberta()
    config = DebertaV2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=CONTEXT,
        type_vocab_size=0,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        position_buckets=256,
        relative_attention=True,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        pad_token_id=0,
        drop_out=0.05,
        n_tasks=1,
    )
    _write(path, pairrm.PairRMModel(config), pairrm.ARCHITECTURE, tokenizer, seed)


def write_pair_preference(path: Path, seed: int) -> None:
    """Write a Llama-3 with an output for each token, as the 8B pair-preference model is."""
    tokenizer = tokenizers.llama()
    config = LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=False, **LLAMA)
    model = LlamaForCausalLM(config)
    _write(path, model, pair_preference_llm.ARCHITECTURE, tokenizer, seed)


WRITERS: Mapping[str, Callable[[Path, int], None]] = {
    "ArmoRM": write_armo,
    "Skywork-Reward": write_classifier,
    "PairRM": write_pairrm,
    "pair-preference-model": write_pair_preference,
}
"""What writes each reward model, by the name of what it stands for."""


def _write(path: Path, model: Any, architecture: str, tokenizer: Any, seed: int) -> None:
    """Draw a model's weights and write it under the published name of its architecture."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and "norm" not in name.lower():
                wide = 0.5 if weight.dim() < 2 else 2.0 / weight.shape[-1] ** 0.5
                weight.copy_(wide * torch.randn(weight.shape, generator=generator))
    path.mkdir(parents=True, exist_ok=True)
    config = {**model.config.to_dict(), "architectures": [architecture], "dtype": "float32"}
    (path / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    save_file(model.state_dict(), path / "model.safetensors", {"format": "pt"})
    tokenizer.save_pretrained(path)
