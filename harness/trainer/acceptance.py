"""Acceptance criteria of the embedded world, measured on validation prompts before any eva run.

They look at θ0 and at first iterations only, so that nothing about the world, its sizes or its
hyperparameters can be chosen by how the paper's comparisons come out.

*The world.*

1. the learned reward model's best of six recovers at least 40% of the gain that the oracle's best
   of six brings over the mean answer;
2. one iteration of DPO on the learned reward beats θ0 by at least 3 standard errors over 7 seeds,
   both answering anew for each seed, so that the sampling noise of both is in the error;
3. the share of training prompts whose six rewards are all equal lies between 10% and 60%.

*Its trainers*, over small grids. Each setting of a trainer is run over seeds that no table uses,
and its gain in mean oracle score over the base policy, answering with the same seeds, is measured.
Of the settings that gain within one standard error of the best, the most careful one is taken.

- SPPO, SimPO and ORPO (offline): the smallest learning rate, then the first constants, which are
  the paper's. Those belong to completions of hundreds of tokens; those of the embedded world have
  some eight. SPPO's targets are (P - 1/2) / beta nats, which only a long completion can move by,
  and the grid therefore tries the paper's constants and milder ones.
- RLOO (online): the largest KL coefficient, then the smallest learning rate, of RLOO on x human
  prompts.

*Over-optimisation.* A learned reward can be pushed beyond what it knows. One run shows it on
purpose: RLOO without a KL penalty at a large learning rate on all human prompts. At each x of
prompts the policy answers the validation prompts six times, and both the reward model and the
oracle score the answers: the first goes on rising where the second falls.

Source: paper appendix A names neither number of RLOO's; Gao et al. 2023 on over-optimisation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.errors import HarnessError
from harness.registry.profile import Profile, find_profile, load_profiles
from harness.registry.recipe import Online, Recipe
from harness.runtime import Json, LocalEngine, Plan, Stage, Store
from harness.runtime.events import Event
from harness.trainer.plan import Planner, Run
from harness.trainer.steps import FUNCTIONS
from harness.worlds.embedded.language import score as oracle_score
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_prompts

Floats = NDArray[np.float64]
OnEvent = Callable[[Event], None]

RECOVERED_AT_LEAST = 0.40
STANDARD_ERRORS_AT_LEAST = 3.0
NO_SPREAD_WITHIN = (0.10, 0.60)
SEEDS = tuple(range(7))


@dataclass(frozen=True)
class Acceptance:
    """What was measured.

    Attributes:
        mean_answer: θ0's mean oracle score over six answers to validation prompts.
        best_by_oracle: mean oracle score of the oracle's best of six.
        best_by_reward: mean oracle score of the reward model's best of six.
        recovered: share of the oracle's best-of-six gain that the reward model's best recovers.
        dpo_gain: mean gain of one DPO iteration in oracle score on validation, over the seeds.
        dpo_standard_errors: that gain in standard errors over seeds.
        no_spread: share of training prompts whose six rewards are all equal, over the seeds.
    """

    mean_answer: float
    best_by_oracle: float
    best_by_reward: float
    recovered: float
    dpo_gain: float
    dpo_standard_errors: float
    no_spread: float

    def failures(self) -> list[str]:
        """Return the criteria that are not met, each as a sentence."""
        found = []
        if not self.recovered >= RECOVERED_AT_LEAST:
            found.append(f"the reward model recovers {self.recovered:.2f} of the best-of-6 gain")
        if not self.dpo_standard_errors >= STANDARD_ERRORS_AT_LEAST:
            found.append(f"DPO gains {self.dpo_standard_errors:.1f} standard errors over θ0")
        if not NO_SPREAD_WITHIN[0] <= self.no_spread <= NO_SPREAD_WITHIN[1]:
            found.append(f"{self.no_spread:.0%} of the prompts have no reward spread")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the measurements, rounded for the card."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def best_of_six(scores: Floats, rewards: Floats) -> tuple[float, float, float]:
    """Return the mean oracle score of all answers, the oracle's best and the reward's best.

    Oracle scores and rewards are P x N, of the same answers.
    """
    chosen = scores[np.arange(len(scores)), rewards.argmax(axis=1)]
    return float(scores.mean()), float(scores.max(axis=1).mean()), float(chosen.mean())


def share_recovered(mean: float, by_oracle: float, by_reward: float) -> float:
    """Return the share of the oracle's gain over the mean that the reward's choice recovers.

    It is 0 where the oracle gains nothing, because then there is nothing to recover.
    """
    possible = by_oracle - mean
    return (by_reward - mean) / possible if possible > 0 else 0.0


def in_standard_errors(gains: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the gains over seeds, and that mean in standard errors.

    Gains that are all equal have no standard error; then the second number is 0 for a gain of 0
    and infinite otherwise.
    """
    values = np.asarray(gains, dtype=np.float64)
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    if error == 0.0:
        return mean, 0.0 if mean == 0.0 else math.copysign(math.inf, mean)
    return mean, mean / error


