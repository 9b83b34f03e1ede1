"""The per-prompt values behind a figure: scores of runs, or the prompts themselves.

Rewards are those of the prompts that an iteration starts from: those that informativeness is
computed from if the iteration selects prompts, else those that its pairs are made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.pipeline.runs import FigureRuns, topics_stage
from harness.registry.figures import RewardsFigure, SharesFigure, TopicsFigure
from harness.report.cells import Availability, Failures
from harness.report.publication import ByStep
from harness.report.scores import Measured, read_score_file, write_columns, write_scores
from harness.runtime import Stage, Store
from harness.strict import Strict
from harness.worlds import NO_TOPIC
from harness.worlds.lookup import world_of
from harness.worlds.stage_io import read_rows

Floats = NDArray[np.float64]


class ScoreData(Strict):
    file: Literal["scores.parquet"] = "scores.parquet"
    seeds: tuple[int, ...]
    measured: Measured = Field(default_factory=dict, exclude=True)
    stages: ByStep = Field(default_factory=dict, exclude=True)

    def write(self, path: Path) -> None:
        write_scores(self.measured, path)

    def read(self, path: Path) -> ScoreData:
        return self.model_copy(update={"measured": read_score_file(path)})


TYPES = {
    "iteration": int, "seed": int, "prompt_id": str, "sample": int, "reward": float, "topic": str
}  # fmt: skip
"""Columns of published prompt data, in order; each file has a subset."""


Rows = Sequence[Mapping[str, Any]]


class SeedPrompts(NamedTuple):
    """One seed's prompts: rewards, of shape (prompts, answers), and topics; either may be empty."""

    rewards: Floats
    topics: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Rows) -> SeedPrompts:
        """Convert rows, ordered by prompt and then answer, to arrays."""
        n = 1 + max(row.get("sample", 0) for row in rows)
        first, rewards = rows[::n], [row["reward"] for row in rows if "reward" in row]
        return cls(
            np.array(rewards, dtype=np.float64).reshape(len(first), -1),
            tuple(row["topic"] for row in first if "topic" in row),
        )


class PromptData(Strict):
    """The prompts behind a figure: rewards of one iteration, or topics of every iteration."""

    file: Literal["rewards.parquet", "topics.parquet"] = "rewards.parquet"
    seeds: tuple[int, ...]
    topics: tuple[str, ...] = ()
    """All topics, in order; empty if not needed or unknown."""
    iterations: int = 1
    found: tuple[Availability, ...] = Field(default=(Availability("not_run", 0),), exclude=True)
    """For each iteration, whether the prompts of every seed are available."""
    rows: dict[tuple[int, int], Any] = Field(default_factory=dict, exclude=True)
    """The rows of the available prompts, by iteration shown (from 1) and seed."""
    stages: ByStep = Field(default_factory=dict, exclude=True)

    def of(self, iteration: int = 1) -> list[SeedPrompts]:
        """Return the prompts of each available seed, in seed order."""
        keys = ((iteration, seed) for seed in self.seeds)
        return [SeedPrompts.of(self.rows[key]) for key in keys if key in self.rows]

    @property
    def _columns(self) -> dict[str, type]:
        left_out = {"sample", "reward"} if self.file == "topics.parquet" else {"iteration"}
        left_out |= set() if self.topics else {"topic"}
        return {name: kind for name, kind in TYPES.items() if name not in left_out}

    def write(self, path: Path) -> None:
        columns = self._columns
        rows = [
            {"iteration": iteration, "seed": seed, **row}
            for (iteration, seed), own in self.rows.items()
            for row in own
        ]
        write_columns(path, columns, [tuple(row[name] for name in columns) for row in rows])

    def read(self, path: Path) -> PromptData:
        rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for row in read_rows(path, *self._columns):
            rows.setdefault((row.pop("iteration", 1), row.pop("seed")), []).append(row)
        done = [sum(i == number for i, _ in rows) for number in range(1, self.iterations + 1)]
        found = tuple(Availability("ok" if n == len(self.seeds) else "not_run", n) for n in done)
        return self.model_copy(update={"rows": rows, "found": found})


Data = ScoreData | PromptData


def stored_prompts(runs: FigureRuns, store: Store) -> PromptData:
    figure = runs.figure
    assert isinstance(figure, RewardsFigure | SharesFigure)
    shares = isinstance(figure, SharesFigure)
    topics, lacking = None, runs.lacking.get(figure.row)
    if isinstance(figure, SharesFigure | TopicsFigure):
        topics = world_of(runs.profile).prompts.topics()
        if topics is None and lacking is None:
            lacking = f"`{runs.profile.name}` has no scorer that sorts prompts by topic"
    empty = PromptData(file="topics.parquet" if shares else "rewards.parquet", seeds=runs.seeds)
    if lacking is not None:
        return empty.model_copy(update={"found": (Availability("not_available", 0, lacking),)})
    run_id = runs.places[figure.row][1].run
    assert run_id is not None
    of_seeds = {seed: runs.runs[run_id, seed] for seed in runs.seeds}
    numbers = range(1, len(of_seeds[runs.seeds[0]].iterations) + 1)
    if isinstance(figure, RewardsFigure):
        numbers = range(figure.iteration, figure.iteration + 1)
    rows, stages, found, failures = {}, ByStep(), [], Failures(store)
    for shown, number in enumerate(numbers, start=1):
        waited: list[Stage] = []
        for seed, run in of_seeds.items():
            iteration = run.iterations[number - 1]
            stage = iteration.pairs if shares else iteration.rewards
            asked = stage.inputs["completions"] if stage.kind == "annotate" else stage
            telling = None if topics is None else topics_stage(topics, asked)
            # Topics may be known before the prompts have rewards.
            first = not shares and store.status(stage.fingerprint) != "done"
            waited.append(stage if telling is None or first else telling)
            if store.status(waited[-1].fingerprint) == "done":
                told = []
                if topics is not None and telling is not None:
                    told = topics.read(store.open(telling.fingerprint))
                rows[shown, seed] = _rows(stage, told, store)
                place = stages.setdefault(run.name, {})
                place[f"{stage.kind} {number}"] = stage.fingerprint
        found.append(failures.state([[stage] for stage in waited]))
    seen = {row.get("topic") for own in rows.values() for row in own}
    known = () if topics is None else (*topics.names, *([NO_TOPIC] if NO_TOPIC in seen else []))
    update = {"topics": known, "iterations": len(found), "found": tuple(found)}
    return empty.model_copy(update=update | {"rows": rows, "stages": stages})


def _rows(stage: Stage, told: Sequence[tuple[str, str]], store: Store) -> Rows:
    if stage.kind != "annotate":
        return [{"prompt_id": prompt, "topic": topic} for prompt, topic in told]
    path, topics = store.file(stage.fingerprint, "rewards.parquet"), dict(told)
    rows = read_rows(path, "prompt_id", "sample", "reward")
    return [row | {"topic": topics[row["prompt_id"]]} for row in rows] if told else rows
