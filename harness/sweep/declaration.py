"""A sweep's declaration: search space, objectives, sampler and trials.

A sweep starts from a base recipe and names the settings that it varies by their paths, such as
`recipe.online.ratio_evol` or `profile.training.dpo.beta`. Anything that would otherwise fail in
the middle of a sweep is checked up front, here or in `harness.sweep.space`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from harness.errors import UserError
from harness.registry.declared import own_file
from harness.registry.documents import (
    Document,
    Problem,
    RegistryError,
    at_least_one,
    find,
    nearest,
    problems_of,
    read_files,
    yaml_files,
)
from harness.registry.objective import COSTS, Scalar, SweepObjective
from harness.registry.overrides import paths_of
from harness.registry.profile import Profile
from harness.registry.recipe import Recipe
from harness.registry.schema import Id
from harness.strict import Strict

SearchPoint = Mapping[str, Scalar]
"""A value for each setting of a search space, by path."""

SEARCHABLE = ("x", "creator", "generation", "selection", "pairs", "training")
"""Parts of a profile that a sweep may vary; not benchmarks, which do the measuring."""

FOLDER = Path(__file__).resolve().parent / "declarations"
"""The sweeps that ship with the package."""


MOST_VALUES = 10_000
"""Most values of a parameter with a step; reports and grids list them all."""


class Choices(Strict):
    choices: tuple[Scalar, ...]

    @model_validator(mode="after")
    def _differ(self) -> Choices:
        if len(set(map(repr, self.choices))) < max(2, len(self.choices)):
            raise ValueError("give two or more different `choices`")
        return self


class Floats(Strict):
    low: float
    high: float
    step: float | None = Field(default=None, gt=0)
    """Distance between values, from `low`; null: continuous."""
    log: bool = False
    """Whether to search on a log scale."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Refuse what Optuna would refuse in the middle of a sweep."""
        if not self.low < self.high:
            raise ValueError("`low` must be less than `high`")
        stepped = self.step != type(self).model_fields["step"].default
        if self.step is not None and (self.high - self.low) / self.step >= MOST_VALUES:
            raise ValueError(f"there are over {MOST_VALUES} values; give a larger `step`")
        if self.log and (self.low <= 0 or stepped):
            raise ValueError("`log` needs a `low` above 0 and takes no `step`")
        return self


class Integers(Floats):
    low: int
    high: int
    step: int = Field(default=1, gt=0)


class Parameter(Strict):
    """One of Optuna's `suggest_` methods, with its arguments."""

    suggest_categorical: Choices | None = None
    suggest_int: Integers | None = None
    suggest_float: Floats | None = None

    @model_validator(mode="after")
    def _one(self) -> Parameter:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("give one of `suggest_categorical`, `suggest_int` and `suggest_float`")
        return self

    @property
    def call(self) -> tuple[str, dict[str, Any]]:
        """The method, and its arguments."""
        written = self.model_dump(exclude_unset=True, exclude_none=True)
        ((method, arguments),) = written.items()
        return method, arguments

    @property
    def is_finite(self) -> bool:
        """Whether there are finitely many values."""
        return self.suggest_float is None or self.suggest_float.step is not None

    def values(self) -> tuple[Scalar, ...]:
        """Return all values of a finite parameter, or the bounds and some points in between."""
        if self.suggest_categorical is not None:
            return self.suggest_categorical.choices
        span = self.suggest_float or self.suggest_int
        assert span is not None
        low, high, step = span.low, span.high, span.step
        if step is None:
            # Odd fractions, to catch settings that must come out as whole numbers.
            between = (low + (high - low) * share for share in (0.237, 0.5, 0.789))
            return (low, *between, high)
        count = math.floor((high - low) / step + 1e-9)
        return tuple(round(low + i * step, 12) for i in range(count + 1))

    def holds(self, value: Scalar) -> bool:
        span = self.suggest_float
        if span is None or span.step is not None:
            return value in self.values()
        return isinstance(value, int | float) and span.low <= value <= span.high


class Sampler(Strict):
    kind: Literal["tpe", "random", "grid"]
    """Optuna's tree-structured Parzen estimator, independent draws, or every point once."""
    seed: int = Field(ge=0, lt=2**31)
    n_startup_trials: int = Field(default=10, ge=1)
    """Random trials before the first that TPE models."""


class Result(Strict):
    seeds: tuple[int, ...] = Field(min_length=1)
    """Fresh seeds, with which the winner and the base recipe are run on all benchmarks."""


