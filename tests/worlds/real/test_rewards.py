"""Rewards that are functions: found by name, known by plug-in and version, and checked."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_checkpoints import write_armo
from staging import given, read_json, run_stage

from harness.errors import HarnessError, UserError
from harness.extensions import reward
from harness.pipeline.steps import annotate_stage
from harness.registry.profile import Profile
from harness.runtime import Stage
from harness.worlds.lookup import runtime_of, world_of
from harness.worlds.needs import Demand
from harness.worlds.real import rewards
from harness.worlds.stage_io import read_rewards

TALK = [{"role": "user", "content": "one"}]


@pytest.fixture(autouse=True)
def registered(registries: None) -> None:
    """A reward of these tests."""

    @reward("brevity", version="1")
    def brevity(prompt: str, answers: list[str]) -> list[float] | None:
        return None if "secret" in prompt else [-float(len(answer)) for answer in answers]


def completions(folder: Path, *prompts: str) -> Path:
    rows = [
        {"prompt_id": f"p{i}", "prompt": prompt, "sample": j, "completion": text}
        for i, prompt in enumerate(prompts)
        for j, text in enumerate(("aa", "b"))
    ]
    return given(folder, "completions", rows)


def test_a_function_rewards_in_a_stage_and_what_it_cannot_say_is_left_out(
    tmp_path: Path, paper: Profile
) -> None:
    profile = paper.model_copy(
        update={"reward_models": {**paper.reward_models, "pointwise": "brevity"}}
    )
    identity = world_of(profile).reward_model("pointwise")
    assert identity == f"brevity@{__name__}-1"
    inputs = {"completions": completions(tmp_path / "in", "one", "a secret", "two")}
    out = run_stage(annotate_stage, tmp_path / "out", {"reward_model": identity}, inputs)
    ids, values = read_rewards(out)
    assert ids == ["p0", "p2"]
    np.testing.assert_array_equal(values, [[-2.0, -1.0]] * 2)
    summary = read_json(out / "summary.json")
    assert (summary["format"], summary["weights"]) == ("function brevity", "none")
    assert (summary["reward_model"], summary["cut"], summary["left_out"]) == (identity, 0, 1)
    stage = Stage("annotate", 1, {"reward_model": identity}, {})
    assert not Demand(profile, [stage]).models


def test_another_version_or_role_is_refused() -> None:
    with pytest.raises(HarnessError, match=r"planned with the reward `brevity@.*-0`.*plan the run"):
        rewards.load(f"brevity@{__name__}-0", "one answer")
    with pytest.raises(UserError, match="`brevity` scores one answer: give it a pointwise role"):
        rewards.load(f"brevity@{__name__}-1", "two answers")


@pytest.mark.parametrize("found", [[1.0], [1.0, float("nan")], [1.0, 2.0, 3.0]])
def test_a_function_gives_one_finite_number_for_each_answer(found: list[float]) -> None:
    @reward("broken", version="1")
    def broken(prompt: str, answers: list[str]) -> list[float]:
        return found

    model = runtime_of("broken").rewards(f"broken@{__name__}-1", "one answer", "float32")
    with pytest.raises(UserError, match=r"`broken` returned .* for 2 answers"):
        model.score([TALK], [["a", "b"]])


@pytest.mark.parametrize("found", [1.0, [None, 1.0], ["x", "y"]])
def test_a_function_that_returns_no_numbers_is_one_sentence(found: Any) -> None:
    @reward("wordy", version="1")
    def wordy(prompt: str, answers: list[str]) -> list[float]:
        return found  # type: ignore[no-any-return]

    with pytest.raises(UserError, match=r"the reward `wordy` fails at a prompt: (Type|Value)E"):
        rewards.load(f"wordy@{__name__}-1", "one answer").score([TALK], [["a", "b"]])


def test_what_a_function_raises_is_a_sentence() -> None:
    @reward("failing", version="1")
    def failing(prompt: str, answers: list[str]) -> list[float]:
        raise KeyError("absent")

    with pytest.raises(UserError, match="the reward `failing` fails at a prompt: KeyError"):
        rewards.load(f"failing@{__name__}-1", "one answer").score([TALK], [["a"]])


def test_turns_before_are_told_with_who_speaks() -> None:
    seen: list[str] = []

    @reward("seeing", version="1")
    def seeing(prompt: str, answers: list[str]) -> list[float]:
        seen.append(prompt)
        return [0.0]

    talk = [*TALK, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    rewards.load(f"seeing@{__name__}-1", "one answer").score([TALK, talk], [["a"], ["b"]])
    assert seen == ["one", "User: one\n\nAssistant: two\n\nUser: three"]


def test_a_model_with_a_head_of_one_s_own_is_part_of_the_identity(
    tmp_path: Path, paper: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_armo(tmp_path / "models" / "me" / "heads")

    @reward("heads", version="2", model="me/heads")
    class Heads:
        def __init__(self, folder: Path, device: str) -> None:
            self.width = json.loads((folder / "config.json").read_text())["hidden_size"]

        def __call__(self, prompt: str, answers: list[str]) -> list[float]:
            return [float(self.width)] * len(answers)

    identity = rewards.identity_of("heads")
    assert identity.startswith(f"heads@{__name__}-2:me/heads@files-")
    assert rewards.models_behind("heads") == ["me/heads"]
    assert rewards.models_behind(identity) == [identity.partition(":")[2]]
    assert rewards.models_behind("owner/name") == ["owner/name"]
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    assert rewards.load(identity, "one answer").score([TALK], [["a"]]).values.tolist() == [[width]]
