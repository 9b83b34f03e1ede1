"""Laws of the freeze of the world of instructions: what decides a number is what was written."""

from __future__ import annotations

import pytest

from harness.registry.profile import Profile, load_profiles
from harness.worlds.instructions import freeze, rules
from harness.worlds.instructions.creator import METHODS
from harness.worlds.instructions.tasks import PARTS, prompts
from harness.worlds.profile_freeze import freeze_of


@pytest.fixture(scope="module")
def laptop() -> Profile:
    return load_profiles()["laptop"]


def changed(profile: Profile) -> list[str]:
    found = freeze_of(profile)
    assert found is not None
    frozen, now = found
    return frozen.changed(now)


def test_the_world_is_as_it_was_frozen(laptop: Profile) -> None:
    assert changed(laptop) == []


def test_the_parts_are_prompts_creator_rewards_policy_and_the_profile(laptop: Profile) -> None:
    found = freeze_of(laptop)
    assert found is not None
    assert set(found[0].parts) == {
        *(f"prompts {part}" for part in PARTS),
        *(f"creator {method}" for method in METHODS),
        *("rewards", "policy"),
        *(f"profile {name}" for name in ("x", "generation", "pairs", "selection", "training")),
        *(f"method {name}" for name in ("values", "choices", "pairs", "mix")),
    }


def test_another_hyperparameter_is_a_changed_part(laptop: Profile) -> None:
    assert changed(laptop.model_copy(update={"x": 65})) == ["profile x"]


def test_another_guard_is_a_changed_part(laptop: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "FEWEST_WORDS", 13)
    assert changed(laptop) == ["rewards"]


def test_answers_to_be_rewarded_differ_in_their_rewards() -> None:
    prompt = prompts("prompts", 1)[0]
    assert len(set(rules.RULES.score(prompt, freeze._answers(prompt)))) > 1
