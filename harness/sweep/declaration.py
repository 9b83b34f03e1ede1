"""A sweep as it is declared: search space, objectives, sampler, pruner and trials.

A sweep starts from a base recipe and names the settings it varies by their paths,
`recipe.online.ratio_evol` or `profile.training.dpo.beta`. Everything that would only show while
it runs is checked here or in `harness.sweep.space`, before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from harness.registry.declared import own_file
from harness.registry.documents import (
    Document,
    Problem,
    RegistryError,
    at_least_one,
    explain,
    find,
    nearest,
    read_declared,
    read_files,
    yaml_files,
)
from harness.registry.overrides import paths_of
from harness.registry.recipe import Recipe
from harness.registry.schema import Id
from harness.strict import Strict

Scalar = bool | int | float | str | None
"""The value of one setting."""

Point = Mapping[str, Scalar]
"""A value for each setting of a search space."""

COSTS = ("rollouts", "tokens", "gradient_steps", "creator_calls")
"""What an online run counts, over all of it."""

Measure = Literal[
    "val_wr",
    "val_len",
    "val_score",
    "val_exact",
    "rollouts",
    "tokens",
    "gradient_steps",
    "creator_calls",
]
"""What an objective can be: a score of the validation answers (win rate, length, and the oracle's:
mean partial credit and share of wholly right answers), or a count of an online run."""

SamplerKind = Literal["tpe", "random", "grid"]
"""What can suggest points."""

MOST_VALUES = 10_000
"""Values of one setting that are counted one by one."""

FOLDER = Path(__file__).resolve().parent / "declarations"
"""The sweeps that ship with the package."""


class Parameter(Strict):
    """The values a setting may take."""

    kind: Literal["categorical", "int", "float"]
    """One of some choices, a whole number, or a number."""
    choices: tuple[Scalar, ...] = ()
    """The choices of a categorical setting."""
    low: float | None = None
    """Least value of a number."""
    high: float | None = None
    """Greatest value of a number."""
    step: float | None = Field(default=None, gt=0)
    """Distance between values, from `low`; null: 1 for whole numbers, none for others."""
    log: bool = False
    """Whether a number is searched by its logarithm."""

    @model_validator(mode="after")
    def _consistent(self) -> Parameter:
        if self.kind == "categorical":
            if len(self.choices) < 2 or len(set(map(repr, self.choices))) < len(self.choices):
                raise ValueError("a categorical setting needs two or more different `choices`")
            if (self.low, self.high, self.step, self.log) != (None, None, None, False):
                raise ValueError("`low`, `high`, `step` and `log` belong to numbers")
            return self
        if self.choices:
            raise ValueError("`choices` belong to a categorical setting")
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("a number needs `low` and `high`, `low` being less")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("`log` needs a `low` above 0 and takes no `step`")
        numbers = (self.low, self.high, self.step or 1.0)
        if self.kind == "int" and not all(number == int(number) for number in numbers):
            raise ValueError("a whole number needs whole `low`, `high` and `step`")
        if self.is_finite and (self.high - self.low) / (self.step or 1.0) >= MOST_VALUES:
            raise ValueError(
                f"`low` to `high` are more than {MOST_VALUES} values; give a greater `step`"
            )
        return self

    @property
    def is_finite(self) -> bool:
        """Whether the values can be counted."""
        return self.kind != "float" or self.step is not None

    def values(self) -> tuple[Scalar, ...]:
        """Return all values of a finite parameter, of another its ends and some in between."""
        if self.kind == "categorical":
            return self.choices
        assert self.low is not None
        assert self.high is not None
        if self.kind == "int":
            return tuple(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            # Odd shares, so that a value that must be a whole number of something is found out.
            between = (self.low + (self.high - self.low) * share for share in (0.237, 0.5, 0.789))
            return (self.low, *between, self.high)
        count = math.floor((self.high - self.low) / self.step + 1e-9)
        return tuple(round(self.low + i * self.step, 12) for i in range(count + 1))


class Objective(Strict):
    """What is measured of a trial, and which end is better."""

    name: Id
    """Name in reports and in MLflow."""
    measure: Measure
    """A score of the answers to the validation prompts, or a count of an online run."""
    direction: Literal["maximize", "minimize"]
    """The better end."""
    after: int | None = Field(default=None, ge=1)
    """Measured after so many iterations (offline) or multiples of x (online); null: at the end."""
    unit: str = ""
    """Unit, for people."""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


class Sampler(Strict):
    """What suggests points."""

    kind: SamplerKind
    """Optuna's tree-structured Parzen estimator, independent draws, or every point once."""
    seed: int = Field(ge=0, lt=2**31)
    """Seed of all suggestions."""
    startup_trials: int = Field(default=10, ge=1)
    """Trials drawn at random before the first that is modelled."""


class Pruner(Strict):
    kind: Literal["median"]
    """It is worse than the median of the others at the same step."""
    startup_trials: int = Field(default=5, ge=1)
    """Complete trials before the first that may be pruned."""


class Result(Strict):
    """How the winner is measured."""

    seeds: tuple[int, ...] = Field(min_length=1)
    """Fresh seeds; the winner and the base recipe are run with each on all benchmarks."""


