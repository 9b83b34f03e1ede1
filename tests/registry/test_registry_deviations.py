"""Deviations: all of them are there, and what they name exists."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.project import project_root
from harness.registry.declared import DEVIATIONS, deviations, value_in
from harness.registry.documents import RegistryError
from harness.registry.profile import Profile


def test_there_are_23_discrepancies_and_17_ambiguities() -> None:
    found = deviations()
    assert (len(found.discrepancies), len(found.ambiguities)) == (23, 17)
    topics = {entry.topic for entry in found.discrepancies}
    assert len(topics | {entry.topic for entry in found.ambiguities}) == 40


def test_every_choice_names_where_it_is_made() -> None:
    found = deviations()
    entries: list[Any] = [*found.discrepancies, *found.ambiguities, *found.departures]
    for entry in entries:
        assert entry.settings or entry.modules, entry.topic


def test_every_setting_has_a_value_in_the_paper_s_own_profile(paper: Profile) -> None:
    found = deviations()
    settings = {s for e in (*found.discrepancies, *found.ambiguities) for s in e.settings}
    kinds = {setting: value_in(paper, setting)[0] for setting in settings}
    assert kinds == {s: "value" if s.startswith("profile.") else "default" for s in settings}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("profile.training.dpo.batch_size", ("value", 16)),
        ("profile.benchmarks.arena_hard.judge", ("value", "oracle")),
        ("profile.benchmarks.no_such.judge", ("absent", None)),
        ("recipe.online.warm_up", ("default", None)),
        ("recipe.creator.fraction", ("default", 0.25)),
    ],
)
def test_a_setting_is_looked_up(setting: str, expected: tuple[str, object], micro: Profile) -> None:
    assert value_in(micro, setting) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": ["recipe.creator.metrics"]}, "did you mean `recipe.creator.metric`?"),
        ({"settings": ["training.dpo.beta"]}, "did you mean `profile.training.dpo.beta`?"),
        (
            {"settings": ["profile.training.dpo.batch"]},
            "there is no setting `profile.training.dpo.batch`",
        ),
        ({"modules": ["harness/no_such.py"]}, "there is no file `harness/no_such.py`"),
        ({"chioce": "x"}, "did you mean `choice`?"),
    ],
)
def test_a_name_that_points_nowhere_is_an_error(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    data = yaml.safe_load((project_root() / DEVIATIONS).read_text(encoding="utf-8"))
    data["discrepancies"][0] |= change
    path = tmp_path / "deviations.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    with pytest.raises(RegistryError) as caught:
        deviations(path)
    assert message in str(caught.value)
