"""The gate of SPPO, SimPO and ORPO: learning rate and constants, on the first iteration.

The paper's constants belong to completions of hundreds of tokens; those of the embedded world have
some eight. SPPO's targets are (P - 1/2) / beta nats, which only a long completion can move by, and
the grid therefore tries the paper's constants and milder ones. Of the settings that gain within one
standard error of the best, the most careful one is taken: the smallest learning rate, then the
first constants, which are the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.catalogue.recipe import Recipe
from harness.store import Store
from harness.trainer.gates import OnEvent
from harness.trainer.grid import Changes, Point, as_good_as_the_best, measure_grid, unlike

LEARNING_RATES = (3e-5, 1e-4, 3e-4)

CONSTANTS: Mapping[str, tuple[Changes, ...]] = {
    "sppo": ({"beta": 0.001}, {"beta": 0.1}),
    "simpo": ({"beta": 10.0, "gamma": 5.0}, {"beta": 2.0, "gamma": 1.0}),
    "orpo": ({"odds_weight": 0.5}, {"odds_weight": 0.1}),
}
"""The paper's constants first."""

GRIDS: Mapping[str, tuple[Changes, ...]] = {
    algorithm: tuple({"learning_rate": lr, **more} for lr in LEARNING_RATES for more in constants)
    for algorithm, constants in CONSTANTS.items()
}

RECIPES: Mapping[str, Recipe] = {
    "sppo": Recipe(algorithm="sppo", chain=("human",), reward_model="pairwise"),
    "simpo": Recipe(algorithm="simpo", chain=("human",)),
    "orpo": Recipe(algorithm="orpo", chain=("human",)),
}
"""What the gate runs: the first rows of table 2."""


def measure_offline(store: Store, jobs: int, on_event: OnEvent) -> list[Point]:
    """Run the first iteration of each algorithm over its grid and measure it.

    Raises:
        HarnessError: a stage failed.
    """
    return measure_grid(RECIPES, GRIDS, store, jobs, on_event)


def chosen(points: Sequence[Point], algorithm: str) -> Point:
    """Return the most careful setting of an algorithm that gains as much as its best."""
    near = as_good_as_the_best([point for point in points if point.algorithm == algorithm])
    order = list(GRIDS[algorithm])
    return min(near, key=lambda point: order.index(point.changes))


def failures(points: Sequence[Point]) -> list[str]:
    """Return where the profile's settings do not follow from the gate, each as a sentence."""
    return [line for name in GRIDS for line in unlike(name, chosen(points, name))]