class Sweep(Strict):
    name: Id
    question: str
    recipe: dict[str, Any]
    """Settings of the base recipe, as in a table row."""
    space: dict[str, Parameter] = Field(min_length=1)
    """The settings that vary, by path: `recipe....` or `profile....`."""
    objectives: tuple[SweepObjective, ...] = Field(min_length=1)
    """What is measured; the first decides the winner, the others break ties."""
    seeds: tuple[int, ...] = Field(min_length=1)
    """Seeds of each trial; objectives are means over them."""
    sampler: Sampler
    enqueue: tuple[dict[str, Scalar], ...] = ()
    """Points to try first, such as the paper's own; each names every setting."""
    trials: int = Field(ge=1)
    """Trials of the whole study, across all commands."""
    result: Result

    @model_validator(mode="after")
    def _consistent(self) -> Sweep:
        endless = [name for name, p in self.space.items() if not p.is_finite]
        again = sorted(set(self.seeds) & set(self.result.seeds))
        if self.sampler.kind == "grid" and endless:
            raise ValueError(f"a grid has no points for `{', '.join(endless)}`; give it a `step`")
        if len({objective.name for objective in self.objectives}) < len(self.objectives):
            raise ValueError("two `objectives` have one name; rename one")
        if again:
            raise ValueError(
                f"seed {', '.join(map(str, again))} is in both `seeds` and `result.seeds`; "
                "the winner needs fresh ones"
            )
        for seeds in (self.seeds, self.result.seeds):
            if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**31 for seed in seeds):
                raise ValueError("seeds must be different whole numbers from 0 to 2^31 - 1")
        for point in self.enqueue:
            if point.keys() != self.space.keys():
                raise ValueError("a point of `enqueue` names every setting of `space`, no other")
            for path, value in point.items():
                if not self.space[path].holds(value):
                    raise ValueError(
                        f"`enqueue` has {value} for `{path}`, which is not in its space"
                    )
        return self

    @property
    def grid_size(self) -> int | None:
        if not all(parameter.is_finite for parameter in self.space.values()):
            return None
        return math.prod(len(parameter.values()) for parameter in self.space.values())

    def target(self, trials: int | None = None) -> int:
        """Return the number of trials at which the study ends, capped at a grid's size."""
        asked = self.trials if trials is None else trials
        return min(asked, self.grid_size or asked) if self.sampler.kind == "grid" else asked


def load_sweeps(folder: Path | None = None) -> dict[str, Sweep]:
    """Read and check every sweep in a folder, by default the package's own."""
    searched = FOLDER if folder is None else folder
    return _read_sweeps(at_least_one(yaml_files(searched), [searched], "sweep"))


def _read_sweeps(files: Iterable[Path]) -> dict[str, Sweep]:
    sweeps: dict[str, Sweep] = {}
    problems: list[Problem] = []
    for document, sweep in read_files(files, Sweep, problems, "a sweep"):
        problems += _wrong(sweep, document)
        sweeps[sweep.name] = sweep
    if problems:
        raise RegistryError(problems)
    return sweeps


def named_sweep(name: str) -> Sweep:
    """Return a sweep by name, or the one that a file declares."""
    path = own_file(name)
    if path is None:
        return find("sweep", load_sweeps(), name)
    (sweep,) = _read_sweeps([path]).values()
    if load_sweeps().get(sweep.name, sweep) != sweep:
        raise UserError(
            f"`{name}` declares another sweep `{sweep.name}` than the shipped one, whose published "
            "results would be taken for its own; give yours a name of its own"
        )
    return sweep


def too_late(objective: SweepObjective, recipe: Recipe) -> str | None:
    """Return what is wrong with an objective after more training than a recipe has, or None."""
    length = len(recipe.chain) if recipe.online is None else recipe.online.size
    if objective.after is None or objective.after <= length:
        return None
    return f"`after` {objective.after} of a training of {length}"


def _wrong(sweep: Sweep, document: Document) -> Iterator[Problem]:
    """Yield the problems that pydantic's validation cannot see."""
    known = [f"recipe.{path}" for path in paths_of(Recipe)]
    known += [f"profile.{it}" for it in paths_of(Profile) if it.partition(".")[0] in SEARCHABLE]
    for path in sweep.space:
        if path not in known:
            text = f"space: a sweep cannot vary `{path}`{nearest(path, known)}"
            yield document.problem(("space", path), text)
    try:
        recipe = Recipe.model_validate(sweep.recipe)
    except ValidationError as error:
        yield from problems_of(error, Recipe, document, [("recipe",)])
        return
    for i, objective in enumerate(sweep.objectives):
        place = ("objectives", i)
        if late := too_late(objective, recipe):
            yield document.wrong(place, late)
        if objective.measure in COSTS and not recipe.is_online:
            yield document.wrong(place, f"`{objective.measure}` is counted in online runs only")
