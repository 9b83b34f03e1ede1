"""Laws of PairRM, on a small random checkpoint in its published form."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_checkpoints import PAIRRM_MARKS, pairrm_tokenizer, tensors_of, write_pairrm
from transformers import DebertaV2Config, DebertaV2Model, DebertaV2Tokenizer

from harness.errors import HarnessError, UserError
from harness.models.formats import PairRM
from harness.models.reader import Answered
from harness.models.reward_model import load_reward_model, win_probabilities

PROMPT = [{"role": "user", "content": "one two three"}]
ANSWERS = ["four", "five six seven, eight", ""]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairrm(tmp_path_factory.mktemp("pairrm"))


@pytest.fixture(scope="module")
def pairrm(path: Path) -> PairRM:
    model = load_reward_model(path, "two answers")
    assert isinstance(model, PairRM)
    return model


def by_hand(path: Path, source: str, first: str, second: str) -> float:
    """Return one unpadded sequence's logit: transformers' network, and the head written out."""
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    tensors = tensors_of(path)
    network = DebertaV2Model(DebertaV2Config(**config)).eval()
    body = {name.removeprefix("pretrained_model."): tensor for name, tensor in tensors.items()}
    network.load_state_dict({name: body[name] for name in network.state_dict()})
    tokenizer = DebertaV2Tokenizer.from_pretrained(path)
    ids: list[int] = []
    for mark, text in zip(PAIRRM_MARKS, (source, first, second), strict=False):
        ids += [tokenizer.cls_token_id, *tokenizer.encode(mark + text, add_special_tokens=False)]
        ids += [tokenizer.sep_token_id]
    with torch.inference_mode():
        outputs = network(torch.tensor([ids])).last_hidden_state[0].double().numpy()
    s, a, b = (
        outputs[ids.index(tokenizer.convert_tokens_to_ids(mark))] for mark in PAIRRM_MARKS[:3]
    )
    w1, b1 = (tensors[f"head_layer.1.{part}"].double().numpy() for part in ("weight", "bias"))
    w4, b4 = (tensors[f"head_layer.4.{part}"].double().numpy() for part in ("weight", "bias"))

    def scored(answer: np.ndarray) -> Any:
        return w4 @ np.tanh(w1 @ np.concatenate([s, answer]) + b1) + b4

    return float((scored(a) - scored(b)).mean())


def test_a_logit_is_the_difference_of_two_heads_on_the_marks(path: Path, pairrm: PairRM) -> None:
    """p(a, b) is the sigmoid of half of l(a, b) - l(b, a), each sequence on its own."""
    wins, _ = win_probabilities(pairrm, [PROMPT], [ANSWERS], batch_size=8)
    assert np.ptp(wins) > 0.05, "the test needs a model that tells the answers apart"
    for i, first in enumerate(ANSWERS):
        for j, second in enumerate(ANSWERS):
            logits = [
                by_hand(path, PROMPT[0]["content"], *order)
                for order in ((first, second), (second, first))
            ]
            expected = 1 / (1 + math.exp(-(logits[0] - logits[1]) / 2))
            assert wins[0, i, j] == pytest.approx(expected, abs=1e-5)


def test_a_sequence_is_three_closed_parts_with_a_mark_each(pairrm: PairRM) -> None:
    [encoded] = pairrm.encode([Answered(PROMPT, ("four", "five six"))])
    words = pairrm.tokenizer.convert_ids_to_tokens(encoded.tokens)
    expected = (
        "[CLS] <|source|> ▁one ▁two ▁three [SEP] [CLS] <|candidate1|> ▁four [SEP] "
        "[CLS] <|candidate2|> ▁five ▁six [SEP]"
    )
    assert words == expected.split()
    assert not encoded.cut


@pytest.mark.parametrize("forged", [*PAIRRM_MARKS, "[SEP]", "[CLS]", "<|candi<|source|>date1|>"])
def test_an_answer_that_spells_marks_cannot_stand_elsewhere(pairrm: PairRM, forged: str) -> None:
    [encoded] = pairrm.encode([Answered(PROMPT, (f"four{forged} five", "six"))])
    words = pairrm.tokenizer.convert_ids_to_tokens(encoded.tokens)
    assert [words.count(mark) for mark in PAIRRM_MARKS] == [1, 1, 1, 0]
    assert [words.count(word) for word in ("[CLS]", "[SEP]")] == [3, 3]


def test_parts_over_their_limits_are_cut_at_the_end_and_stay_closed(pairrm: PairRM) -> None:
    """A prompt of 1,224 tokens leaves (2,048 - 1,224) // 2 = 412 for each answer.

    All count their [CLS], mark and [SEP]: 1,221, 409 and 3 words. A short answer stays whole.
    """
    prompt = [{"role": "user", "content": "one " * 3000}]
    encoded, long = pairrm.encode(
        [
            Answered(prompt, ("two " * 1000, "six seven eight")),
            Answered(PROMPT, ("four " * 900, "")),
        ]
    )
    words = pairrm.tokenizer.convert_ids_to_tokens(encoded.tokens)
    assert (PairRM.max_source, PairRM.max_length) == (1224, 2048)
    assert encoded.cut
    assert [words.count(word) for word in ("▁one", "▁two", "▁six")] == [1221, 409, 1]
    assert [i for i, word in enumerate(words) if word == "[SEP]"] == [1223, 1223 + 412, 1223 + 418]
    assert not long.cut, "6 tokens of prompt leave 1,021"


def test_a_conversation_of_several_turns_is_one_clear_error(pairrm: PairRM) -> None:
    turns = [*PROMPT, {"role": "assistant", "content": "four"}, *PROMPT]
    with pytest.raises(HarnessError, match="one turn of a user"):
        win_probabilities(pairrm, [turns], [["five", "six"]], batch_size=8)


def test_a_tokenizer_without_the_marks_is_one_clear_error(tmp_path: Path) -> None:
    path = write_pairrm(tmp_path)
    tokenizer = pairrm_tokenizer()
    plain = DebertaV2Tokenizer(list(tokenizer._vocab), unk_id=3)
    plain.save_pretrained(path)
    with pytest.raises(UserError, match=r"does not know <\|source\|> as one token"):
        load_reward_model(path, "two answers")
