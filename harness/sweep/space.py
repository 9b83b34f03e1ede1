"""What a point of the search space means: a recipe, a profile, runs, and how they are measured.

Before a sweep runs, the points that it can suggest are validated as if written by hand: all of them
if there are few, else corners of the space and random points.

A trial's run has the validation prompts as its only benchmark, answered and judged like the
profile's hard benchmark. A world without validation prompts holds out human prompts instead: the
last multiple of x in the seed's order, which the recipe must not train on; the pointwise reward
model compares their answers with the base model's, so no trial pays for a judge.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from pydantic import ValidationError

from harness.errors import HarnessError, UserError
from harness.pipeline.algorithm import Planner, Run
from harness.registry.documents import nearest
from harness.registry.objective import COSTS, Measure, Scalar
from harness.registry.overrides import first_fault, nested
from harness.registry.profile import Profile, benchmark_of, human_prompts, unsupported
from harness.registry.recipe import Recipe, flattened, merge
from harness.report.origin import stage_summary
from harness.report.scores import Measured, read_values
from harness.report.sweep import base_run, setting, value_text, winner_run
from harness.runtime import Plan, Store
from harness.sweep.declaration import SearchPoint, Sweep, too_late
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_rewards, read_rows

MOST_POINTS = 256
"""Maximum number of points checked before a sweep runs."""

VALIDATION = "validation"
"""The benchmark that trials are measured on; no table reports it."""

BASE = "validation of the base model"
"""Without a judge: the rewards of the base model's answers to the validation prompts."""

BY_REWARD = ("val_wr", "val_score", *COSTS)
"""What can be measured without a judge."""

HARD = "ah_wr"
"""The score whose benchmark determines how validation prompts are answered and judged."""


class Candidate(NamedTuple):
    """What a point of the search space means."""

    recipe: Recipe
    profile: Profile


def base_candidate(sweep: Sweep, profile: Profile) -> Candidate:
    """Return the base recipe at a profile; raises `UserError` if the profile cannot run it."""
    recipe = Recipe.model_validate(sweep.recipe)
    if reasons := unsupported(recipe, (), profile):
        raise UserError(
            f"`{sweep.name}` cannot run on the profile `{profile.name}`: " + "; ".join(reasons)
        )
    return Candidate(recipe, profile)


def candidate(sweep: Sweep, profile: Profile, point: SearchPoint) -> Candidate:
    """Return a point's recipe and profile."""
    settings = nested(point)
    try:
        recipe = Recipe.model_validate(merge(sweep.recipe, settings.get("recipe", {})))
        if "profile" in settings:
            data = merge(profile.model_dump(by_alias=True), settings["profile"])
            profile = Profile.model_validate(data)
    except ValidationError as error:
        raise UserError(impossible(sweep, point, first_fault(error))) from error
    reasons, creator = unsupported(recipe, (), profile), recipe.creator
    made = creator.fraction * creator.evolutions
    if "eva" in recipe.chain and made < creator.evolved_share:
        reasons.append(
            f"`fraction` {creator.fraction:g} and `evolutions` {creator.evolutions} make evolved "
            f"prompts for {made:.0%} of the mix, and `evolved_share` asks for "
            f"{creator.evolved_share:.0%}"
        )
    reasons += filter(None, (too_late(objective, recipe) for objective in sweep.objectives))
    if reasons:
        raise UserError(impossible(sweep, point, "; ".join(reasons)))
    return Candidate(recipe, profile)


def impossible(sweep: Sweep, point: SearchPoint, why: str) -> str:
    return (
        f"the sweep `{sweep.name}` can suggest {point_text(point)}, which is impossible: "
        f"{why.rstrip('.')}; change its `space`"
    )


def check_settings(sweep: Sweep, profile: Profile) -> None:
    """Check that the profile has the settings that a sweep varies and the measures it uses."""
    for objective in sweep.objectives:
        if objective.measure not in BY_REWARD and not world_of(profile).has_validation_prompts:
            raise UserError(
                f"the sweep `{sweep.name}` measures `{objective.measure}`, which only the embedded "
                f"world has; on `{profile.name}` take one of {', '.join(BY_REWARD)}"
            )
    if not world_of(profile).has_validation_prompts and "pointwise" not in profile.reward_models:
        raise UserError(
            f"the sweep `{sweep.name}` compares answers by the reward model `pointwise`, which the "
            f"profile `{profile.name}` does not have"
        )
    settings = flattened(profile.model_dump(by_alias=True))
    known = [f"profile.{path}" for path in settings]
    for path in sweep.space:
        if path.startswith("profile.") and path not in known:
            raise UserError(
                f"the sweep `{sweep.name}` varies `{path}`, which the profile `{profile.name}` "
                f"does not have{nearest(path, known)}"
            )


def points(sweep: Sweep) -> list[dict[str, Scalar]]:
    """Return points to check, from the first corner: all if few, else corners and random ones."""
    axes = [p.values() for p in sweep.space.values()]
    few = (sweep.grid_size or MOST_POINTS + 1) <= MOST_POINTS
    first = MOST_POINTS if few else MOST_POINTS // 2
    ends = [axis if few or len(axis) < 3 else (axis[0], axis[-1]) for axis in axes]
    chosen = list(itertools.islice(itertools.product(*ends), first))
    draw = random.Random(0)
    while not few and len(chosen) < MOST_POINTS:
        chosen.append(tuple(draw.choice(axis) for axis in axes))
    return [dict(zip(sweep.space, values, strict=True)) for values in chosen]


