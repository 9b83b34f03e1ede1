"""Laws of the gate of SPPO, SimPO and ORPO, on numbers worked out by hand."""

from __future__ import annotations

from harness.trainer.acceptance import (
    CONSTANTS,
    GRIDS,
    OFFLINE,
    RECIPES,
    Point,
    chosen,
    grid_failures,
    validation_profile,
)


def points(**best: int) -> list[Point]:
    """Every setting gains 0.01 but the best of each algorithm, given by its place: 0.10."""
    return [
        Point(algorithm, changes, 0.10 if best[algorithm] == place else 0.01, 10.0)
        for algorithm in OFFLINE
        for place, changes in enumerate(GRIDS[algorithm])
    ]


def test_each_algorithm_has_three_learning_rates_with_the_papers_constants_first() -> None:
    assert {algorithm: len(GRIDS[algorithm]) for algorithm in OFFLINE} == {
        "sppo": 6, "simpo": 6, "orpo": 6,
    }  # fmt: skip
    assert GRIDS["simpo"][0] == {"learning_rate": 3e-5, "beta": 10.0, "gamma": 5.0}
    assert [constants[0] for constants in CONSTANTS.values()] == [
        {"beta": 0.001}, {"beta": 10.0, "gamma": 5.0}, {"odds_weight": 0.5},
    ]  # fmt: skip


def test_a_clear_best_is_taken() -> None:
    found = points(sppo=5, simpo=0, orpo=3)
    assert chosen(found, "sppo").changes == {"learning_rate": 3e-4, "beta": 0.1}
    assert chosen(found, "simpo").changes == {
        "learning_rate": 3e-5,
        "beta": 10.0,
        "gamma": 5.0,
    }
    assert chosen(found, "orpo").changes == {"learning_rate": 1e-4, "odds_weight": 0.1}


def test_of_equally_good_settings_the_smallest_rate_with_the_papers_constants_is_taken() -> None:
    """Best 0.10 at 10 standard errors: from 0.09 on settings are as good."""
    gains = [0.05, 0.089, 0.091, 0.095, 0.10, 0.10]
    grid = zip(GRIDS["orpo"], gains, strict=True)
    found = [Point("orpo", changes, gain, 10.0) for changes, gain in grid]
    assert chosen(found, "orpo").changes == {"learning_rate": 1e-4, "odds_weight": 0.5}


def test_the_profile_trains_with_what_its_file_says_the_gate_took() -> None:
    training = validation_profile().training
    taken = {
        algorithm: next(
            place
            for place, changes in enumerate(GRIDS[algorithm])
            if all(getattr(training.of(algorithm), name) == v for name, v in changes.items())
        )
        for algorithm in OFFLINE
    }
    assert grid_failures(points(**taken)) == []
    other = {algorithm: (place + 1) % 6 for algorithm, place in taken.items()}
    assert len(grid_failures(points(**other))) == 3


def test_only_first_iterations_on_human_prompts_are_run() -> None:
    assert {RECIPES[algorithm].chain for algorithm in OFFLINE} == {("human",)}
