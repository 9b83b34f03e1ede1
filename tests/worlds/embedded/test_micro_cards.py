"""Laws of what the cards say: accuracies by depth and rank, best of n, competence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.worlds.embedded import build as cards
from harness.worlds.embedded import reward
from harness.worlds.embedded.build import accuracies, as_lines, measure
from harness.worlds.embedded.language import parse, write_list
from harness.worlds.embedded.reward import NoisyPair, RewardConfig
from harness.worlds.embedded.texts import RANKED

NOWHERE = Path("no model is read")
CONFIG = RewardConfig()


def right(prompt: str) -> str:
    """Return the right answer."""
    task = parse(prompt)
    assert task is not None
    return write_list(task.answer())


# Accuracy.


def pair(*ranks: int) -> NoisyPair:
    """Return a pair whose prompt uses the names of some ranks."""
    return NoisyPair(f"{' , then '.join(RANKED[rank - 1] for rank in ranks)} : 1 2", "1", "2")


PAIRS = [
    (pair(1), True),
    (pair(2), True),
    (pair(3, 5), True),
    (pair(100), False),
    (pair(1, 201), True),
    (pair(120, 110), False),
    (pair(240), True),
    (pair(230, 240), False),
    (pair(240, 240, 120, 220), False),
]
"""Mean ranks 1, 2, 4 | 100, 101, 115 | 240, 235, 205, and whether the model is right."""


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the held-out pairs be those above, ordered as they say."""
    monkeypatch.setattr(reward, "held_out_pairs", lambda config: [p for p, _ in PAIRS])
    monkeypatch.setattr(reward, "in_order", lambda folder, config, pairs: [ok for _, ok in PAIRS])


@pytest.mark.usefixtures("graded")
def test_accuracies_are_those_counted_by_hand() -> None:
    """Five of nine right, se sqrt(5/9 x 4/9 / 9) = 0.1656; no pair has three operations."""
    found = accuracies(NOWHERE, CONFIG)
    assert found["all"] == {"all": {"pairs": 9, "accuracy": 0.5556, "standard_error": 0.1656}}
    shares = {
        kind: {label: (row["pairs"], row["accuracy"]) for label, row in found[kind].items()}
        for kind in ("depth", "rank")
    }
    assert shares == {
        "depth": {"1": (4, 0.75), "2": (4, 0.5), "4": (1, 0.0)},
        "rank": {"common": (3, 1.0), "middle": (3, 0.3333), "rare": (3, 0.3333)},
    }


# Competence.


def test_a_policy_that_is_right_every_third_time_has_the_competence_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two right answers of six, four that are no lists: 0.333, and the best of six is right."""
    monkeypatch.setattr(cards, "PROMPTS", 3)
    asked: list[str] = []

    def answers(policy: Path, prompts: Sequence[str], seed: int) -> list[list[str]]:
        asked.extend(prompts)
        return [[right(p), "no", "no", right(p), "no", "no"] for p in prompts]

    monkeypatch.setattr(cards, "_answers", answers)
    found = measure(NOWHERE, seed=0)
    eighths = [f"{first} to {first + 29}" for first in range(1, 240, 30)]
    assert list(found["ranks"]) == eighths
    assert list(found["depth"]) == ["1", "2", "3", "4"]
    for row in (*found["ranks"].values(), *found["depth"].values()):
        assert row == {"exact": 0.333, "score": 0.333, "best_of_6": 1.0}
    names = [task.names for prompt in asked if (task := parse(prompt)) is not None]
    assert [len(some) for some in names] == [1] * 24 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    for at, (name,) in enumerate(names[:24]):
        assert name in RANKED[30 * (at // 3) : 30 * (at // 3) + 30]


def test_figures_become_a_table_of_their_own_columns() -> None:
    tables: Any = {
        "depth": {"1": {"best_of_6": 0.5, "exact": 1.0}, "2": {"best_of_6": 1, "exact": 0}}
    }
    assert as_lines(tables) == (
        "| depth | best of 6 | exact |\n|---|---:|---:|\n| 1 | 0.5 | 1.0 |\n| 2 | 1 | 0 |\n"
    )
