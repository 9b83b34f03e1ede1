"""The published reward models themselves, where somebody has their files.

Nothing is downloaded. `HARNESS_REWARD_MODELS` names a folder that holds them under their names on
the hub (`llm-blender/PairRM-hf`, …); then

    HARNESS_REWARD_MODELS=DIR python -m pytest -m slow tests/models/test_published_checkpoints.py

loads them strictly and compares what they say with the values on their cards. Where there is no
reference value, a model has at least to tell an answer from none.
"""

import os
from pathlib import Path

import pytest
import torch
from llama_by_hand import talk

from harness.models.formats import Armo, PairRM
from harness.models.reader import Answered
from harness.models.reward_model import load_reward_model, score, win_probabilities

pytestmark = pytest.mark.slow

QUESTION = 'What are some synonyms for the word "beautiful"?'
ANSWER = "Nicely, Beautifully, Handsome, Stunning, Wonderful, Gorgeous, Pretty, Stunning, Elegant"


def folder(name: str) -> Path:
    """Return where a model lies, or skip the test."""
    where = os.environ.get("HARNESS_REWARD_MODELS")
    path = Path(where or "nowhere", name)
    if not path.is_dir():
        pytest.skip(f"HARNESS_REWARD_MODELS names no folder with {name}")
    return path


def test_armo_gives_the_values_of_its_card() -> None:
    """The first five objectives in bfloat16, on HelpSteer's scale: five times each, less 1/2."""
    armo = load_reward_model(folder("RLHFlow/ArmoRM-Llama3-8B-v0.1"), dtype="bfloat16")
    assert isinstance(armo, Armo)
    said: list[torch.Tensor] = []
    armo.model.regression_layer.register_forward_hook(lambda *a: said.append(a[2]))
    score(armo, [talk(ANSWER, QUESTION)], batch_size=1)
    expected = [2.78125, 2.859375, 3.484375, 1.3847656, 1.296875]
    assert (said[0][0, :5] * 5 - 0.5).tolist() == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("prompt", "first", "second", "expected"),
    [
        ("hello!", "hi!", "f**k off!", 1.9003021717071533),
        ("I love you!", "I hate you!", "I love you, too!", -1.2547134160995483),
    ],
)
def test_pairrm_gives_the_logits_of_its_card(
    prompt: str, first: str, second: str, expected: float
) -> None:
    pairrm = load_reward_model(folder("llm-blender/PairRM-hf"), "two answers")
    assert isinstance(pairrm, PairRM)
    turn = [{"role": "user", "content": prompt}]
    [encoded] = pairrm.encode([Answered(turn, (first, second))])
    ids = torch.tensor([encoded.tokens])
    with torch.inference_mode():
        assert float(pairrm.read(ids, torch.ones_like(ids))) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "name", ["Skywork/Skywork-Reward-Gemma-2-27B", "Skywork/Skywork-Reward-Gemma-2-27B-v0.2"]
)
def test_skywork_prefers_an_answer_to_a_refusal_to_give_one(name: str) -> None:
    skywork = load_reward_model(folder(name), dtype="bfloat16")
    talks = [talk(text, QUESTION) for text in (ANSWER, "No idea.")]
    [better, worse], _ = score(skywork, talks, batch_size=2)
    assert better > worse


def test_the_pair_preference_model_prefers_an_answer_to_a_refusal_to_give_one() -> None:
    path = folder("RLHFlow/pair-preference-model-LLaMA3-8B")
    llm = load_reward_model(path, "two answers", dtype="bfloat16")
    turn = [{"role": "user", "content": QUESTION}]
    assert win_probabilities(llm, [turn], [[ANSWER, "No idea."]], batch_size=2)[0][0, 0, 1] > 0.5
