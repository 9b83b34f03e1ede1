"""What figures show of single prompts: their rewards, and the topics that iterations train on.

Rewards are those of the prompts that an iteration starts from, several for each prompt, from each
seed: those behind the informativeness of the iteration's prompts where it chooses among them, else
those its pairs are made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from harness.registry.figures import RewardsFigure, SharesFigure, TopicsFigure
from harness.report.cells import Failures
from harness.report.figures.points import Found
from harness.report.scores import Values, read_rows, write_columns
from harness.runtime import Stage, Store
from harness.strict import Strict

if TYPE_CHECKING:
    from harness.trainer.runs import FigureRuns
    from harness.worlds.protocol import Topics

Floats = NDArray[np.float64]

Prompts = tuple[tuple[str, str], ...]
"""Prompt id and topic of each training prompt."""

Stages = dict[str, dict[str, str]]
"""Fingerprints of stages, by run and by what the stage does."""


@dataclass(frozen=True)
class PromptRewards:
    """The rewards of one seed's prompts.

    Attributes:
        prompt_ids: The prompts.
        rewards: Rewards, shape (prompts, answers), in the reward model's units.
        topics: Topic of each prompt; empty where topics are not needed or not known.
    """

    prompt_ids: tuple[str, ...]
    rewards: Floats
    topics: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> PromptRewards:
        """Return rows of (prompt id, sample, reward[, topic]), prompt by prompt, as arrays."""
        n = 1 + max(row[1] for row in rows)
        first = rows[::n]
        rewards = np.array([row[2] for row in rows], dtype=np.float64).reshape(-1, n)
        topics = tuple(row[3] for row in first) if len(first[0]) > 3 else ()
        return cls(tuple(row[0] for row in first), rewards, topics)


class RewardData(Strict):
    """The rewards behind a figure."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    file: Literal["rewards.parquet"] = "rewards.parquet"
    """The file that holds the rewards."""
    seeds: tuple[int, ...]
    """Root seeds asked for."""
    topics: tuple[str, ...] = ()
    """The topics there are, in order; empty where they are not needed or not known."""
    found: Found = Field(default=Found("not_run", 0), exclude=True)
    """Whether the rewards of every seed are there."""
    by_seed: dict[int, PromptRewards] = Field(default_factory=dict, exclude=True)
    """Those that are there."""
    stages: Stages = Field(default_factory=dict, exclude=True)
    """The stages they come from."""

    @property
    def parts(self) -> list[PromptRewards]:
        """The rewards of each seed that is there, in the order of the seeds."""
        return [self.by_seed[seed] for seed in self.seeds if seed in self.by_seed]

    def write(self, path: Path) -> None:
        """Write the rewards as Parquet: seed, prompt_id, sample, reward, and topic where known."""
        rows = [
            (seed, prompt, sample, float(reward), topic)
            for seed, of_seed in self.by_seed.items()
            for prompt, topic, several in itertools.zip_longest(
                of_seed.prompt_ids, of_seed.topics, of_seed.rewards, fillvalue=""
            )
            for sample, reward in enumerate(several)
        ]
        columns = {"seed": int, "prompt_id": str, "sample": int, "reward": float, "topic": str}
        if not self.topics:
            del columns["topic"]
        _write(path, columns, rows)

    def read(self, path: Path) -> RewardData:
        """Return the data with the rewards that `write` kept."""
        names = ["seed", "prompt_id", "sample", "reward", *(["topic"] if self.topics else [])]
        by_seed: dict[int, list[tuple[Any, ...]]] = {}
        for seed, *rest in read_rows(path, *names):
            by_seed.setdefault(seed, []).append(tuple(rest))
        found = Found.of(len(set(self.seeds) & set(by_seed)), len(self.seeds))
        parts = {seed: PromptRewards.of(rows) for seed, rows in by_seed.items()}
        return self.model_copy(update={"found": found, "by_seed": parts})

    @classmethod
    def stored(cls, runs: FigureRuns, store: Store) -> RewardData:
        """Return the rewards that a figure shows, as a store has them.

        Raises:
            StoreError: A stored file is not what was written.
        """
        figure = runs.figure
        assert isinstance(figure, RewardsFigure)
        topics, lacking = None, runs.lacking.get(figure.row)
        if isinstance(figure, TopicsFigure):
            topics, lacking = _topics(runs, figure.row)
        if lacking is not None:
            return cls(seeds=runs.seeds, found=Found("not_available", 0, lacking))
        run_id = runs.places[figure.row][1].run
        assert run_id is not None
        stages = {
            seed: runs.runs[run_id, seed].iterations[figure.iteration - 1].rewards
            for seed in runs.seeds
        }
        last = {seed: _last(stage, topics, store) for seed, stage in stages.items()}
        done = {s: stages[s] for s, t in last.items() if store.status(t.fingerprint) == "done"}
        by_seed = {seed: _rewards(store, stage, topics) for seed, stage in done.items()}
        told = (topic for of_seed in by_seed.values() for topic in of_seed.topics)
        return cls(
            seeds=runs.seeds,
            topics=() if topics is None else _names(topics, told),
            found=found_of(list(last.values()), store),
            by_seed=by_seed,
            stages={
                f"{run_id}/{runs.profile.name}/seed{seed}": {
                    f"annotate {figure.iteration}": stage.fingerprint
                }
                for seed, stage in done.items()
            },
        )


