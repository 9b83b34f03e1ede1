"""What figures show of single prompts: their rewards, and the topics that iterations train on.

Rewards are those of the prompts that an iteration starts from: those behind the informativeness of
the iteration's prompts where it chooses among them, else those its pairs are made of. Each number
is taken in each seed over its prompts and averaged over the seeds. Prompts whose rewards are all
equal tie; a correlation is therefore given over all prompts and over those with any spread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from harness.eva.informativeness import informativeness
from harness.registry.figures import (
    CorrelationFigure,
    DensitiesFigure,
    RewardsFigure,
    SharesFigure,
    TopicsFigure,
)
from harness.report.cells import Failures
from harness.report.figures.scores import Found, Point, Quantity, Stages, seeds_point
from harness.report.scores import read_rows, write_rows
from harness.runtime import Stage, Store
from harness.statistics import spearman
from harness.strict import Strict

if TYPE_CHECKING:
    from harness.pipeline.runs import FigureRuns
    from harness.worlds import Topics

Floats = NDArray[np.float64]

TYPES = {
    "iteration": int, "seed": int, "prompt_id": str, "sample": int, "reward": float, "topic": str
}  # fmt: skip
"""The columns of what is published, in order; a file has some of them."""


@dataclass(frozen=True)
class Prompts:
    """One seed's prompts, with rewards of shape (prompts, answers) in the reward model's units.

    Where only topics are shown there are no answers. Topics are empty where they are not needed or
    not known.
    """

    prompt_ids: tuple[str, ...]
    rewards: Floats
    topics: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Prompts:
        """Return rows, prompt by prompt and answer by answer, as arrays."""
        n = 1 + max(row.get("sample", 0) for row in rows)
        first, rewards = rows[::n], [row["reward"] for row in rows if "reward" in row]
        return cls(
            tuple(row["prompt_id"] for row in first),
            np.array(rewards, dtype=np.float64).reshape(len(first), -1),
            tuple(row["topic"] for row in first if "topic" in row),
        )


class PromptData(Strict):
    """The prompts behind a figure: the rewards of one iteration's, or the topics of every one's."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    file: Literal["rewards.parquet", "topics.parquet"] = "rewards.parquet"
    """The file that holds the rewards, or the topics."""
    seeds: tuple[int, ...]
    topics: tuple[str, ...] = ()
    """The topics there are, in order; empty where they are not needed or not known."""
    iterations: int = 1
    found: tuple[Found, ...] = Field(default=(Found("not_run", 0),), exclude=True)
    """For each iteration, whether the prompts of every seed are there."""
    parts: dict[tuple[int, int], Prompts] = Field(default_factory=dict, exclude=True)
    """Those that are there, by iteration shown, from 1, and seed."""
    stages: Stages = Field(default_factory=dict, exclude=True)

    def of(self, iteration: int = 1) -> list[Prompts]:
        """Return the prompts of each seed that is there, in the order of the seeds."""
        keys = ((iteration, seed) for seed in self.seeds)
        return [self.parts[key] for key in keys if key in self.parts]

    @property
    def _columns(self) -> dict[str, type]:
        left_out = {"sample", "reward"} if self.file == "topics.parquet" else {"iteration"}
        left_out |= set() if self.topics else {"topic"}
        return {name: kind for name, kind in TYPES.items() if name not in left_out}

    def write(self, path: Path) -> None:
        rows = []
        for (iteration, seed), part in self.parts.items():
            for i, prompt in enumerate(part.prompt_ids):
                topic = part.topics[i] if part.topics else ""
                for sample, reward in enumerate(part.rewards[i].tolist() or [0.0]):
                    values = (iteration, seed, prompt, sample, reward, topic)
                    row = dict(zip(TYPES, values, strict=True))
                    rows.append(tuple(row[name] for name in self._columns))
        write_rows(path, self._columns, rows)

    def read(self, path: Path) -> PromptData:
        rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for values in read_rows(path, *self._columns):
            row = dict(zip(self._columns, values, strict=True))
            rows.setdefault((row.get("iteration", 1), row["seed"]), []).append(row)
        parts = {key: Prompts.of(own) for key, own in rows.items()}
        found = self.model_copy(update={"parts": parts})
        done = [len(found.of(number)) for number in range(1, self.iterations + 1)]
        states = (Found("ok" if n == len(self.seeds) else "not_run", n) for n in done)
        return found.model_copy(update={"found": tuple(states)})

    @classmethod
    def stored(cls, runs: FigureRuns, store: Store) -> PromptData:
        from harness.worlds import NO_TOPIC
        from harness.worlds.lookup import world_of

        figure = runs.figure
        assert isinstance(figure, RewardsFigure | SharesFigure)
        shares = isinstance(figure, SharesFigure)
        topics, lacking = None, runs.lacking.get(figure.row)
        if isinstance(figure, SharesFigure | TopicsFigure):
            topics = world_of(runs.profile).prompts.topics()
            if topics is None and lacking is None:
                lacking = f"`{runs.profile.name}` has no scorer that sorts prompts by topic"
        empty = cls(file="topics.parquet" if shares else "rewards.parquet", seeds=runs.seeds)
        if lacking is not None:
            return empty.model_copy(update={"found": (Found("not_available", 0, lacking),)})
        run_id = runs.places[figure.row][1].run
        assert run_id is not None
        of_seeds = {seed: runs.runs[run_id, seed].iterations for seed in runs.seeds}
        numbers = range(1, len(of_seeds[runs.seeds[0]]) + 1)
        if isinstance(figure, RewardsFigure):
            numbers = range(figure.iteration, figure.iteration + 1)
        parts, stages, found = {}, Stages(), []
        for shown, number in enumerate(numbers, start=1):
            waited: list[Stage] = []
            for seed, iterations in of_seeds.items():
                iteration = iterations[number - 1]
                stage = iteration.pairs if shares else iteration.rewards
                telling = None if topics is None else _told_by(stage, topics)
                # Topics may be told before there are rewards of the prompts.
                first = not shares and store.status(stage.fingerprint) != "done"
                waited.append(stage if telling is None or first else telling)
                if store.status(waited[-1].fingerprint) == "done":
                    told = []
                    if topics is not None and telling is not None:
                        told = topics.read(store.open(telling.fingerprint))
                    parts[shown, seed] = _prompts(stage, told, store)
                    run = stages.setdefault(f"{run_id}/{runs.profile.name}/seed{seed}", {})
                    run[f"{stage.kind} {number}"] = stage.fingerprint
            found.append(found_of(waited, store))
        seen = {topic for part in parts.values() for topic in part.topics}
        known = () if topics is None else (*topics.names, *([NO_TOPIC] if NO_TOPIC in seen else []))
        update = {"topics": known, "iterations": len(found), "found": tuple(found)}
        return empty.model_copy(update=update | {"parts": parts, "stages": stages})