class Sweep(Strict):
    """A search over settings."""

    name: Id
    """Name of the sweep, and of its file."""
    question: str
    """What it is to answer."""
    recipe: dict[str, Any]
    """Settings of the base recipe, as a row of a table states them."""
    space: dict[str, Parameter] = Field(min_length=1)
    """The settings that vary, by path: `recipe....` or `profile....`."""
    objectives: tuple[Objective, ...] = Field(min_length=1)
    """What is measured; the first decides on the winner, the others break ties."""
    seeds: tuple[int, ...] = Field(min_length=1)
    """Seeds of each trial, over which objectives are averaged; a pruner looks after each."""
    sampler: Sampler
    """What suggests points."""
    pruner: Pruner | None = None
    """What ends a trial early; null: nothing."""
    enqueue: tuple[dict[str, Scalar], ...] = ()
    """Points that are tried first, such as the paper's own; each names every setting."""
    trials: int = Field(ge=1)
    """Trials of the whole study, however many commands they take."""
    result: Result
    """How the winner is measured."""

    @model_validator(mode="after")
    def _consistent(self) -> Sweep:
        if self.pruner and len(self.objectives) > 1:
            raise ValueError(
                "a `pruner` needs one objective: with several no trial is worse on the way; "
                "remove the pruner or all objectives but one"
            )
        if self.pruner and len(self.seeds) < 2:
            raise ValueError(
                "a `pruner` looks after each seed and there is one; give two or more `seeds`"
            )
        endless = [name for name, p in self.space.items() if not p.is_finite]
        if self.sampler.kind == "grid" and endless:
            raise ValueError(f"a grid has no points for `{endless[0]}`; give it a `step`")
        for point in self.enqueue:
            self._check_point(point)
        if len({objective.name for objective in self.objectives}) < len(self.objectives):
            raise ValueError("two `objectives` have one name; rename one")
        for name, seeds in (("seeds", self.seeds), ("result.seeds", self.result.seeds)):
            if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**31 for seed in seeds):
                raise ValueError(f"`{name}` must be different whole numbers from 0 to 2^31 - 1")
        again = sorted(set(self.seeds) & set(self.result.seeds))
        if again:
            raise ValueError(
                f"seed {again[0]} stands in `seeds` and in `result.seeds`; the winner needs "
                "fresh ones"
            )
        return self

    def _check_point(self, point: Point) -> None:
        """Raise ValueError unless a point that is tried first lies in the space."""
        if point.keys() != self.space.keys():
            strange = sorted(point.keys() ^ self.space.keys())
            raise ValueError(f"a point of `enqueue` names every setting; look at `{strange[0]}`")
        for path, value in point.items():
            parameter = self.space[path]
            if parameter.is_finite:
                inside = value in parameter.values()
            else:
                low, high = parameter.low, parameter.high
                assert low is not None
                assert high is not None
                inside = isinstance(value, int | float) and low <= value <= high
            if not inside:
                raise ValueError(f"`enqueue` has {value} for `{path}`, which its `space` has not")

    @property
    def grid_size(self) -> int | None:
        if not all(parameter.is_finite for parameter in self.space.values()):
            return None
        return math.prod(len(parameter.values()) for parameter in self.space.values())

    def target(self, trials: int | None = None) -> int:
        """Return how many trials the study ends with: those asked for, but a grid's at most."""
        asked = self.trials if trials is None else trials
        if self.sampler.kind == "grid" and self.grid_size is not None:
            return min(asked, self.grid_size)
        return asked


class ListedSweep(Strict):
    """What `harness sweep list --json` says of a sweep."""

    name: str
    question: str
    settings: tuple[str, ...]
    """The settings that vary, by path."""
    objectives: tuple[str, ...]
    """Names of what is measured."""
    sampler: SamplerKind
    trials: int
    """Trials of the whole study."""


def listed(sweep: Sweep) -> ListedSweep:
    return ListedSweep(
        name=sweep.name,
        question=" ".join(sweep.question.split()),
        settings=tuple(sweep.space),
        objectives=tuple(objective.name for objective in sweep.objectives),
        sampler=sweep.sampler.kind,
        trials=sweep.trials,
    )


def load_sweeps(folder: Path | None = None) -> dict[str, Sweep]:
    """Read and check every sweep in a folder, the package's own by default.

    Raises:
        RegistryError: Anything is wrong in any file; it carries every problem found.
    """
    sweeps: dict[str, Sweep] = {}
    problems: list[Problem] = []
    searched = FOLDER if folder is None else folder
    files = at_least_one(yaml_files(searched), [searched], "sweep")
    for document, sweep in read_files(files, Sweep, problems, "a sweep"):
        problems += _wrong(sweep, document)
        sweeps[sweep.name] = sweep
    if problems:
        raise RegistryError(problems)
    return sweeps


def named_sweep(name: str) -> Sweep:
    """Return a sweep by its name, or the one that a file declares.

    Raises:
        RegistryError: Anything is wrong in the file.
        UserError: There is no such sweep, or no such file.
    """
    path = own_file(name)
    if path is None:
        return find("sweep", load_sweeps(), name)
    sweep, document = read_declared(path, Sweep, "a sweep")
    if problems := list(_wrong(sweep, document)):
        raise RegistryError(problems)
    return sweep


def _wrong(sweep: Sweep, document: Document) -> Iterator[Problem]:
    """Yield what is wrong with names that pydantic does not know of."""
    known = [f"recipe.{path}" for path in paths_of(Recipe)]
    for path in sweep.space:
        if path.startswith("profile.") or path in known:
            continue
        text = f"space: there is no setting `{path}`{nearest(path, known)}"
        yield document.problem(("space", path), text)
    try:
        recipe = Recipe.model_validate(sweep.recipe)
    except ValidationError as error:
        yield from explain(error, Recipe, document, [("recipe",)])
        return
    length = len(recipe.chain) if recipe.online is None else recipe.online.size
    for i, objective in enumerate(sweep.objectives):
        if objective.after is not None and objective.after > length:
            text = f"objectives[{i}]: `after` {objective.after} of a training of {length}"
            yield document.problem(("objectives", i), text)
        if objective.measure in COSTS and not recipe.is_online:
            text = f"objectives[{i}]: `{objective.measure}` is counted in online runs only"
            yield document.problem(("objectives", i), text)
