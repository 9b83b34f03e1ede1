"""Judging as stages: what becomes of a run's policy, or of its prompts, at the end.

    policy -> answer -> judge       for each benchmark of answers
    prompts -> rate                 for each judge of prompts, where prompts are what is scored

Every benchmark of the profile that fits the run is planned; which of them are wanted is up to the
tables (`harness.trainer.table_runs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.catalogue.profile import WORLD, Benchmark
from harness.store.fingerprint import Json
from harness.store.stage import Stage
from harness.trainer.lm_eval_steps import scorer_of, task_settings
from harness.trainer.real_benchmarks import is_benchmark, is_lm_eval
from harness.trainer.real_judging import judging_settings
from harness.trainer.scorer_steps import rating_settings

if TYPE_CHECKING:
    from harness.trainer.plan import Planner


def judges_of_answers(
    planner: Planner, label: str, policy: Stage | None, seed: int
) -> dict[str, Stage]:
    """Return the judge's stage of each benchmark that a policy answers; θ0 without a policy."""
    benchmarks = planner.profile.benchmarks.items()
    return {
        name: _judged(planner, f"{label} · {name}", name, benchmark, policy, seed)
        for name, benchmark in benchmarks
        if not benchmark.of_prompts
    }


def judges_of_prompts(planner: Planner, label: str, prompts: Stage) -> dict[str, Stage]:
    """Return the stage of each judge of prompts."""
    return {
        name: planner.stage(
            "rate",
            {
                "judge": planner.assets.judge(benchmark.judge),
                **({} if planner.profile.policy == WORLD else rating_settings(benchmark)),
            },
            {"prompts": prompts},
            f"{label} · {name}",
        )
        for name, benchmark in planner.profile.benchmarks.items()
        if benchmark.of_prompts
    }


def _judged(
    planner: Planner, label: str, name: str, benchmark: Benchmark, policy: Stage | None, seed: int
) -> Stage:
    identity = planner.assets.benchmark(name)
    if is_lm_eval(identity):
        return _lm_eval(planner, label, identity, policy)
    settings: dict[str, Json] = {
        "benchmark": identity,
        "temperature": benchmark.temperature,  # type: ignore[dict-item]
        "top_p": benchmark.top_p,
        "max_new_tokens": benchmark.max_new_tokens,
        "batch_size": planner.profile.generation.batch_size,
        "seed": seed,
        **planner.engine,
    }
    inputs = planner.with_policy(settings, policy)
    answers = planner.stage("answer", settings, inputs, label)
    judge: dict[str, Json] = {
        "benchmark": identity,
        "judge": planner.assets.judge(benchmark.judge),
        **(judging_settings(identity) if is_benchmark(identity) else {}),
    }
    return planner.stage("judge", judge, {"answers": answers}, label)


def _lm_eval(planner: Planner, label: str, identity: str, policy: Stage | None) -> Stage:
    """Return the stage that scores table 9's tasks, whose sampling is the tasks' own."""
    settings = task_settings(identity, planner.profile)
    answers = planner.stage("answer", settings, planner.with_policy(settings, policy), label)
    judge: dict[str, Json] = {"benchmark": identity, "judge": scorer_of(identity)}
    return planner.stage("judge", judge, {"answers": answers}, label)