class ShareData(Strict):
    """The topics behind a figure of the prompts that iterations train on."""

    file: Literal["topics.parquet"] = "topics.parquet"
    """The file that holds the topics."""
    seeds: tuple[int, ...]
    """Root seeds asked for."""
    topics: tuple[str, ...] = ()
    """The topics there are, in order; empty where none are known."""
    iterations: tuple[int, ...] = (1,)
    """The iterations, from 1."""
    found: dict[int, Found] = Field(default_factory=dict, exclude=True)
    """For each iteration, whether the prompts of every seed are there."""
    prompts: dict[tuple[int, int], Prompts] = Field(default_factory=dict, exclude=True)
    """The prompts that are there, by iteration and seed."""
    stages: Stages = Field(default_factory=dict, exclude=True)
    """The stages they come from."""

    def write(self, path: Path) -> None:
        """Write the topics as Parquet: iteration, seed, prompt_id, topic."""
        rows = [(*key, *prompt) for key, prompts in self.prompts.items() for prompt in prompts]
        columns = {"iteration": int, "seed": int, "prompt_id": str, "topic": str}
        _write(path, columns, rows)

    def read(self, path: Path) -> ShareData:
        """Return the data with the topics that `write` kept."""
        prompts: dict[tuple[int, int], list[tuple[str, str]]] = {}
        for iteration, seed, prompt, topic in read_rows(
            path, "iteration", "seed", "prompt_id", "topic"
        ):
            prompts.setdefault((iteration, seed), []).append((prompt, topic))
        found = {
            iteration: Found.of(
                sum((iteration, seed) in prompts for seed in self.seeds), len(self.seeds)
            )
            for iteration in self.iterations
        }
        kept = {key: tuple(several) for key, several in prompts.items()}
        return self.model_copy(update={"found": found, "prompts": kept})

    @classmethod
    def stored(cls, runs: FigureRuns, store: Store) -> ShareData:
        """Return the topics of the training prompts of each iteration, as a store has them.

        Raises:
            StoreError: A stored file is not what was written.
        """
        from harness.trainer.runs import topics_stage

        figure = runs.figure
        assert isinstance(figure, SharesFigure)
        sorting, lacking = _topics(runs, figure.row)
        if lacking is not None or sorting is None:
            return cls(seeds=runs.seeds, found={1: Found("not_available", 0, lacking)})
        run_id = runs.places[figure.row][1].run
        assert run_id is not None
        of_seeds = {seed: runs.runs[run_id, seed].iterations for seed in runs.seeds}
        numbers = range(1, len(of_seeds[runs.seeds[0]]) + 1)
        found: dict[int, Found] = {}
        prompts: dict[tuple[int, int], Prompts] = {}
        stages: Stages = {}
        for number in numbers:
            pairs = {seed: iterations[number - 1].pairs for seed, iterations in of_seeds.items()}
            topics_in = {seed: topics_stage(sorting, stage) for seed, stage in pairs.items()}
            found[number] = found_of(list(topics_in.values()), store)
            for seed, stage in pairs.items():
                telling = topics_in[seed].fingerprint
                if store.status(telling) == "done":
                    prompts[number, seed] = tuple(sorting.read(store.open(telling)))
                    name = f"{run_id}/{runs.profile.name}/seed{seed}"
                    stages.setdefault(name, {})[f"{stage.kind} {number}"] = stage.fingerprint
        told = (topic for several in prompts.values() for _, topic in several)
        return cls(
            seeds=runs.seeds, topics=_names(sorting, told), iterations=tuple(numbers),
            found=found, prompts=prompts, stages=stages,
        )  # fmt: skip


