"""Runs of figures whose stages are written by hand: nothing here runs a model.

The profile offers everything that the paper's does, so that every declared row can run.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from toy_identities import ToyWorld
from toy_tables import write_files

from harness.pipeline.runs import FigureRuns, plan_figure
from harness.registry.declared import load_tables
from harness.registry.figures import Figure, load_figures
from harness.registry.profile import Profile, load_profiles
from harness.registry.schema import Table
from harness.report.figures.report import FigureReport, assemble_figure
from harness.runtime import Plan, Stage, Store
from harness.worlds import Topics
from harness.worlds.embedded.language import CATEGORIES, OPERATIONS, Task, render
from harness.worlds.lookup import world_of

ITEMS = tuple("123abc")

PROMPTS = {
    f"h{i:02d}": render(Task(ITEMS[: 3 + i % 4], (operation.names[i % 3],)), i % 4)
    for i, operation in enumerate(itertools.islice(itertools.cycle(OPERATIONS), 30))
}
"""Thirty prompts, each beginning with the next operation."""

COLUMNS = {
    "arena_hard": ("ah_wr", "ah_len"),
    "alpaca_eval": ("ae_lc", "ae_wr"),
    "mt_bench": ("mt_avg", "mt_t1", "mt_t2"),
}


@functools.cache
def toy_profile() -> Profile:
    """Return a profile of toy scale that can run every row of the paper."""
    profiles = load_profiles()
    micro = profiles["micro"]
    return profiles["paper"].model_copy(
        update={
            "name": "micro",
            "scale": "toy",
            "policy": micro.policy,
            "prompts": micro.prompts,
            "benchmarks": micro.benchmarks,
        }
    )


@functools.cache
def declared() -> tuple[dict[str, Table], dict[str, Figure]]:
    tables = load_tables()
    return tables, load_figures(tables)


FIGURES = tuple(declared()[1])


def toy_figure(
    name: str, seeds: Sequence[int] = (0, 1), profile: Profile | None = None
) -> FigureRuns:
    tables, figures = declared()
    return plan_figure(figures[name], tables, profile or toy_profile(), seeds)


class TopicWorld(ToyWorld):
    """Identities that mean nothing; topics as the profile has them."""

    def topics(self) -> Topics | None:
        return world_of(self.profile).prompts.topics()


def whole_figure(store: Store, name: str, seeds: Sequence[int] = (0, 1)) -> FigureReport:
    """Return a figure's report after all that it reads of seeds 0 and 1 was written."""
    runs = toy_figure(name, seeds)
    write_judges(store, runs, *COLUMNS, seeds=(0, 1))
    write_stages(store, runs, ["generate", "annotate", "pair", "mix"])
    return assemble_figure(runs, store)


def write_stages(store: Store, runs: FigureRuns, kinds: Sequence[str] = ()) -> None:
    """Write every stage of some kinds behind a figure's runs, of all kinds where none is named."""
    for stage in Plan(runs.targets):
        if not kinds or stage.kind in kinds:
            write_stage(store, stage)


def write_judges(
    store: Store, runs: FigureRuns, *benchmarks: str, seeds: Sequence[int] | None = None
) -> None:
    """Write the judges' stages of some benchmarks, of all seeds where none is named."""
    for (_, seed), run in runs.runs.items():
        for name in benchmarks:
            if seeds is None or seed in seeds:
                write_stage(store, run.judges[name])


def write_stage(store: Store, stage: Stage) -> None:
    write_files(store, stage, **_files(stage))


def _files(stage: Stage) -> dict[str, list[dict[str, object]]]:
    rng = np.random.default_rng(stage.seed)
    prompts = [{"prompt_id": key, "prompt": text} for key, text in PROMPTS.items()]
    if stage.kind in ("pair", "mix"):
        # Later iterations hold other prompts.
        return {"pairs": [prompts[i] for i in rng.integers(0, len(prompts), 40)]}
    if stage.kind == "generate":
        rows = [{**prompt, "sample": k} for prompt in prompts for k in range(6)]
        return {"completions": rows}
    if stage.kind == "annotate":
        return {"rewards": _rewards(rng)}
    if stage.kind == "judge":
        return _judged(stage, rng)
    return {}


def _rewards(rng: np.random.Generator) -> list[dict[str, object]]:
    """Return six rewards of each prompt; every fifth prompt's are all equal."""
    rows: list[dict[str, object]] = []
    for i, prompt in enumerate(PROMPTS):
        level, width = rng.normal(), 0.0 if i % 5 == 0 else rng.uniform(0.5, 3.0)
        rewards = level + width * rng.uniform(size=6)
        rows += [{"prompt_id": prompt, "sample": k, "reward": r} for k, r in enumerate(rewards)]
    return rows


def _judged(stage: Stage, rng: np.random.Generator) -> dict[str, list[dict[str, Any]]]:
    name = str(stage.settings["benchmark"]).partition("/")[2].partition("@")[0]
    skill = depth(stage) + 0.3 * rng.normal()
    items = [f"{name}-{i:02d}" for i in range(16)]
    scale = 4.0 if name != "mt_bench" else 0.3
    base = 30.0 if name != "mt_bench" else 6.0
    scores: list[dict[str, Any]] = [
        {"prompt_id": item, "column": column, "value": base + scale * (skill + (i % 8) / 4)}
        for column in COLUMNS[name]
        for i, item in enumerate(items)
    ]
    judgments: list[dict[str, Any]] = [
        {"prompt_id": item, "category": CATEGORIES[i % 8], "number": turn}
        for i, item in enumerate(items)
        for turn in (1, 2)
    ]
    return {"scores": scores, "judgments": judgments}


def depth(stage: Stage) -> int:
    """Return how many trainings lie on the longest way to a stage."""
    own = stage.kind in ("train", "online")
    return own + max(map(depth, stage.inputs.values()), default=0)
