"""The winner on the benchmarks, beside the base recipe, with seeds that no trial has seen.

The best of many trials owes part of its score to luck, and the more trials the more of it. With
fresh seeds and other prompts that part is gone. The base recipe is run with the same seeds, so
that the gain is paired by seed and prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.errors import HarnessError
from harness.registry.profile import Profile
from harness.report.scores import Key, Measured, grouped, read_rows
from harness.report.sweep import base_run, winner_run
from harness.runtime import LocalEngine, Plan, Store
from harness.sweep.declaration import Point, Sweep
from harness.sweep.space import Candidate, base_candidate, candidate
from harness.trainer.plan import Planner, Run
from harness.worlds.lookup import world_of


@dataclass(frozen=True)
class Final:
    """The runs that decide what the winner is worth.

    Attributes:
        profiles: The profile of each run id.
        runs: The runs of the winner and, where it is another, of the base recipe, on all
            benchmarks.
    """

    profiles: Mapping[str, Profile]
    runs: tuple[Run, ...]

    def plan(self) -> Plan:
        """Return the plan of all its runs."""
        return Plan(stage for run in self.runs for stage in run.targets)


def final_runs(sweep: Sweep, profile: Profile, point: Point) -> Final:
    """Return the runs of a point and of the base recipe with the fresh seeds.

    Raises:
        UserError: The profile cannot run them.
    """
    best, base = candidate(sweep, profile, point), base_candidate(sweep, profile)
    named = {winner_run(sweep.name): best}
    if _means(best) != _means(base):
        named[base_run(sweep.name)] = base
    runs = [
        Planner(world_of(found.profile)).run(run_id, found.recipe, seed)
        for run_id, found in named.items()
        for seed in sweep.result.seeds
    ]
    profiles = {run_id: found.profile for run_id, found in named.items()}
    return Final(profiles, tuple(runs))


def run_final(final: Final, engine: LocalEngine, say: Callable[[str], None]) -> None:
    """Compute what is missing of the winner's runs.

    Raises:
        HarnessError: A stage failed.
        Interrupted: Ctrl-C.
    """
    plan = final.plan()
    missing = len(plan.pending(engine.store))
    say(
        f"winner and base recipe on the benchmarks with fresh seeds: {len(plan) - missing} of "
        f"{len(plan)} stages reused, {missing} to compute"
    )
    outcome = engine.run(plan)
    if not outcome.ok:
        stage, reason = next(iter(outcome.failed.items()))
        raise HarnessError(
            f"the winner could not be measured, {stage.title}: {reason}; run the same command to "
            "try again"
        )


def final_scores(final: Final, store: Store) -> Measured:
    """Return the per-prompt scores of the winner's and the base's runs; empty while one lacks.

    Raises:
        StoreError: A stored file is not what was written.
    """
    if final.plan().pending(store):
        return {}
    rows: list[tuple[Key, str, float]] = []
    for run in final.runs:
        for stage in run.judged.values():
            path = store.open(stage.fingerprint) / "scores.parquet"
            for score, prompt, value in read_rows(path, "column", "prompt_id", "value"):
                rows.append(((run.run_id, run.seed, score), prompt, value))
    return grouped(rows)


def _means(found: Candidate) -> object:
    return found.recipe.canonical(), found.profile
