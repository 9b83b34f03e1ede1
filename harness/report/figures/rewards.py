"""Rewards of the prompts that an iteration starts from: several for each prompt, from each seed.

They are those behind the informativeness of the iteration's prompts where it chooses among them,
else those its pairs are made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.registry.figures import RewardsFigure, TopicsFigure
from harness.report.cells import Failures
from harness.report.figures.point import Found
from harness.report.scores import Column, read_rows, write_columns
from harness.runtime import Stage, Store

if TYPE_CHECKING:
    from harness.trainer.figure_runs import FigureRuns
    from harness.worlds.protocol import Topics

Floats = NDArray[np.float64]


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


@dataclass(frozen=True)
class RewardData:
    """The rewards behind a figure.

    Attributes:
        seeds: Root seeds asked for.
        found: Whether the rewards of every seed are there.
        by_seed: Those that are there.
        topics: The topics there are, in order; empty where they are not needed or not known.
        stages: Fingerprints of the stages they come from, by run and by what the stage does.
    """

    FILE: ClassVar[str] = "rewards.parquet"

    seeds: tuple[int, ...]
    found: Found
    by_seed: Mapping[int, PromptRewards]
    topics: tuple[str, ...]
    stages: Mapping[str, Mapping[str, str]]

    @property
    def parts(self) -> list[PromptRewards]:
        """The rewards of each seed that is there, in the order of the seeds."""
        return [self.by_seed[seed] for seed in self.seeds if seed in self.by_seed]

    def head(self) -> dict[str, Any]:
        """Return what is needed beside the file to compute the points again, as JSON data."""
        return {"seeds": list(self.seeds), "topics": list(self.topics)}

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
        seeds, prompts, samples, rewards, topics = list(zip(*rows, strict=True)) or [()] * 5
        columns: dict[str, tuple[type, Column]] = {
            "seed": (int, seeds),
            "prompt_id": (str, prompts),
            "sample": (int, samples),
            "reward": (float, rewards),
        }
        if self.topics:
            columns["topic"] = (str, topics)
        write_columns(path, columns)

    @classmethod
    def load(cls, head: Mapping[str, Any], path: Path) -> RewardData:
        """Return the data that `head` and `write` kept."""
        names = ["seed", "prompt_id", "sample", "reward", *(["topic"] if head["topics"] else [])]
        by_seed: dict[int, list[tuple[Any, ...]]] = {}
        for seed, *rest in read_rows(path, *names):
            by_seed.setdefault(seed, []).append(tuple(rest))
        seeds = tuple(head["seeds"])
        done = len(set(seeds) & set(by_seed))
        found = Found("ok" if done == len(seeds) else "not_run", done)
        parts = {seed: _prompt_rewards(rows) for seed, rows in by_seed.items()}
        return cls(seeds, found, parts, tuple(head["topics"]), {})


def _prompt_rewards(rows: Sequence[tuple[Any, ...]]) -> PromptRewards:
    """Return rows of (prompt id, sample, reward[, topic]), prompt by prompt, as arrays."""
    n = 1 + max(row[1] for row in rows)
    first = rows[::n]
    rewards = np.array([row[2] for row in rows], dtype=np.float64).reshape(-1, n)
    topics = tuple(row[3] for row in first) if len(first[0]) > 3 else ()
    return PromptRewards(tuple(row[0] for row in first), rewards, topics)


def read_reward_data(runs: FigureRuns, store: Store) -> RewardData:
    """Read the rewards that a figure shows from the store.

    Raises:
        StoreError: A stored file is not what was written.
    """
    from harness.worlds.lookup import world_of
    from harness.worlds.protocol import NO_TOPIC

    figure = runs.figure
    assert isinstance(figure, RewardsFigure)
    topics = world_of(runs.profile).topics() if isinstance(figure, TopicsFigure) else None
    lacking = runs.lacking.get(figure.row)
    if lacking is not None:
        return RewardData(runs.seeds, Found("not_available", 0, lacking), {}, (), {})
    if isinstance(figure, TopicsFigure) and topics is None:
        reason = f"`{runs.profile.name}` has no scorer that sorts prompts by topic"
        return RewardData(runs.seeds, Found("not_available", 0, reason), {}, (), {})
    stages = _stages(runs, figure)
    last = {seed: _last(stage, topics, store) for seed, stage in stages.items()}
    done = {s: stages[s] for s, t in last.items() if store.status(t.fingerprint) == "done"}
    by_seed = {seed: _read(store, stage, topics) for seed, stage in done.items()}
    names: tuple[str, ...] = ()
    if topics is not None:
        unread = any(NO_TOPIC in of_seed.topics for of_seed in by_seed.values())
        names = (*topics.names, *([NO_TOPIC] if unread else []))
    run_id = runs.places[figure.row][1].run
    behind = {
        f"{run_id}/{runs.profile.name}/seed{seed}": {
            f"annotate {figure.iteration}": stage.fingerprint
        }
        for seed, stage in done.items()
    }
    return RewardData(runs.seeds, found_of(list(last.values()), store), by_seed, names, behind)


def _stages(runs: FigureRuns, figure: RewardsFigure) -> dict[int, Stage]:
    run_id = runs.places[figure.row][1].run
    assert run_id is not None
    return {
        seed: runs.runs[run_id, seed].iterations[figure.iteration - 1].rewards
        for seed in runs.seeds
    }


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


def _last(rewards: Stage, topics: Topics | None, store: Store) -> Stage:
    """Return what a seed waits for: its rewards, or the topics, which a model may tell apart."""
    from harness.trainer.figure_runs import topics_stage

    if topics is None or store.status(rewards.fingerprint) != "done":
        return rewards
    answers = rewards.inputs["completions"]
    sorted_by = topics_stage(topics, answers)
    return rewards if sorted_by == answers else sorted_by


def _read(store: Store, stage: Stage, topics: Topics | None) -> PromptRewards:
    """Read one seed's rewards, and the topics of its prompts."""
    from harness.trainer.figure_runs import topics_stage

    path = store.open(stage.fingerprint) / "rewards.parquet"
    found = _prompt_rewards(read_rows(path, "prompt_id", "sample", "reward"))
    if topics is None:
        return found
    sorted_by = topics_stage(topics, stage.inputs["completions"])
    by_prompt = dict(topics.read(store.open(sorted_by.fingerprint)))
    of_prompts = tuple(by_prompt[prompt] for prompt in found.prompt_ids)
    return PromptRewards(found.prompt_ids, found.rewards, of_prompts)
