"""The stand-in policy and reward models, and their tokenizers: small, of the published forms.

The policy is a small Gemma-2, trained for some seconds until it says short sentences and closes its
turn. Reward models have random weights, wide, so that answers are told apart. Each is built by the
class that reads the published checkpoint. Gemma's and Llama-3's tokenizers are byte-level here;
their control tokens, chat templates and the BOS they put are as published.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from transformers import (
    DebertaV2Config,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma2ForSequenceClassification,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from harness.models import formats
from harness.models.loading import END_OF_TURN, silence_progress_bars, tokenize
from harness.worlds.embedded.pretrain import IGNORED, descent, padded, reproducible
from stand_in.server import all_texts, demonstrations

if TYPE_CHECKING:
    from transformers import DebertaV2Tokenizer, PreTrainedTokenizerFast


GEMMA_CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
"""Gemma's control tokens; their places here are their ids."""

GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role'])"
    " + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
"""Turns as Gemma-2 reads them, with one BOS at the beginning."""

LLAMA_CONTROL = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "[PAD]",
)
"""Llama-3's control tokens; their places here are their ids."""

LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
"""Turns as Llama-3 reads them."""

PAIRRM_CONTROL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
PAIRRM_MARKS = ("<|source|>", "<|candidate1|>", "<|candidate2|>", "<|candidate|>")

VOCABULARY = 1024
"""Most tokens of a byte-level tokenizer."""


def gemma() -> PreTrainedTokenizerFast:
    """Return a tokenizer with Gemma's control tokens and template."""
    tokenizer = _byte_level(GEMMA_CONTROL, "<bos>", ("user", "model"))
    tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token = "<eos>", "<pad>", "<unk>"
    tokenizer.chat_template = GEMMA_TEMPLATE
    return tokenizer


def llama() -> PreTrainedTokenizerFast:
    """Return a tokenizer with Llama-3's control tokens and template."""
    tokenizer = _byte_level(LLAMA_CONTROL, "<|begin_of_text|>", ("user", "assistant"))
    tokenizer.eos_token, tokenizer.pad_token = "<|eot_id|>", "[PAD]"
    tokenizer.chat_template = LLAMA_TEMPLATE
    return tokenizer


def deberta() -> DebertaV2Tokenizer:
    """Return a tokenizer of pieces, letters and words, with PairRM's marks."""
    from transformers import DebertaV2Tokenizer

    texts = all_texts()
    letters = sorted({letter for text in texts for letter in text if not letter.isspace()})
    words = sorted({f"▁{word}" for text in texts for word in text.split()})
    pieces = [*((name, 0.0) for name in PAIRRM_CONTROL), ("▁", -3.0)]
    pieces += [(letter, -6.0) for letter in letters] + [(word, -8.0) for word in words]
    tokenizer = DebertaV2Tokenizer(pieces, unk_id=PAIRRM_CONTROL.index("[UNK]"))
    tokenizer.add_tokens(list(PAIRRM_MARKS))
    return tokenizer


def _byte_level(control: Sequence[str], bos: str, roles: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer that puts a BOS, with each role as one token."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from tokenizers.processors import TemplateProcessing
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        special_tokens=list(control),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator([*all_texts(), *(role for role in roles for _ in range(9))], trainer)
    raw.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, control.index(bos))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=bos)


STEPS = 150
WARMUP_STEPS = 10
BATCH = 24
LEARNING_RATE = 3e-3
EACH = 3
"""Demonstrations of each prompt."""


def write_policy(path: Path, seed: int) -> None:
    """Draw a model's weights from a seed, train it briefly, and write it with its tokenizer."""
    tokenizer = gemma()
    with reproducible(seed, threads=1):
        config = Gemma2Config(vocab_size=len(tokenizer), attn_implementation="eager", **GEMMA)
        model = Gemma2ForCausalLM(config)
        _train(model, tokenizer, seed)
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END_OF_TURN)]
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
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


CONTEXT = 512
"""Longest sequence that a reward model reads, in tokens."""

SMALL: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
}
"""Sizes of all of them."""

GEMMA: Mapping[str, Any] = {
    **SMALL,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 128,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
"""Sizes of a small Gemma-2; ids as the tokenizer has them."""

LLAMA: Mapping[str, Any] = {
    **SMALL,
    "num_key_value_heads": 1,
    "rope_theta": 500000.0,
    "bos_token_id": 0,
    "eos_token_id": 4,
    "pad_token_id": 5,
}
"""Sizes of a small Llama-3; ids as the tokenizer has them."""


def write_armo(path: Path, seed: int) -> None:
    """Write a reward model in the form of ArmoRM."""
    tokenizer = llama()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        num_objectives=19,
        gating_temperature=10,
        gating_hidden_dim=32,
        gating_n_hidden=3,
        **LLAMA,
    )
    _write(path, formats.ArmoModel(config), formats.Armo.architecture, tokenizer, seed)


def write_classifier(path: Path, seed: int) -> None:
    """Write a Gemma-2 with one number at the last token, as Skywork-Reward is."""
    tokenizer = gemma()
    config = Gemma2Config(vocab_size=len(tokenizer), num_labels=1, **GEMMA)
    kind = Gemma2ForSequenceClassification
    _write(path, kind(config), kind.__name__, tokenizer, seed)


def write_pairrm(path: Path, seed: int) -> None:
    """Write a pairwise model in the form of PairRM."""
    tokenizer = deberta()
    config = DebertaV2Config(
        vocab_size=len(tokenizer),
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
        **SMALL,
    )
    _write(path, formats.PairRMModel(config), formats.PairRM.architecture, tokenizer, seed)


def write_pair_preference(path: Path, seed: int) -> None:
    """Write a Llama-3 with an output for each token, as the 8B pair-preference model is."""
    tokenizer = llama()
    config = LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=False, **LLAMA)
    model = LlamaForCausalLM(config)
    _write(path, model, formats.PairPreferenceLLM.architecture, tokenizer, seed)


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
