"""Laws of comparing answers with a pairwise reward model."""

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_gemma import build_tiny_gemma, tiny_tokenizer

from harness.models.loading import FIRST_IS_BETTER, tokenize
from harness.models.reader import Answered, Average, Encoded, Reader
from harness.models.reward_model import CheckpointRewards, load_reward_model, win_probabilities

ANSWERS = [["a", "b c d e f g h", "c d", "a"], ["d", "", "e f g h i j k l m n o p", "b"]]
CONVERSATIONS = [[{"role": "user", "content": text}] for text in ("a b c", "p o n m l k j")]
K = 4
"""Answers to each conversation."""


@pytest.fixture(scope="module")
def pair_model(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    names = {"id2label": {0: FIRST_IS_BETTER}, "label2id": {FIRST_IS_BETTER: 0}}
    path = build_tiny_gemma(tmp_path_factory.mktemp("pairwise"), seed=2, outputs=1, **names)
    return load_reward_model(path, "two answers")


class Stub(Reader):
    """A model whose logit is a function of the prompt's and both answers' words."""

    format = "stub"

    def __init__(self, logit: Callable[[str], float], averages: Average = "logits") -> None:
        super().__init__(SimpleNamespace(device="cpu"), tiny_tokenizer())
        self.logit = logit
        self.averages = averages

    def encode(self, rows: Sequence[Answered]) -> list[Encoded]:
        texts = [" <eos> ".join([r.conversation[-1]["content"], *r.answers]) for r in rows]
        return [Encoded(tuple(self.tokenizer(text)["input_ids"]), False) for text in texts]

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = [" ".join(self.tokenizer.convert_ids_to_tokens(row)) for row in ids.tolist()]
        return torch.tensor([self.logit(row.replace(" <pad>", "")) for row in rows])


@pytest.mark.parametrize(
    ("averages", "expected"),
    [
        # sigmoid((2 + 1) / 2) = 1 / (1 + e^-1.5)
        ("logits", 0.817574),
        # (sigmoid(2) + sigmoid(1)) / 2 = (0.880797 + 0.731059) / 2
        ("probabilities", 0.805928),
    ],
)
def test_a_probability_is_the_mean_over_both_orders(averages: Average, expected: float) -> None:
    """With l(a, b) = 2 and l(b, a) = -1, the mean of the logits or of the probabilities."""
    table = {"p <eos> a <eos> b": 2.0, "p <eos> b <eos> a": -1.0}
    asked = [[{"role": "user", "content": "p"}]]
    model = Stub(table.__getitem__, averages)
    wins, _ = win_probabilities(model, asked, [["a", "b"]], batch_size=8)
    np.testing.assert_allclose(wins, [[[0.5, expected], [1 - expected, 0.5]]], atol=1e-6)
    assert wins[0, 0, 1] + wins[0, 1, 0] == 1


def test_probabilities_are_those_of_each_sequence_read_unpadded_on_its_own(
    pair_model: Reader,
) -> None:
    def logit(p: int, i: int, j: int) -> float:
        turns = [{"role": "assistant", "content": ANSWERS[p][k]} for k in (i, j)]
        [ids] = tokenize(
            pair_model.tokenizer, [[*CONVERSATIONS[p], *turns]], add_generation_prompt=False
        )
        with torch.inference_mode():
            hidden = pair_model.model.model(torch.tensor([ids])).last_hidden_state[0, -1]
            return float(pair_model.model.score(hidden))

    wins, _ = win_probabilities(pair_model, CONVERSATIONS, ANSWERS, batch_size=256)
    assert wins.shape == (2, K, K)
    assert np.ptp(wins) > 0.1, "the test needs a model that tells the answers apart"
    for p in range(2):
        for i in range(K):
            for j in range(K):
                expected = 1 / (1 + math.exp((logit(p, j, i) - logit(p, i, j)) / 2))
                assert wins[p, i, j] == pytest.approx(expected, abs=1e-5)


answer = st.lists(st.sampled_from("abcdefgh"), max_size=4).map(" ".join)


def several(k: int) -> st.SearchStrategy[list[list[str]]]:
    """Return k answers to each of one to three conversations."""
    return st.lists(st.lists(answer, min_size=k, max_size=k), min_size=1, max_size=3)


@settings(max_examples=40)
@given(st.integers(1, 4).flatmap(several), st.randoms())
def test_probabilities_mirror_and_follow_the_answers(
    pair_model: Reader, answers: list[list[str]], rng: Any
) -> None:
    """A mirror image sums to exactly 1; shuffled answers have shuffled probabilities."""
    asked = [[{"role": "user", "content": "a b"}]] * len(answers)
    k = len(answers[0])
    wins, _ = win_probabilities(pair_model, asked, answers, batch_size=5)
    assert (wins + wins.transpose(0, 2, 1) == 1).all()
    assert ((wins >= 0) & (wins <= 1)).all()
    np.testing.assert_allclose(wins.mean(axis=-1).mean(axis=1), 0.5)
    order = rng.sample(range(k), k)
    shuffled = [[own[i] for i in order] for own in answers]
    again, _ = win_probabilities(pair_model, asked, shuffled, batch_size=5)
    np.testing.assert_allclose(again, wins[:, order][:, :, order], atol=1e-5)


def test_the_mean_counts_the_answer_itself() -> None:
    """Rows (1/2 + 0.9 + 0.8) / 3, (0.1 + 1/2 + 0.5) / 3, (0.2 + 0.5 + 1/2) / 3."""
    wins = {"a b": 0.9, "a c": 0.8, "b c": 0.5}

    def logit(row: str) -> float:
        _, first, second = row.split(" <eos> ")
        known = wins.get(f"{first} {second}") or 1 - wins[f"{second} {first}"]
        return math.log(known / (1 - known))

    asked = [[{"role": "user", "content": "d"}]]
    found = CheckpointRewards(Stub(logit, "probabilities")).score(asked, [["a", "b", "c"]])
    np.testing.assert_allclose(found.values, [[2.2 / 3, 1.1 / 3, 1.2 / 3]], rtol=1e-6)