def found_of(stages: Sequence[Stage], store: Store) -> Found:
    failures = Failures(store)
    state, done = failures.state([[stage] for stage in stages])
    reasons = [why for stage in stages if (why := failures.behind(stage)) is not None]
    return Found(state, done, *reasons[:1])


def _told_by(stage: Stage, topics: Topics) -> Stage:
    """Return the stage that tells the topics of pairs, or of prompts that have rewards."""
    from harness.pipeline.runs import topics_stage

    return topics_stage(topics, stage.inputs["completions"] if stage.kind == "annotate" else stage)


def _prompts(stage: Stage, told: Sequence[tuple[str, str]], store: Store) -> Prompts:
    if stage.kind != "annotate":
        return Prompts.of([{"prompt_id": prompt, "topic": topic} for prompt, topic in told])
    topics, names = dict(told), ("prompt_id", "sample", "reward")
    path = store.file(stage.fingerprint, "rewards.parquet")
    rows = [dict(zip(names, row, strict=True)) for row in read_rows(path, *names)]
    return Prompts.of([row | ({"topic": topics[row["prompt_id"]]} if told else {}) for row in rows])


NAMES: Mapping[str, str] = {
    "a_min": "best less worst (A*_min)",
    "a_avg": "best less mean (A*_avg)",
    "a_dis": "best less second best (A*_dis)",
    "var": "variance (var)",
    "mean": "mean (avg)",
    "mean_inv": "mean (1/avg inverts it)",
    "a_min_inv": "best less worst (1/A*_min inverts it)",
    "uniform": "uniform",
}
"""What an informativeness metric is called in a figure."""

