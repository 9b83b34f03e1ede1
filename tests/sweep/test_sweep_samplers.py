"""Samplers by name, limits, and what of a declaration makes another study."""

from __future__ import annotations

import importlib.util
from typing import Any

import optuna
import pytest
from optuna.samplers import GPSampler, NSGAIISampler
from toy_sweep import SHARE, toy

from harness.errors import UserError
from harness.sweep.declaration import Sampler
from harness.sweep.results import winner_of
from harness.sweep.study import check_sampler, sampler_for

NUMBERS = {
    SHARE: {"kind": "float", "low": 0.2, "high": 0.8},
    "recipe.creator.fraction": {"kind": "float", "low": 0.25, "high": 0.4},
}


@pytest.mark.parametrize(("kind", "expected"), [("gp", GPSampler), ("nsga2", NSGAIISampler)])
def test_a_sampler_is_chosen_by_its_name(kind: Any, expected: type) -> None:
    assert isinstance(sampler_for(Sampler(kind=kind, seed=0), 3), expected)


def test_a_sampler_whose_package_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy(space=NUMBERS, sampler={"kind": "cmaes", "seed": 0})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"the sampler `cmaes` needs .*eva-harness\[sweeps\]"):
        check_sampler(Sampler(kind="cmaes", seed=0))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sampler": {"kind": "cmaes", "seed": 0}}, "all numbers"),
        ({"enqueue": [{SHARE: 0.4}]}, "names every setting"),
        ({"enqueue": [{SHARE: 0.5, "recipe.creator.metric": "var"}]}, "which its `space` has not"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        toy(**changes)


def test_the_winner_keeps_the_limits() -> None:
    """The better of two trials spends 5 more than it may."""
    study = optuna.create_study(direction="maximize")
    for value, over in ((9.0, 5.0), (8.0, -1.0)):
        trial = study.ask()
        trial.set_constraint("rollouts", over)
        study.tell(trial, value)
    assert winner_of(toy(), study.get_trials()) == 1


def test_new_settings_make_no_new_study_where_they_are_not_used() -> None:
    """Published studies were named before these settings were."""
    sweep = toy(pruner={"kind": "median"})
    assert sweep.pruner is not None
    assert sweep.pruner.model_dump(mode="json") == {"kind": "median", "startup_trials": 5}