def measure(store: Store, jobs: int, on_event: OnEvent) -> Acceptance:
    """Run what the criteria look at, on the validation prompts, and measure them.

    Raises:
        HarnessError: a stage failed.
    """
    planner = Planner(world_of(validation_profile()))
    bases = [planner.run("base", Recipe(), seed) for seed in SEEDS]
    recipe = Recipe(algorithm="dpo", chain=("human",))
    runs = [planner.run("dpo-h1", recipe, seed) for seed in SEEDS]
    sampled = _six_answers(planner, [("validation", None)])
    targets = [*sampled[0], *(stage for run in (*bases, *runs) for stage in run.targets)]
    compute(targets, store, jobs, on_event)
    scores, rewards = _scored(store, *sampled[0])
    n = planner.profile.generation.n
    mean, by_oracle, by_reward = best_of_six(scores.reshape(-1, n), rewards.reshape(-1, n))
    gain, errors = gain_over([validation_score(store, base) for base in bases], runs, store)
    return Acceptance(
        mean_answer=mean,
        best_by_oracle=by_oracle,
        best_by_reward=by_reward,
        recovered=share_recovered(mean, by_oracle, by_reward),
        dpo_gain=gain,
        dpo_standard_errors=errors,
        no_spread=float(np.mean([_no_spread(store, run) for run in runs])),
    )


def compute(targets: Sequence[Stage], store: Store, jobs: int, on_event: OnEvent) -> None:
    """Compute the stages that acceptance criteria look at.

    Raises:
        HarnessError: a stage failed.
    """
    logs = store.root.parent / "logs"
    engine = LocalEngine(store, FUNCTIONS, logs, jobs=jobs, on_event=on_event)
    outcome = engine.run(Plan(targets))
    if not outcome.ok:
        raise HarnessError(f"the acceptance criteria could not be measured: {dict(outcome.failed)}")


def validation_profile() -> Profile:
    """Return the `micro` profile with the validation prompts as its only benchmark."""
    micro = find_profile(load_profiles(), "micro")
    hard = micro.benchmarks["arena_hard"].model_copy(update={"columns": ()})
    return micro.model_copy(update={"benchmarks": {"validation": hard}})


def validation_score(store: Store, run: Run) -> float:
    """Return the mean oracle score of a run's answers to the validation prompts."""
    table = pq.read_table(store.open(run.judged["validation"].fingerprint) / "judgments.parquet")
    return float(np.mean(table.column("oracle").to_numpy()))


def gain_over(before: Sequence[float], runs: Sequence[Run], store: Store) -> tuple[float, float]:
    """Return the mean gain of runs over scores with the same seeds, and it in standard errors."""
    scores = [validation_score(store, run) for run in runs]
    return in_standard_errors([now - then for now, then in zip(scores, before, strict=True)])


