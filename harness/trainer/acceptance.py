"""Acceptance criteria of the embedded world, measured on validation prompts before any eva run.

They look at θ0 and at first iterations only, so that nothing about the world, its sizes or its
hyperparameters can be chosen by how the paper's comparisons come out.

*The world.*

1. the learned reward model's best of six recovers at least 40% of the gain that the oracle's best
   of six brings over the mean answer;
2. one iteration of DPO on the learned reward beats θ0 by at least 3 standard errors over 7 seeds,
   both answering anew for each seed, so that the sampling noise of both is in the error;
3. the share of training prompts whose six rewards are all equal lies between 10% and 60%.

*Its trainers* are tuned by the sweeps `tune-dpo` to `tune-oaif`, on human prompts.

*Over-optimisation.* A learned reward can be pushed beyond what it knows. One run shows it on
purpose: RLOO without a KL penalty at a large learning rate on all human prompts. At each x of
prompts the policy answers the validation prompts six times, and both the reward model and the
oracle score the answers: the first goes on rising where the second falls.

Source: Gao et al. 2023 on over-optimisation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
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

    Args:
        scores: oracle scores, shape (prompts, answers).
        rewards: rewards of the same answers.
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

    Args:
        store: where the stages go.
        jobs: worker processes.
        on_event: told of every stage.

    Raises:
        HarnessError: a stage failed.
    """
    profile = validation_profile()
    planner = Planner(world_of(profile))
    bases = [planner.run("base", Recipe(), seed) for seed in SEEDS]
    recipe = Recipe(algorithm="dpo", chain=("human",))
    runs = [planner.run("dpo-h1", recipe, seed) for seed in SEEDS]
    sampled = _six_answers(planner)
    targets = [*sampled, *(stage for run in (*bases, *runs) for stage in run.targets)]
    compute(targets, store, jobs, on_event)
    completions, rewards = (
        pq.read_table(store.open(stage.fingerprint) / name)
        for stage, name in zip(sampled, ("completions.parquet", "rewards.parquet"), strict=True)
    )
    scores = np.array(
        [
            oracle_score(prompt, answer)
            for prompt, answer in zip(
                completions.column("prompt").to_pylist(),
                completions.column("completion").to_pylist(),
                strict=True,
            )
        ]
    ).reshape(-1, profile.generation.n)
    mean, by_oracle, by_reward = best_of_six(
        scores, rewards.column("reward").to_numpy().reshape(scores.shape)
    )
    before = [validation_score(store, base) for base in bases]
    gain, errors = gain_over(before, runs, store)
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


def _six_answers(planner: Planner) -> tuple[Stage, Stage]:
    """Six answers of θ0 to each validation prompt, and their rewards."""
    items: dict[str, Json] = {"benchmark": planner.world.benchmark("validation")}
    prompts = planner.stage("prompts", items, {}, "validation")
    return planner.rollouts("validation", None, prompts, "pointwise")


def validation_score(store: Store, run: Run) -> float:
    """Return the mean oracle score of a run's answers to the validation prompts."""
    table = pq.read_table(store.open(run.judged["validation"].fingerprint) / "judgments.parquet")
    return float(np.mean(table.column("oracle").to_numpy()))


def gain_over(before: Sequence[float], runs: Sequence[Run], store: Store) -> tuple[float, float]:
    """Return the mean gain of runs over scores with the same seeds, and it in standard errors."""
    scores = [validation_score(store, run) for run in runs]
    return in_standard_errors([now - then for now, then in zip(scores, before, strict=True)])


def _no_spread(store: Store, run: Run) -> float:
    pairs = store.open(run.iterations[0].pairs.fingerprint)
    summary = json.loads((pairs / "summary.json").read_text(encoding="utf-8"))
    return float(summary["ties"]) / float(summary["pairs"])


PUSHED_LEARNING_RATE, PUSHED_SIZE, PUSHED_SEED = 3e-4, 6, 100


@dataclass(frozen=True)
class Pushed:
    """The over-optimised policy after some multiples of x: mean reward and mean oracle score."""

    size: int
    reward: float
    oracle: float

    def as_json(self) -> dict[str, Any]:
        """Return the measurements, rounded for the card."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def measure_pushed(
    store: Store, jobs: int, on_event: OnEvent
) -> tuple[list[Pushed], dict[str, Any]]:
    """Over-optimise a policy and measure it at each multiple of x, from 0.

    Returns:
        The measurements, and what they are of: settings, reward model, commit and stages.

    Raises:
        HarnessError: a stage failed.
    """
    changes = {"learning_rate": PUSHED_LEARNING_RATE, "beta": 0.0}
    micro = validation_profile()
    hyper = micro.training.of("rloo").model_copy(update=changes)
    training = micro.training.model_copy(update={"rloo": hyper})
    profile = micro.model_copy(update={"training": training})
    planner = Planner(world_of(profile))
    recipe = Recipe(algorithm="rloo", online=Online(prompts="human", size=PUSHED_SIZE))
    run = planner.run("rloo pushed", recipe, PUSHED_SEED)
    items: dict[str, Json] = {"benchmark": planner.world.benchmark("validation")}
    prompts = planner.stage("prompts", items, {}, "validation")
    policies: list[Stage | None] = [None, *run.training]
    sampled = [
        planner.rollouts(f"pushed {size}x", policy, prompts, "pointwise")
        for size, policy in enumerate(policies)
    ]
    compute([stage for pair in sampled for stage in pair], store, jobs, on_event)
    points = [Pushed(size, *_mean_scores(store, *pair)) for size, pair in enumerate(sampled)]
    commits = {
        store.manifest(stage.fingerprint)["provenance"]["commit"] or "unknown"
        for pair in sampled
        for stage in pair
    }
    return points, {
        **changes,
        "seed": PUSHED_SEED,
        "prompts": len(read_prompts(store.open(prompts.fingerprint))),
        "n": profile.generation.n,
        "reward_model": str(sampled[0][1].settings["reward_model"]),
        "commit": ", ".join(sorted(commit[:12] for commit in commits)),
        "stages": {f"{size}x": rewards.fingerprint for size, (_, rewards) in enumerate(sampled)},
    }


def _mean_scores(store: Store, completions: Stage, rewards: Stage) -> tuple[float, float]:
    """Return the mean reward and the mean oracle score of the same answers."""
    given = pq.read_table(store.open(rewards.fingerprint) / "rewards.parquet").column("reward")
    answers = pq.read_table(store.open(completions.fingerprint) / "completions.parquet")
    texts = (answers.column(name).to_pylist() for name in ("prompt", "completion"))
    scores = [oracle_score(prompt, answer) for prompt, answer in zip(*texts, strict=True)]
    return float(np.mean(given.to_numpy())), float(np.mean(scores))
