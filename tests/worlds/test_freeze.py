"""Laws of the freezes: what decides a number of eva is what was written down, part by part."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.registry.profile import Profile, load_profiles
from harness.worlds import freeze
from harness.worlds.embedded import creator, files, judge
from harness.worlds.freeze import FROZEN, freeze_of, freeze_world
from harness.worlds.instructions import rules
from harness.worlds.instructions.tasks import prompts

pytestmark = pytest.mark.usefixtures("shipped_world")


def changed(profile: Profile) -> list[str]:
    found = freeze_of(profile)
    assert found is not None
    frozen, now = found
    return frozen.changed(now)


@pytest.mark.parametrize("name", ["micro", "laptop"])
def test_a_shipped_world_is_as_it_was_frozen(name: str) -> None:
    assert changed(load_profiles()[name]) == []


def test_the_parts_are_files_creator_oracle_judges_and_what_the_profile_says_of_training() -> None:
    frozen = json.loads((files.folder() / FROZEN).read_text(encoding="utf-8"))
    assert set(frozen["parts"]) == {
        *(f"file {name}" for name in files.ASSETS),
        *(f"creator {method}" for method in creator.METHODS),
        *(f"reach {reach}" for reach in ("parent", "topic", "people", "even")),
        *(f"oracle {choice}" for choice in ("best", "worst")),
        *(f"judge {name}" for name in judge.JUDGES),
        *(f"profile {name}" for name in ("x", "generation", "pairs", "selection", "training")),
        *(f"method {name}" for name in ("values", "choices", "pairs", "mix")),
    }


@pytest.mark.parametrize(
    ("name", "rule", "other", "part"),
    [
        ("micro", "freeze.best_against_worst", lambda rewards: [rewards[0]], "method pairs"),
        ("laptop", "instructions.rules.FEWEST_WORDS", 13, "rewards"),
    ],
)
def test_another_rule_is_a_changed_part(
    monkeypatch: pytest.MonkeyPatch, name: str, rule: str, other: Any, part: str
) -> None:
    monkeypatch.setattr(f"harness.worlds.{rule}", other)
    assert changed(load_profiles()[name]) == [part]


def test_another_hyperparameter_is_a_changed_part(micro: Profile) -> None:
    dpo = micro.training.of("dpo").model_copy(update={"learning_rate": 1.0})
    training = micro.training.model_copy(update={"dpo": dpo})
    assert changed(micro.model_copy(update={"training": training})) == ["profile training"]
    assert changed(micro.model_copy(update={"x": 300})) == ["profile x"]


def test_another_file_is_a_changed_part(micro: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    card = files.card()
    assets = card.assets | {"theta0": card.assets["theta0"] | {"sha256": "0" * 64}}
    other = files.Card(card.version, assets, card.notes)
    monkeypatch.setattr(files, "card", lambda: other)
    assert changed(micro) == ["file theta0"]


def test_freezing_writes_what_is_read_again(
    micro: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    assert freeze_of(micro) is None
    monkeypatch.setattr(freeze, "embedded_parts", lambda _profile: {"profile x": "1"})
    made = freeze_world(micro)
    assert freeze_of(micro) == (made, {"profile x": "1"})
    assert json.loads((tmp_path / FROZEN).read_text("utf-8"))["parts"] == {"profile x": "1"}


def test_answers_to_be_rewarded_differ_in_their_rewards() -> None:
    prompt = prompts("prompts", 1)[0]
    assert len(set(rules.RULES.score(prompt, freeze._answers(prompt)))) > 1
