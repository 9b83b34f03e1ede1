"""The embedded world's tokenizer: one token a word, with a Gemma-style chat template.

It is an ordinary Hugging Face tokenizer on disk; nothing else in the harness knows that its
vocabulary is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.worlds.embedded.downstream import VOCABULARY as DOWNSTREAM_VOCABULARY
from harness.worlds.embedded.language import vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, UNK = "<pad>", "<bos>", "<unk>"
START, END = "<start_of_turn>", "<end_of_turn>"
USER, MODEL = "user", "model"

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role'])"
    " + ' ' + message['content'] + ' <end_of_turn>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model' }}{% endif %}"
)
"""Gemma's template without newlines, so that a completion is its words and `<end_of_turn>`."""


def words() -> list[str]:
    """Return the vocabulary in the order of its ids."""
    special = [PAD, BOS, UNK, START, END]
    return special + sorted({USER, MODEL, *vocabulary(), *DOWNSTREAM_VOCABULARY})


def token_ids() -> dict[str, int]:
    """Return the id of each word."""
    return {word: index for index, word in enumerate(words())}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(WordLevel(token_ids(), unk_token=UNK))
    raw.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNK,
        additional_special_tokens=[START],
        model_max_length=256,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