def _six_answers(
    planner: Planner, policies: Iterable[tuple[str, Stage | None]]
) -> list[tuple[Stage, Stage]]:
    """Six answers of each policy, by label, to the validation prompts, and their rewards."""
    items: dict[str, Json] = {"benchmark": planner.world.benchmark("validation")}
    prompts = planner.stage("prompts", items, {}, "validation")
    return [planner.rollouts(label, policy, prompts, "pointwise") for label, policy in policies]


def _scored(store: Store, completions: Stage, rewards: Stage) -> tuple[Floats, Floats]:
    """Return the oracle scores and the rewards of the same answers."""
    given = pq.read_table(store.open(rewards.fingerprint) / "rewards.parquet").column("reward")
    answers = pq.read_table(store.open(completions.fingerprint) / "completions.parquet")
    texts = (answers.column(name).to_pylist() for name in ("prompt", "completion"))
    scores = [oracle_score(prompt, answer) for prompt, answer in zip(*texts, strict=True)]
    return np.array(scores), given.to_numpy()


def _no_spread(store: Store, run: Run) -> float:
    pairs = store.open(run.iterations[0].pairs.fingerprint)
    summary = json.loads((pairs / "summary.json").read_text(encoding="utf-8"))
    return float(summary["ties"]) / float(summary["pairs"])


# The grids of the trainers.

GRID_SEEDS = (100, 101, 102)
"""Seeds of the grids; no table's defaults are among them."""

Changes = Mapping[str, float]
"""Hyperparameters by name, as the profile has them under the algorithm."""

LEARNING_RATES = (3e-5, 1e-4, 3e-4)
BETAS = (0.2, 0.05)

CONSTANTS: Mapping[str, tuple[Changes, ...]] = {
    "sppo": ({"beta": 0.001}, {"beta": 0.1}),
    "simpo": ({"beta": 10.0, "gamma": 5.0}, {"beta": 2.0, "gamma": 1.0}),
    "orpo": ({"odds_weight": 0.5}, {"odds_weight": 0.1}),
}
"""The paper's constants first."""

GRIDS: Mapping[str, tuple[Changes, ...]] = {
    algorithm: tuple({"learning_rate": lr, **more} for lr in LEARNING_RATES for more in constants)
    for algorithm, constants in CONSTANTS.items()
} | {"rloo": tuple({"learning_rate": lr, "beta": beta} for beta in BETAS for lr in LEARNING_RATES)}
"""The settings of each algorithm, the most careful first."""

OFFLINE, ONLINE = tuple(CONSTANTS), ("rloo",)


def rloo(size: int) -> Recipe:
    """Return RLOO on human prompts."""
    return Recipe(algorithm="rloo", online=Online(prompts="human", size=size))


RECIPES: Mapping[str, Recipe] = {
    "sppo": Recipe(algorithm="sppo", chain=("human",), reward_model="pairwise"),
    "simpo": Recipe(algorithm="simpo", chain=("human",)),
    "orpo": Recipe(algorithm="orpo", chain=("human",)),
    "rloo": rloo(1),
}
"""What is run over the grid: the first rows of table 2, and RLOO 1x."""

TAUGHT: Mapping[str, tuple[str, ...]] = {"rloo": ("rloo", "oaif")}
"""The algorithms that train with a grid's best setting, where these are not its own alone."""


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


def named(algorithm: str, changes: Changes) -> str:
    """Return an algorithm and what is changed of it in a line."""
    return f"{algorithm} {' '.join(f'{name} {value:g}' for name, value in changes.items())}"


def with_training(profile: Profile, algorithm: str, changes: Changes) -> Profile:
    """Return a profile with some hyperparameters of an algorithm changed."""
    hyper = profile.training.of(algorithm).model_copy(update=dict(changes))
    training = profile.training.model_copy(update={algorithm: hyper})
    return profile.model_copy(update={"training": training})