ALL_TOPICS = "all topics"
"""Stands for the topics while none are known."""

TRAINED_SHARE = "share of training prompts"

SUMMARY, HISTOGRAM = "summary", "histogram"
"""Panels of densities: what is told of a metric, and the share of prompts in each bin."""

LOW = 0.1
"""Values below this, from 0 to 1, count as low."""

TOLD: tuple[tuple[str, Quantity, Callable[[Floats], float]], ...] = (
    ("at the least value", "share", lambda v: float((v == 0.0).mean())),
    (f"below {LOW:g}", "share", lambda v: float((v < LOW).mean())),
    ("lower quartile", "level", lambda v: float(np.quantile(v, 0.25))),
    ("median", "level", lambda v: float(np.median(v))),
    ("upper quartile", "level", lambda v: float(np.quantile(v, 0.75))),
)
"""What is told of a metric: name, quantity, and how it is computed from the scaled values."""

ALL, SPREAD = "all prompts", "prompts with any spread"
"""The prompts that a correlation is over."""

RHO, PROMPTS = "Spearman's ρ", "prompts of a seed"

SHARE, MEAN = "share of prompts", "mean reward"
"""Panels of topics, beside that of the reward gap."""


def scaled(values: Floats) -> Floats:
    """Return values from 0 to 1, min-max normalised as weights are; all 0 where they are equal."""
    return np.asarray((values - values.min()) / (float(np.ptp(values)) or 1.0))


def share_points(_: SharesFigure, data: PromptData) -> list[Point]:
    points = []
    for topic in data.topics or (ALL_TOPICS,):
        for iteration, found in enumerate(data.found, start=1):
            parts = [part.topics for part in data.of(iteration)]
            shares = [topics.count(topic) / len(topics) for topics in parts]
            place = (topic, TRAINED_SHARE, str(iteration))
            points.append(seeds_point(place, "share", "", found, shares))
    return points


def density_points(figure: DensitiesFigure, data: PromptData) -> list[Point]:
    points = []
    for metric in figure.metrics:
        name = NAMES[metric]
        seeds = [scaled(informativeness(part.rewards, metric)) for part in data.of()]
        for at, quantity, number in TOLD:
            told = [number(values) for values in seeds]
            points.append(seeds_point((SUMMARY, name, at), quantity, "0-1", data.found[0], told))
        edges = np.linspace(0.0, 1.0, figure.bins + 1)
        shares = [np.histogram(values, edges)[0] / len(values) for values in seeds]
        for i, edge in enumerate(edges[:-1]):
            in_bin = [float(seed[i]) for seed in shares]
            place = (HISTOGRAM, name, f"{edge:.4g}")
            points.append(seeds_point(place, "share", "0-1", data.found[0], in_bin))
    return points


def correlation_points(figure: CorrelationFigure, data: PromptData) -> list[Point]:
    points = []
    for series in (ALL, SPREAD):
        pairs = [xy(figure, part, only_spread=series == SPREAD) for part in data.of()]
        rho = [spearman(x.tolist(), y.tolist()) for x, y in pairs]
        place = ("", series, RHO)
        points.append(seeds_point(place, "rank correlation", "", data.found[0], rho))
        counts = [float(len(x)) for x, _ in pairs]
        points.append(seeds_point(("", series, PROMPTS), "count", "", data.found[0], counts))
    return points


