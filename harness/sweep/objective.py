"""What a trial is measured by: the runs of its seeds on the validation prompts.

A trial's run is planned like any other, with the validation prompts as its only benchmark: they
are answered as the profile's hard benchmark is, and judged by the same judge. Costs are the
totals an online run has counted by the end of its last training stage.
"""

from __future__ import annotations

import json
import math

from harness.errors import HarnessError, UserError
from harness.registry.profile import Profile, benchmark_of
from harness.report.scores import read_rows
from harness.runtime import Store
from harness.sweep.declaration import COSTS, Measure, Sweep
from harness.sweep.space import Candidate
from harness.trainer.plan import Planner, Run
from harness.worlds.lookup import world_of

VALIDATION = "validation"
"""The benchmark that trials are measured on; no table reports it."""

HARD = "ah_wr"
"""The score whose benchmark says how the validation prompts are answered and judged."""


def on_validation(profile: Profile) -> Profile:
    """Return a profile with the validation prompts as its only benchmark.

    Raises:
        UserError: The profile has no validation prompts, or no hard benchmark to take the settings
            of.
    """
    if not world_of(profile).has_validation_prompts:
        raise UserError(
            f"a sweep cannot run on the profile `{profile.name}`: only the embedded world has "
            "validation prompts, which are in no benchmark; use `--profile micro`"
        )
    name = benchmark_of(profile, HARD)
    if name is None:
        raise UserError(f"the profile `{profile.name}` has no benchmark that yields `{HARD}`")
    # Two benchmarks cannot share a column, and this one's scores stand in no table.
    hard = profile.benchmarks[name].model_copy(update={"columns": ()})
    return profile.model_copy(update={"benchmarks": {VALIDATION: hard}})


def validation_runs(sweep: Sweep, candidate: Candidate, run_id: str) -> list[Run]:
    """Return the run of each of a trial's seeds, measured on the validation prompts.

    Args:
        sweep: The sweep.
        candidate: What the trial's point means.
        run_id: What its runs are called.

    Raises:
        UserError: The profile cannot run the recipe.
    """
    profile = on_validation(candidate.profile)
    planner = Planner(world_of(profile))
    return [planner.run(run_id, candidate.recipe, seed) for seed in sweep.seeds]


def measured(measure: Measure, run: Run, store: Store) -> float:
    """Return what an objective is for one finished run.

    Raises:
        StoreError: A stage is not done, or a file is not what was written.
        HarnessError: The stage's output does not hold the number.
    """
    if measure in COSTS:
        return _count(measure, run, store)
    folder = store.open(run.judged[VALIDATION].fingerprint)
    rows = read_rows(folder / "scores.parquet", "column", "value")
    values = [value for column, value in rows if column == measure]
    if not values:
        raise HarnessError(f"the judge of `{VALIDATION}` gave no scores `{measure}`")
    return math.fsum(values) / len(values)


def _count(measure: str, run: Run, store: Store) -> float:
    last = run.training[-1]
    path = store.open(last.fingerprint) / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if type(summary.get(measure)) is not int:
        raise HarnessError(f"the stage {last.title} counted no `{measure}`")
    return float(summary[measure])