def grid(sweep: Sweep) -> list[dict[str, Scalar]]:
    """Return every point of a finite space once, in an order drawn from the sampler's seed."""
    found = list(itertools.product(*(parameter.values() for parameter in sweep.space.values())))
    random.Random(sweep.sampler.seed).shuffle(found)
    return [dict(zip(sweep.space, values, strict=True)) for values in found]


def on_validation(profile: Profile) -> Profile:
    """Return a profile with the validation prompts as its only benchmark, or without any."""
    if not world_of(profile).has_validation_prompts:
        return profile.model_copy(update={"benchmarks": {}})
    name = benchmark_of(profile, HARD)
    if name is None:
        raise UserError(f"the profile `{profile.name}` has no benchmark that yields `{HARD}`")
    # Two benchmarks cannot share a column, and this one's scores appear in no table.
    hard = profile.benchmarks[name].model_copy(update={"columns": ()})
    return profile.model_copy(update={"benchmarks": {VALIDATION: hard}})


def validation_runs(
    sweep: Sweep, found: Candidate, run_id: str, after: int | None = None
) -> list[Run]:
    """Return a trial's run for each seed, on the validation prompts.

    Runs stop after `after` iterations (offline) or multiples of x (online), if given.
    """
    recipe = found.recipe if after is None else _shortened(found.recipe, after)
    planner = Planner(world_of(on_validation(found.profile)))
    runs = [planner.run(run_id, recipe, seed) for seed in sweep.seeds]
    if planner.world.has_validation_prompts:
        return runs
    return [_scored(planner, run) for run in runs]


def _scored(planner: Planner, run: Run) -> Run:
    """Return a run whose answers to held-out prompts are scored by a reward model."""
    prompts = planner.profile.prompts
    if human_prompts(run.recipe) >= prompts.available:
        raise UserError(
            f"the recipe trains on all {prompts.available}x human prompts of the profile "
            f"`{planner.profile.name}`, and a sweep holds one multiple of x back: take fewer"
        )
    settings = planner.new_prompts("human", run.seed, prompts.available - 1, 1)
    label = f"seed {run.seed} · validation"
    held_back = planner.stage("prompts", settings, {}, label)
    policy = run.iterations[-1].policy if run.iterations else None
    own = planner.rollouts(f"{label} · {run.run_id}", policy, held_back, "pointwise")
    base = planner.rollouts(f"{label} · base", None, held_back, "pointwise")
    scored = {VALIDATION: own[1], BASE: base[1]}
    return replace(run, judges=scored, asked=tuple(scored))


def _shortened(recipe: Recipe, after: int) -> Recipe:
    """Truncate a recipe, within its first pass; its stages are a prefix of the full recipe's."""
    if recipe.online is None:
        return recipe.model_copy(update={"chain": recipe.chain[:after]})
    first = {"size": after, "passes": 1}
    return recipe.model_copy(update={"online": recipe.online.model_copy(update=first)})


def final_runs(sweep: Sweep, profile: Profile, point: SearchPoint) -> tuple[Run, ...]:
    """Return the runs of a point and, if it differs, of the base recipe, with the fresh seeds."""
    best, base = candidate(sweep, profile, point), base_candidate(sweep, profile)
    named = {winner_run(sweep.name): best}
    if (best.recipe.canonical(), best.profile) != (base.recipe.canonical(), base.profile):
        named[base_run(sweep.name)] = base
    return tuple(
        Planner(world_of(found.profile)).run(run_id, found.recipe, seed)
        for run_id, found in named.items()
        for seed in sweep.result.seeds
    )


def plan_of(runs: Sequence[Run]) -> Plan:
    return Plan(stage for run in runs for stage in run.targets)


def final_scores(runs: Sequence[Run], store: Store) -> Measured:
    """Return the per-prompt scores of the final runs; empty until all are done."""
    if plan_of(runs).pending(store):
        return {}
    return {
        (run.run_id, run.seed, score): dict(sorted(values.items()))
        for run in runs
        for stage in run.judged.values()
        for (score,), values in read_values(
            store.open(stage.fingerprint) / "scores.parquet", "column"
        ).items()
    }


def objective_value(measure: Measure, run: Run, store: Store) -> float:
    """Return an objective's value for one finished run."""
    if measure in COSTS:
        return float(stage_summary(store, run.training[-1])[measure])
    if BASE in run.judged:
        values = _by_reward(measure, run, store)
    else:
        folder = store.open(run.judged[VALIDATION].fingerprint)
        rows = read_rows(folder / "scores.parquet", "column", "value")
        values = [row["value"] for row in rows if row["column"] == measure]
    if not values:
        raise HarnessError(f"the judge of `{VALIDATION}` gave no scores `{measure}`")
    return fmean(values)


def _by_reward(measure: str, run: Run, store: Store) -> list[float]:
    """Return mean rewards per prompt (`val_score`), or 100 for beating the base, 50 for a tie."""
    own, base = (
        read_rewards(store.open(run.judged[name].fingerprint))[1].mean(axis=1)
        for name in (VALIDATION, BASE)
    )
    values = own if measure == "val_score" else 100 * ((own > base) + 0.5 * (own == base))
    return [float(value) for value in values]


def point_text(point: SearchPoint) -> str:
    """Format a point: `ratio_evol 0.5, n_new 4`."""
    return ", ".join(f"{setting(path)} {value_text(value)}" for path, value in point.items())
