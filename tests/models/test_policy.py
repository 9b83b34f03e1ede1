"""Laws of sampling completions from a policy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_gemma import build_tiny_gemma

from harness.models.loading import tokenize
from harness.models.policy import (
    Completion,
    RoomyLayer,
    complete_line,
    decode,
    generate,
    load_policy,
    next_tokens,
)

TEXTS = ["a b c", "d", "e f g h i j k l", "m n", "a b c d e f"]
CONVERSATIONS = [[{"role": "user", "content": text}] for text in TEXTS]


def sample(
    path: Path, conversations: Any = CONVERSATIONS, **settings: Any
) -> list[list[Completion]]:
    usual = {"n": 3, "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 12, "batch_size": 256}
    return generate(path, conversations, **{**usual, "seed": 0, **settings})


@pytest.mark.parametrize(("window", "room"), [(4, 64), (64, 64), (64, 3)])
def test_greedy_decoding_equals_transformers_generate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, room: int
) -> None:
    """Neither shared prefixes, nor rows leaving the batch, nor left padding change a token.

    Nor does a cache whose buffers grow several times. With a window of 4 the sliding layers see
    less than the prompt. Seed 24 gives completions of several lengths for both windows.
    """
    monkeypatch.setattr(RoomyLayer, "ROOM", room)
    path = build_tiny_gemma(tmp_path, seed=24, sliding_window=window)
    policy = load_policy(path)
    prompts = tokenize(policy.tokenizer, CONVERSATIONS, add_generation_prompt=True)
    lengths = set()
    for prompt, ours in zip(prompts, sample(path, temperature=0), strict=True):
        output = policy.model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=[1, 5]
        )[0, len(prompt) :].tolist()
        until_stop = next((i for i, token in enumerate(output) if token in (1, 5)), 12)
        text = policy.tokenizer.decode(output[:until_stop], skip_special_tokens=True)
        assert ours == [Completion(text, until_stop)] * 3
        lengths.add(until_stop)
    assert len(lengths) > 1, "the test needs completions of several lengths"


def test_a_plain_text_is_continued_to_the_end_of_its_line(tmp_path: Path) -> None:
    """Of twelve texts, each is continued as by transformers. With seed 5 some of the lines end."""
    path = build_tiny_gemma(tmp_path, seed=5)
    file = path / "tokenizer.json"
    words = json.loads(file.read_text())
    end = words["model"]["vocab"]["\n"] = words["model"]["vocab"].pop("p")
    words["pre_tokenizer"] = {
        "type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False
    }  # fmt: skip
    file.write_text(json.dumps(words))
    policy, ended = load_policy(path), 0
    for word in "abcdefghijkl":
        ids = policy.tokenizer(f"{word} b", return_tensors="pt").input_ids
        output = policy.model.generate(
            ids, max_new_tokens=12, do_sample=False, eos_token_id=[1, 5, end]
        )[0, ids.shape[1] :].tolist()
        ended += output[-1] == end
        line = policy.tokenizer.decode(output, skip_special_tokens=True).strip()
        own = complete_line(path, f"{word} b", temperature=0, max_new_tokens=12, seed=0)
        assert own == line
    assert 0 < ended < 12


def test_one_sampled_token_follows_the_models_distribution(policy_path: Path) -> None:
    """Frequencies of 4,000 first tokens against the softmax of the logits at temperature 2.

    Stopping tokens give empty completions and are counted together. The standard error of a
    frequency is at most 0.008; four of them are allowed.
    """
    policy = load_policy(policy_path)
    [prompt] = tokenize(policy.tokenizer, CONVERSATIONS[:1], add_generation_prompt=True)
    with torch.inference_mode():
        logits = policy.model(torch.tensor([prompt])).logits[0, -1]
    expected = (logits / 2).softmax(-1).numpy()
    drawn = sample(policy_path, CONVERSATIONS[:1], n=4000, temperature=2.0, max_new_tokens=1)[0]
    words = policy.tokenizer.get_vocab()
    for word in "abcdefghijklmnop":
        frequency = np.mean([completion.text == word for completion in drawn])
        assert frequency == pytest.approx(expected[words[word]], abs=0.032)
    stopped = np.mean([completion.n_tokens == 0 for completion in drawn])
    assert stopped == pytest.approx(expected[1] + expected[5], abs=0.032)


def test_a_draw_inverts_the_cumulative_distribution_of_the_nucleus() -> None:
    """Probabilities 0.3, 0.05, 0.5, 0.15 with top_p 0.75: the nucleus is {2, 0} with mass 0.8.

    Token 2 is drawn while 0.8 u < 0.5, so up to u = 0.625; token 0 above.
    """
    logits = torch.tensor([[0.3, 0.05, 0.5, 0.15]]).log().repeat(4, 1)
    uniforms = torch.tensor([0.0, 0.62, 0.63, 1 - 1e-12], dtype=torch.float64)
    assert next_tokens(logits, 1.0, 0.75, uniforms).tolist() == [2, 2, 0, 0]


def test_the_seed_decides_and_the_processes_random_state_does_not(policy_path: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = sample(policy_path)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert sample(policy_path) == first
    assert sample(policy_path, seed=1) != first


def test_no_more_completions_are_sampled_at_once_than_are_allowed(
    policy_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five conversations of three completions: seven at once are two conversations, so 6, 6, 3."""
    seen: list[int] = []

    def note(model: Any, ids: Any, mask: Any, *, n: int, **how: Any) -> Any:
        seen.append(n * len(ids))
        return decode(model, ids, mask, n=n, **how)

    monkeypatch.setattr("harness.models.policy.decode", note)
    sample(policy_path, batch_size=7)
    assert sorted(seen) == [3, 6, 6]


def test_batching_and_added_conversations_change_no_completion(policy_path: Path) -> None:
    everything = sample(policy_path)
    assert sample(policy_path, batch_size=1) == everything
    assert sample(policy_path, batch_size=7) == everything
    assert sample(policy_path, CONVERSATIONS[:3]) == everything[:3]
    assert sample(policy_path, []) == []


def test_a_checkpoint_is_loaded_once_until_it_changes(tmp_path: Path) -> None:
    build_tiny_gemma(tmp_path, seed=0)
    first = load_policy(tmp_path)
    assert load_policy(tmp_path) is first
    (tmp_path / "model.safetensors").unlink()
    build_tiny_gemma(tmp_path, seed=1)
    assert load_policy(tmp_path) is not first
