"""Topics of the prompts that each iteration trains on.

The share of a topic is taken in each seed over the prompts of its pairs, and averaged over the
seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from harness.registry.figures import SharesFigure
from harness.report.figures.point import Found, Point, seeds_point
from harness.report.figures.rewards import found_of
from harness.report.scores import Column, read_rows, write_columns
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.trainer.figure_runs import FigureRuns

ALL = "all topics"
"""Stands for the topics while none are known."""

SHARE = "share of training prompts"

Prompts = tuple[tuple[str, str], ...]
"""Prompt id and topic of each training prompt."""


@dataclass(frozen=True)
class ShareData:
    """The topics behind a figure.

    Attributes:
        seeds: Root seeds asked for.
        found: For each iteration from 1, whether the prompts of every seed are there.
        prompts: The prompts that are there, by iteration and seed.
        topics: The topics there are, in order; empty where none are known.
        stages: Fingerprints of the stages they come from, by run and by what the stage does.
    """

    FILE: ClassVar[str] = "topics.parquet"

    seeds: tuple[int, ...]
    found: Mapping[int, Found]
    prompts: Mapping[tuple[int, int], Prompts]
    topics: tuple[str, ...]
    stages: Mapping[str, Mapping[str, str]]

    def head(self) -> dict[str, Any]:
        """Return what is needed beside the file to compute the points again, as JSON data."""
        return {
            "seeds": list(self.seeds),
            "topics": list(self.topics),
            "iterations": list(self.found),
        }

    def write(self, path: Path) -> None:
        """Write the topics as Parquet: iteration, seed, prompt_id, topic."""
        rows = [(*key, *prompt) for key, prompts in self.prompts.items() for prompt in prompts]
        iterations, seeds, ids, topics = list(zip(*rows, strict=True)) or [()] * 4
        columns: dict[str, tuple[type, Column]] = {
            "iteration": (int, iterations),
            "seed": (int, seeds),
            "prompt_id": (str, ids),
            "topic": (str, topics),
        }
        write_columns(path, columns)

    @classmethod
    def load(cls, head: Mapping[str, Any], path: Path) -> ShareData:
        """Return the data that `head` and `write` kept."""
        prompts: dict[tuple[int, int], list[tuple[str, str]]] = {}
        for iteration, seed, prompt, topic in read_rows(
            path, "iteration", "seed", "prompt_id", "topic"
        ):
            prompts.setdefault((iteration, seed), []).append((prompt, topic))
        seeds = tuple(head["seeds"])
        found = {}
        for iteration in head["iterations"]:
            done = sum((iteration, seed) in prompts for seed in seeds)
            found[iteration] = Found("ok" if done == len(seeds) else "not_run", done)
        kept = {key: tuple(several) for key, several in prompts.items()}
        return cls(seeds, found, kept, tuple(head["topics"]), {})


def share_points(figure: SharesFigure, data: ShareData) -> list[Point]:
    """Return the share of each topic in each iteration."""
    points = []
    for topic in data.topics or (ALL,):
        for iteration, found in data.found.items():
            parts = [data.prompts.get((iteration, seed)) for seed in data.seeds]
            shares = [sum(t == topic for _, t in part) / len(part) for part in parts if part]
            place = (topic, SHARE, str(iteration))
            points.append(seeds_point(place, "share", "", found, shares))
    return points


def read_share_data(runs: FigureRuns, store: Store) -> ShareData:
    """Read the topics of the training prompts of each iteration from the store.

    Raises:
        StoreError: A stored file is not what was written.
    """
    from harness.trainer.figure_runs import topics_stage
    from harness.worlds.lookup import world_of
    from harness.worlds.protocol import NO_TOPIC

    figure = runs.figure
    assert isinstance(figure, SharesFigure)
    sorting, lacking = world_of(runs.profile).topics(), runs.lacking.get(figure.row)
    if lacking is None and sorting is None:
        lacking = f"`{runs.profile.name}` has no scorer that sorts prompts by topic"
    if lacking is not None or sorting is None:
        return ShareData(runs.seeds, {1: Found("not_available", 0, lacking)}, {}, (), {})
    run_id = runs.places[figure.row][1].run
    assert run_id is not None
    of_seeds = {seed: runs.runs[run_id, seed].iterations for seed in runs.seeds}
    count = len(of_seeds[runs.seeds[0]])
    found: dict[int, Found] = {}
    prompts: dict[tuple[int, int], Prompts] = {}
    stages: dict[str, dict[str, str]] = {}
    for number in range(1, count + 1):
        pairs = {seed: iterations[number - 1].pairs for seed, iterations in of_seeds.items()}
        topics_in = {seed: topics_stage(sorting, stage) for seed, stage in pairs.items()}
        found[number] = found_of(list(topics_in.values()), store)
        for seed, stage in pairs.items():
            telling = topics_in[seed].fingerprint
            if store.status(telling) == "done":
                prompts[number, seed] = tuple(sorting.read(store.open(telling)))
                name = f"{run_id}/{runs.profile.name}/seed{seed}"
                stages.setdefault(name, {})[f"{stage.kind} {number}"] = stage.fingerprint
    unread = any(topic == NO_TOPIC for several in prompts.values() for _, topic in several)
    topics = (*sorting.names, *([NO_TOPIC] if unread else []))
    return ShareData(runs.seeds, found, prompts, topics, stages)