def found_of(stages: Sequence[Stage], store: Store) -> Found:
    """Return whether some stages, one for each seed, are done."""
    missing = [stage for stage in stages if store.status(stage.fingerprint) != "done"]
    done = len(stages) - len(missing)
    if not missing:
        return Found("ok", done)
    failures = Failures(store)
    reasons = (failures.behind(stage) for stage in missing)
    reason = next((why for why in reasons if why is not None), None)
    if reason is not None:
        return Found("failed", done, reason)
    return Found("partial" if done else "not_run", done)


def _topics(runs: FigureRuns, row: str) -> tuple[Topics | None, str | None]:
    """Return what sorts prompts by topic, and why a row's topics cannot be shown."""
    from harness.worlds.lookup import world_of

    topics, lacking = world_of(runs.profile).topics(), runs.lacking.get(row)
    if lacking is None and topics is None:
        lacking = f"`{runs.profile.name}` has no scorer that sorts prompts by topic"
    return topics, lacking


def _names(topics: Topics, told: Any) -> tuple[str, ...]:
    """Return the names of the topics, with that of prompts of none where there are any."""
    from harness.worlds.protocol import NO_TOPIC

    return (*topics.names, *([NO_TOPIC] if NO_TOPIC in told else []))


def _last(rewards: Stage, topics: Topics | None, store: Store) -> Stage:
    """Return what a seed waits for: its rewards, or the topics, which a model may tell apart."""
    from harness.trainer.runs import topics_stage

    if topics is None or store.status(rewards.fingerprint) != "done":
        return rewards
    answers = rewards.inputs["completions"]
    sorted_by = topics_stage(topics, answers)
    return rewards if sorted_by == answers else sorted_by


def _rewards(store: Store, stage: Stage, topics: Topics | None) -> PromptRewards:
    """Read one seed's rewards, and the topics of its prompts."""
    from harness.trainer.runs import topics_stage

    path = store.open(stage.fingerprint) / "rewards.parquet"
    found = PromptRewards.of(read_rows(path, "prompt_id", "sample", "reward"))
    if topics is None:
        return found
    sorted_by = topics_stage(topics, stage.inputs["completions"])
    by_prompt = dict(topics.read(store.open(sorted_by.fingerprint)))
    of_prompts = tuple(by_prompt[prompt] for prompt in found.prompt_ids)
    return PromptRewards(found.prompt_ids, found.rewards, of_prompts)


def _write(path: Path, columns: Mapping[str, type], rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows as Parquet; what a row has beyond the columns is left out."""
    values: list[Values] = [[row[i] for row in rows] for i in range(len(columns))]
    write_columns(path, dict(zip(columns, zip(columns.values(), values, strict=True), strict=True)))