def correlation_findings(figure: CorrelationFigure, points: Sequence[Point]) -> list[str]:
    rho = {point.series: point for point in points if point.at == RHO}
    if any(point.value is None for point in rho.values()):
        return []
    told = ", ".join(f"{p.value:.3f} over {series}" for series, p in rho.items())
    names = f"{NAMES[figure.x]} and {NAMES[figure.y]}"
    return [f"Rank correlation of {names}, mean over seeds: {told}."]


def xy(
    figure: CorrelationFigure, part: Prompts, *, only_spread: bool = False
) -> tuple[Floats, Floats]:
    rewards = part.rewards
    if only_spread:
        rewards = rewards[np.ptp(rewards, axis=1) > 0.0]
    if not len(rewards):
        return np.empty(0), np.empty(0)
    return informativeness(rewards, figure.x), informativeness(rewards, figure.y)


def variance_bounds(gap: Floats, n: int) -> tuple[Floats, Floats]:
    """Return the least and the largest variance that n rewards of a range can have.

    n rewards of range R have a variance of at least R²/2n, where all but the two ends lie in the
    middle, and of at most R²/4 (a little less for odd n), where half of them lie at each end.
    """
    low, high = n // 2, n - n // 2
    return np.asarray(gap**2 / (2 * n)), np.asarray(gap**2 * low * high / n**2)


def _gap_name(figure: TopicsFigure) -> str:
    return f"reward gap: {NAMES[figure.gap]}"


def topic_points(figure: TopicsFigure, data: PromptData) -> list[Point]:
    gaps = [informativeness(part.rewards, figure.gap) for part in data.of()]
    means = [part.rewards.mean(axis=1) for part in data.of()]
    points = []
    for topic in data.topics or (ALL_TOPICS,):
        chosen = [np.array([t == topic for t in part.topics]) for part in data.of()]
        quantities: tuple[tuple[str, Quantity, Sequence[float | None]], ...] = (
            (SHARE, "share", [float(inside.mean()) for inside in chosen]),
            (MEAN, "reward", _means(means, chosen)),
            (_gap_name(figure), "reward", _means(gaps, chosen)),
        )
        for panel, quantity, values in quantities:
            unit = "" if quantity == "share" else "reward"
            points.append(seeds_point((panel, panel, topic), quantity, unit, data.found[0], values))
    return points


def _means(values: Sequence[Floats], chosen: Sequence[Floats]) -> list[float | None]:
    return [
        float(of_seed[inside].mean()) if inside.any() else None
        for of_seed, inside in zip(values, chosen, strict=True)
    ]


def topic_findings(figure: TopicsFigure, points: Sequence[Point]) -> list[str]:
    """Return which topics lie at the ends, and how the two orders agree; none while unknown."""
    means = {p.at: p.value for p in points if p.panel == MEAN and p.value is not None}
    gaps = {p.at: p for p in points if p.panel == _gap_name(figure) and p.value is not None}
    if len(means) < 2 or means.keys() != gaps.keys():
        return []
    lowest = min(means, key=means.__getitem__)
    first, second = sorted(gaps.values(), key=lambda point: -(point.value or 0.0))[:2]
    apart = second.high is None or first.low is None or second.high < first.low
    overlap = "" if apart else ", whose interval overlaps with it"
    said = [
        f"The topic with the lowest mean reward is {lowest} ({means[lowest]:.2f}).",
        f"The topic with the largest reward gap is {first.at} ({first.value:.2f}), before "
        f"{second.at} ({second.value:.2f}){overlap}.",
    ]
    rho = spearman(list(means.values()), [gaps[topic].value or 0.0 for topic in means])
    if rho is not None:
        said.append(
            f"Over the {len(means)} topics the rank correlation of mean reward and reward gap is "
            f"{rho:+.2f}."
        )
    return said
