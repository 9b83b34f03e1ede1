"""The stand-ins' models load by the real loaders."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.models.formats import Armo, PairPreferenceLLM, PairRM, SequenceClassifier
from harness.models.loading import load_tokenizer, stop_token_ids, tokenize
from harness.models.policy import generate
from harness.models.reward_model import load_reward_model, score, win_probabilities
from stand_in import build
from stand_in.models import WRITERS
from stand_in.server import prompts

ANSWERS = ("A rod throws a shadow on a plate.", "It shows no hour after dark.", "Heat sets it.")


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_there_is_a_model_for_the_policy_and_for_each_reward_model(work: Path) -> None:
    found = sorted(path.name for path in (work / "models" / "stand-in").iterdir())
    assert found == sorted((build.POLICY, *build.REWARD_MODELS))
    assert set(WRITERS) == set(build.REWARD_MODELS)


def test_a_prompt_begins_with_one_bos_and_a_turn_ends_as_gemmas_does(work: Path) -> None:
    tokenizer = load_tokenizer(build.folders()[build.POLICY])
    [ids] = tokenize(tokenizer, [asked("Hi")], add_generation_prompt=True)
    text = tokenizer.decode(ids)
    assert text == "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
    assert ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.convert_ids_to_tokens(stop_token_ids(tokenizer)) == ["<eos>", "<end_of_turn>"]
    strange = "ünïcödé 漢字 🙂"
    assert tokenizer.decode(tokenizer(strange, add_special_tokens=False)["input_ids"]) == strange


def test_the_policy_mostly_ends_its_turns(work: Path) -> None:
    """Random weights would nearly never: of a thousand tokens two end an answer."""
    few = [asked(prompt) for prompt in prompts()[::9]]
    answers = generate(
        build.folders()[build.POLICY],
        few,
        n=2,
        temperature=0.7,
        top_p=0.9,
        max_new_tokens=48,
        batch_size=64,
        seed=0,
    )
    lengths = [answer.n_tokens for several in answers for answer in several]
    assert sum(length < 48 for length in lengths) > 0.8 * len(lengths)
    assert len({answer.text for several in answers for answer in several}) > len(few)


@pytest.mark.parametrize(
    ("name", "kind"), [("ArmoRM", Armo), ("Skywork-Reward", SequenceClassifier)]
)
def test_pointwise_ones_load_strictly_and_tell_answers_apart(
    work: Path, name: str, kind: type
) -> None:
    model = load_reward_model(build.folders()[name], "one answer")
    assert isinstance(model, kind)
    talks = [[*asked(prompts()[0]), {"role": "assistant", "content": a}] for a in ANSWERS]
    rewards = score(model, talks, batch_size=2)
    assert len({float(reward) for reward in rewards}) == len(ANSWERS)


@pytest.mark.parametrize(
    ("name", "kind"), [("PairRM", PairRM), ("pair-preference-model", PairPreferenceLLM)]
)
def test_pairwise_ones_load_strictly_and_prefer(work: Path, name: str, kind: type) -> None:
    """A probability and its opposite make one; equal answers are a toss-up."""
    model = load_reward_model(build.folders()[name], "two answers")
    assert isinstance(model, kind)
    [matrix] = win_probabilities(model, [asked(prompts()[0])], [list(ANSWERS)], batch_size=4)
    assert matrix + matrix.T == pytest.approx(1.0)
    assert matrix[0, 1] != pytest.approx(0.5, abs=1e-6)


def test_what_is_there_is_not_made_again(work: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in work.rglob("*") if p.is_file()}
    build.build()
    assert {p: p.stat().st_mtime_ns for p in work.rglob("*") if p.is_file()} == before