def measure_grids(
    algorithms: Iterable[str], store: Store, jobs: int, on_event: OnEvent
) -> list[Point]:
    """Run every setting of the algorithms' grids and measure it.

    Raises:
        HarnessError: a stage failed.
    """
    profile = validation_profile()
    bases = [Planner(world_of(profile)).run("base", Recipe(), seed) for seed in GRID_SEEDS]
    tried: list[tuple[str, Changes, list[Run]]] = []
    for algorithm in algorithms:
        for changes in GRIDS[algorithm]:
            planner = Planner(world_of(with_training(profile, algorithm, changes)))
            name, recipe = named(algorithm, changes), RECIPES[algorithm]
            tried.append((algorithm, changes, [planner.run(name, recipe, s) for s in GRID_SEEDS]))
    runs = [*bases, *(run for _, _, several in tried for run in several)]
    compute([stage for run in runs for stage in run.targets], store, jobs, on_event)
    before = [validation_score(store, base) for base in bases]
    return [
        Point(algorithm, changes, *gain_over(before, several, store))
        for algorithm, changes, several in tried
    ]


def chosen(points: Sequence[Point], algorithm: str) -> Point:
    """Return the most careful setting that gains within one standard error of the best one."""
    own = [point for point in points if point.algorithm == algorithm]
    best = max(own, key=lambda point: point.gain)
    least = best.gain - (best.gain / best.standard_errors if best.standard_errors else 0.0)
    order = list(GRIDS[algorithm])
    near = [point for point in own if point.gain >= least]
    return min(near, key=lambda point: order.index(point.changes))


def grid_failures(points: Sequence[Point]) -> list[str]:
    """Return where the profile trains otherwise than with a grid's choice, each as a sentence."""
    found = []
    training = validation_profile().training
    for grid in dict.fromkeys(point.algorithm for point in points):
        best = chosen(points, grid)
        for algorithm in TAUGHT.get(grid, (grid,)):
            used = {name: getattr(training.of(algorithm), name) for name in best.changes}
            if used != dict(best.changes):
                found.append(
                    f"`micro` trains with {named(algorithm, used)}, and the gate takes "
                    f"{named(grid, best.changes)}"
                )
    return found


# Over-optimisation.

PUSHED_LEARNING_RATE, PUSHED_SIZE, PUSHED_SEED = 3e-4, 6, 100


def measure_pushed(store: Store, jobs: int, on_event: OnEvent) -> dict[str, Any]:
    """Over-optimise a policy and measure it at each multiple of x, from 0.

    Returns:
        The measurements (`points`), and what they are of (`setting`): hyperparameters, reward
        model, commit and stages.

    Raises:
        HarnessError: a stage failed.
    """
    changes = {"learning_rate": PUSHED_LEARNING_RATE, "beta": 0.0}
    profile = with_training(validation_profile(), "rloo", changes)
    planner = Planner(world_of(profile))
    run = planner.run("rloo pushed", rloo(PUSHED_SIZE), PUSHED_SEED)
    policies: list[Stage | None] = [None, *run.training]
    sampled = _six_answers(planner, ((f"pushed {n}x", policy) for n, policy in enumerate(policies)))
    compute([stage for pair in sampled for stage in pair], store, jobs, on_event)
    points = []
    for size, pair in enumerate(sampled):
        scores, rewards = (round(float(np.mean(values)), 6) for values in _scored(store, *pair))
        points.append({"size": size, "reward": rewards, "oracle": scores})
    commits = {
        store.manifest(stage.fingerprint)["provenance"]["commit"] or "unknown"
        for pair in sampled
        for stage in pair
    }
    prompts = sampled[0][0].inputs["prompts"]
    setting = {
        **changes,
        "seed": PUSHED_SEED,
        "prompts": len(read_prompts(store.open(prompts.fingerprint))),
        "n": profile.generation.n,
        "reward_model": str(sampled[0][1].settings["reward_model"]),
        "commit": ", ".join(sorted(commit[:12] for commit in commits)),
        "stages": {f"{size}x": rewards.fingerprint for size, (_, rewards) in enumerate(sampled)},
    }
    return {"points": points, "setting": setting}
