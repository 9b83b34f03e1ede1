"""Laws of scoring conversations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.models.loading import tokenize
from harness.models.policy import load_policy
from harness.models.reward_model import load_reward_model, score

ANSWERS = ["a", "b c d e f g h", "c d", "", "d e f g h i j k l m n o p", "a", "c d"]
CONVERSATIONS = [
    [{"role": "user", "content": "a b c"}, {"role": "assistant", "content": answer}]
    for answer in ANSWERS
]


def test_a_score_is_the_output_at_the_last_token_of_the_conversation_alone(
    reward_path: Path,
) -> None:
    """The head applied to the last hidden state, each conversation unpadded and on its own."""
    checkpoint = load_reward_model(reward_path)
    expected = []
    for ids in tokenize(checkpoint.tokenizer, CONVERSATIONS, add_generation_prompt=False):
        with torch.inference_mode():
            hidden = checkpoint.model.model(torch.tensor([ids])).last_hidden_state[0, -1]
            expected.append(float(checkpoint.model.score(hidden)))
    actual = score(reward_path, CONVERSATIONS, batch_size=256)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert np.ptp(actual) > 0.1, "the test needs a model that tells the answers apart"


@pytest.mark.parametrize("batch_size", [1, 2, 256])
def test_equal_answers_have_exactly_equal_rewards(reward_path: Path, batch_size: int) -> None:
    rewards = score(reward_path, CONVERSATIONS, batch_size=batch_size)
    assert rewards[0] == rewards[5]
    assert rewards[2] == rewards[6]


def test_the_conversation_has_one_bos_and_ends_with_the_end_of_the_answer(
    reward_path: Path,
) -> None:
    tokenizer = load_reward_model(reward_path).tokenizer
    [ids] = tokenize(tokenizer, CONVERSATIONS[2:3], add_generation_prompt=False)
    words = "<bos> <start_of_turn> user a b c <end_of_turn> <start_of_turn> model c d <end_of_turn>"
    assert tokenizer.convert_ids_to_tokens(ids) == words.split()


def test_equal_conversations_are_read_once(reward_path: Path, sequences_read: list[int]) -> None:
    assert len(score(reward_path, CONVERSATIONS, batch_size=3)) == len(CONVERSATIONS) > 5
    assert sequences_read == [5]


def test_nothing_to_score_gives_nothing(reward_path: Path) -> None:
    assert score(reward_path, [], batch_size=4).shape == (0,)


def test_policy_and_reward_model_are_cached_apart(policy_path: Path, reward_path: Path) -> None:
    assert load_policy(policy_path) is load_policy(policy_path)
    assert load_reward_model(reward_path) is load_reward_model(reward_path)
    assert load_reward_model(reward_path).model is not load_policy(policy_path).model
