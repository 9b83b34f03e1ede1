"""Laws of the freeze of the world of instructions: what decides a number is what was written."""

import pytest

from harness.registry.profile import Profile
from harness.worlds import freeze
from harness.worlds.freeze import freeze_of
from harness.worlds.instructions import rules
from harness.worlds.instructions.tasks import prompts


def changed(profile: Profile) -> list[str]:
    found = freeze_of(profile)
    assert found is not None
    frozen, now = found
    return frozen.changed(now)


def test_the_world_is_as_it_was_frozen(laptop: Profile) -> None:
    assert changed(laptop) == []


def test_another_guard_is_a_changed_part(laptop: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "FEWEST_WORDS", 13)
    assert changed(laptop) == ["rewards"]


def test_answers_to_be_rewarded_differ_in_their_rewards() -> None:
    prompt = prompts("prompts", 1)[0]
    assert len(set(rules.RULES.score(prompt, freeze._answers(prompt)))) > 1
