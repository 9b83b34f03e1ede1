"""Tokenizers in the form of the published ones, trained on the stand-ins' own texts.

Three kinds are needed. Gemma's and Llama-3's are byte-level here, so that every text can be
written with a thousand tokens; their control tokens, chat templates and the BOS they put are as
published. DeBERTa's is a list of pieces with PairRM's marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.worlds.mock.texts import all_texts

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
        single=f"{bos} $A",
        pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, control.index(bos))],
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=bos)
