"""Laws of the freeze: what decides a number of eva is what was written down, part by part."""

import json
from pathlib import Path

import pytest

from harness.registry.profile import Profile
from harness.worlds import freeze
from harness.worlds.embedded import creator, files, judge
from harness.worlds.freeze import FROZEN, Freeze, embedded_parts, freeze_of, freeze_world

pytestmark = pytest.mark.usefixtures("shipped_world")


def frozen() -> Freeze:
    text = (files.folder() / FROZEN).read_text(encoding="utf-8")
    return Freeze(**json.loads(text))


def test_the_shipped_world_is_as_it_was_frozen(micro: Profile) -> None:
    assert frozen().changed(embedded_parts(micro)) == []


def test_the_parts_are_files_creator_oracle_judges_and_what_the_profile_says_of_training() -> None:
    assert set(frozen().parts) == {
        *(f"file {name}" for name in files.ASSETS),
        *(f"creator {method}" for method in creator.METHODS),
        *(f"reach {reach}" for reach in ("parent", "topic", "people", "even")),
        *(f"oracle {choice}" for choice in ("best", "worst")),
        *(f"judge {name}" for name in judge.JUDGES),
        *(f"profile {name}" for name in ("x", "generation", "pairs", "selection", "training")),
        *(f"method {name}" for name in ("values", "choices", "pairs", "mix")),
    }


def test_another_rule_of_the_method_is_a_changed_part(
    micro: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.worlds.freeze.best_against_worst", lambda rewards: [rewards[0]])
    assert frozen().changed(embedded_parts(micro)) == ["method pairs"]


def test_another_hyperparameter_is_a_changed_part(micro: Profile) -> None:
    dpo = micro.training.dpo
    assert dpo is not None
    training = micro.training.model_copy(
        update={"dpo": dpo.model_copy(update={"learning_rate": 2 * dpo.learning_rate})}
    )
    assert frozen().changed(embedded_parts(micro.model_copy(update={"training": training}))) == [
        "profile training"
    ]
    assert frozen().changed(embedded_parts(micro.model_copy(update={"x": 300}))) == ["profile x"]


def test_another_file_is_a_changed_part(micro: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    card = files.card()
    assets = card.assets | {"theta0": card.assets["theta0"] | {"sha256": "0" * 64}}
    other = files.Card(card.version, assets, card.notes)
    monkeypatch.setattr(files, "card", lambda: other)
    assert frozen().changed(embedded_parts(micro)) == ["file theta0"]


def test_freezing_writes_what_is_read_again(
    micro: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    assert freeze_of(micro) is None
    monkeypatch.setattr(freeze, "embedded_parts", lambda _profile: {"profile x": "1"})
    made = freeze_world(micro)
    assert freeze_of(micro) == (made, {"profile x": "1"})
    assert json.loads((tmp_path / FROZEN).read_text("utf-8"))["parts"] == {"profile x": "1"}
