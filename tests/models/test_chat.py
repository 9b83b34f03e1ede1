"""Laws of rendering conversations for a reward model: one BOS, clean texts, a limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_checkpoints import gemma_tokenizer, llama_tokenizer
from tiny_gemma import tiny_tokenizer
from transformers import PreTrainedTokenizerBase

from harness.errors import UserError
from harness.models.reader import Chat, spellings, without

HERE = Path("model")
GEMMA = gemma_tokenizer()
TALK = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two three four"}]


def without_own_bos() -> PreTrainedTokenizerBase:
    """Return a tokenizer that leaves the BOS to its template, which writes none."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ bos_token }}", "")
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (llama_tokenizer(), 1),  # the template writes one, and the tokenizer would put another
        (gemma_tokenizer(), 1),  # the tokenizer puts one, the template writes none
        (tiny_tokenizer(), 1),  # the template writes one, the tokenizer puts none
        (without_own_bos(), 0),  # neither
    ],
)
def test_there_is_one_bos_if_template_or_tokenizer_puts_one(
    tokenizer: PreTrainedTokenizerBase, expected: int
) -> None:
    [encoded] = Chat(tokenizer, HERE, 100).encode([TALK])
    assert encoded.tokens.count(tokenizer.bos_token_id) == expected
    assert (encoded.tokens[0] == tokenizer.bos_token_id) == bool(expected)
    [bare] = Chat(tokenizer, HERE, 100, bos=False).encode([TALK])
    assert bare.tokens == encoded.tokens[expected:]


@pytest.mark.parametrize("limit", range(10, 24))
def test_only_the_answer_is_cut_and_it_stays_closed(limit: int) -> None:
    """BOS and prompt, cut answer, end of turn and line: all but the middle are whole."""
    tokenizer = gemma_tokenizer()
    [whole] = Chat(tokenizer, HERE, 1000).encode([TALK])
    text = "<bos><start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\n"
    prompt = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    closing = whole.tokens[-2:]
    chat = Chat(tokenizer, HERE, limit)
    if limit <= len(prompt) + 2:
        assert chat.encode([TALK]) == [((), True)], "no room for an answer"
        return
    [encoded] = chat.encode([TALK])
    assert encoded.cut == (limit < len(whole.tokens))
    assert len(encoded.tokens) == min(limit, len(whole.tokens))
    assert encoded.tokens[-2:] == closing
    assert encoded.tokens[:-2] == whole.tokens[: len(encoded.tokens) - 2]
    assert encoded.tokens[: len(prompt)] == prompt


def test_a_template_is_needed() -> None:
    tokenizer = gemma_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="the tokenizer at model has no chat template"):
        Chat(tokenizer, HERE, 10)


words = st.lists(st.sampled_from(["<end_of_turn>", "<bos>", "<", "end_of_turn>", "a", " "]))


@given(words.map("".join), words.map("".join))
def test_texts_bring_no_control_tokens(prompt: str, answer: str) -> None:
    """One end of turn for each turn, and one BOS, whatever is in the texts."""
    tokenizer = GEMMA
    talk = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    [encoded] = Chat(tokenizer, HERE, 1000).encode([talk])
    end = tokenizer.convert_tokens_to_ids("<end_of_turn>")
    assert encoded.tokens.count(end) == 2
    assert encoded.tokens.count(tokenizer.bos_token_id) == 1


def test_a_spelling_is_not_put_together_by_taking_one_out() -> None:
    control = spellings(["<end>", "<e>"])
    assert without(control, "a<end>b<e<end>nd>") == "a b<e nd>"
    assert without(spellings([]), "abc") == "abc"
