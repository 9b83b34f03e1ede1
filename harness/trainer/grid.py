"""A gate over a grid: one first iteration for each setting of a trainer, on validation prompts.

Each setting is run over seeds that no table uses, and its gain in mean oracle score over the base
policy, answering with the same seeds, is measured. No run of eva is looked at. Which setting
follows from the gains is the rule of whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.catalogue.profile import Profile
from harness.catalogue.recipe import Recipe
from harness.store import Store
from harness.trainer.assets import assets_of
from harness.trainer.gates import (
    OnEvent,
    compute,
    gain_over,
    validation_profile,
    validation_score,
)
from harness.trainer.plan import Planner, Run

SEEDS = (100, 101, 102)
"""Seeds of the gates; no table's defaults are among them."""

Changes = Mapping[str, float]
"""Hyperparameters by name, as the profile has them under the algorithm."""


@dataclass(frozen=True)
class Point:
    """One setting: what it changes, its mean gain in oracle score, and that in standard errors."""

    algorithm: str
    changes: Changes
    gain: float
    standard_errors: float

    def as_json(self) -> dict[str, Any]:
        """Return the measurements, rounded for the card."""
        found = {"gain": self.gain, "standard_errors": self.standard_errors}
        rounded = {name: round(value, 6) for name, value in found.items()}
        return {"algorithm": self.algorithm, **self.changes, **rounded}

    def __str__(self) -> str:
        return (
            f"{named(self.algorithm, self.changes)}: gain {self.gain:+.4f} "
            f"({self.standard_errors:.1f} standard errors)"
        )


def with_training(profile: Profile, algorithm: str, changes: Changes) -> Profile:
    """Return a profile with some hyperparameters of an algorithm changed."""
    hyper = profile.training.of(algorithm).model_copy(update=dict(changes))
    training = profile.training.model_copy(update={algorithm: hyper})
    return profile.model_copy(update={"training": training})


def measure_grid(
    recipes: Mapping[str, Recipe],
    grids: Mapping[str, Sequence[Changes]],
    store: Store,
    jobs: int,
    on_event: OnEvent,
) -> list[Point]:
    """Run every setting of every algorithm's grid and measure it.

    Args:
        recipes: what each algorithm is run on.
        grids: the settings of each algorithm.
        store: where the stages go.
        jobs: worker processes.
        on_event: told of every stage.

    Raises:
        HarnessError: a stage failed.
    """
    profile = validation_profile()
    planner = Planner(profile, assets_of(profile))
    bases = [planner.run("base", Recipe(), seed) for seed in SEEDS]
    tried: list[tuple[str, Changes, list[Run]]] = []
    for algorithm, grid in grids.items():
        for changes in grid:
            other = Planner(with_training(profile, algorithm, changes), planner.assets)
            name, recipe = named(algorithm, changes), recipes[algorithm]
            tried.append((algorithm, changes, [other.run(name, recipe, s) for s in SEEDS]))
    runs = [*bases, *(run for _, _, several in tried for run in several)]
    compute([stage for run in runs for stage in run.targets], store, jobs, on_event)
    before = [validation_score(store, base) for base in bases]
    points = []
    for algorithm, changes, several in tried:
        points.append(Point(algorithm, changes, *gain_over(before, several, store)))
    return points


def unlike(algorithm: str, best: Point) -> list[str]:
    """Return, as a sentence, where the profile trains otherwise than with a gate's best setting."""
    hyper = validation_profile().training.of(algorithm)
    used = {name: getattr(hyper, name) for name in best.changes}
    if used == dict(best.changes):
        return []
    return [
        f"`micro` trains with {named(algorithm, used)}, and the gate takes "
        f"{named(best.algorithm, best.changes)}"
    ]


def named(algorithm: str, changes: Changes) -> str:
    """Return an algorithm and what is changed of it in a line."""
    return f"{algorithm} {' '.join(f'{name} {value:g}' for name, value in changes.items())}"


def as_good_as_the_best(points: Sequence[Point]) -> list[Point]:
    """Return the settings that gain within one standard error of the best one's gain."""
    best = max(points, key=lambda point: point.gain)
    least = best.gain - (best.gain / best.standard_errors if best.standard_errors else 0.0)
    return [point for point in points if point.gain >= least]
