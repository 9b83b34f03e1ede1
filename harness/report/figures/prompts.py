"""What figures show of single prompts: their rewards, and the topics that iterations train on.

Rewards are those of the prompts that an iteration starts from: those behind the informativeness of
the iteration's prompts where it chooses among them, else those its pairs are made of. Each number
is taken in each seed over its prompts and averaged over the seeds. Prompts whose rewards are all
equal tie; a correlation is therefore given over all prompts and over those with any spread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
from harness.report.figures.scores import Found, Point, Quantity, seeds_point
from harness.report.scores import read_rows, write_rows
from harness.runtime import Stage, Store
from harness.statistics import spearman
from harness.strict import Strict

if TYPE_CHECKING:
    from harness.pipeline.runs import FigureRuns
    from harness.worlds import Topics

Floats = NDArray[np.float64]

Prompts = tuple[tuple[str, str], ...]
"""Prompt id and topic of each training prompt."""

Stages = dict[str, dict[str, str]]
"""Fingerprints of stages, by run and by what the stage does."""


@dataclass(frozen=True)
class PromptRewards:
    """The rewards of one seed's prompts, shape (prompts, answers), in the reward model's units.

    Topics are empty where they are not needed or not known.
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

    @property
    def _columns(self) -> tuple[str, ...]:
        return ("seed", "prompt_id", "sample", "reward", *(["topic"] if self.topics else []))

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
        types = (int, str, int, float, str)
        write_rows(path, dict(zip(self._columns, types, strict=False)), rows)

    def read(self, path: Path) -> RewardData:
        """Return the data with the rewards that `write` kept."""
        by_seed: dict[int, list[tuple[Any, ...]]] = {}
        for seed, *rest in read_rows(path, *self._columns):
            by_seed.setdefault(seed, []).append(tuple(rest))
        found = Found.of(len(set(self.seeds) & set(by_seed)), len(self.seeds))
        parts = {seed: PromptRewards.of(rows) for seed, rows in by_seed.items()}
        return self.model_copy(update={"found": found, "by_seed": parts})

    @classmethod
    def stored(cls, runs: FigureRuns, store: Store) -> RewardData:
        """Return the rewards that a figure shows, as a store has them."""
        figure = runs.figure
        assert isinstance(figure, RewardsFigure)
        topics, lacking = None, runs.lacking.get(figure.row)
        if isinstance(figure, TopicsFigure):
            topics, lacking = _topics(runs, figure.row)
        if lacking is not None:
            return cls(seeds=runs.seeds, found=Found("not_available", 0, lacking))
        run_id = runs.places[figure.row][1].run
        assert run_id is not None
        last: list[Stage] = []
        by_seed, stages = {}, {}
        for seed in runs.seeds:
            stage = runs.runs[run_id, seed].iterations[figure.iteration - 1].rewards
            last.append(_last(stage, topics, store))
            if store.status(last[-1].fingerprint) == "done":
                by_seed[seed] = _rewards(store, stage, topics)
                what = {f"annotate {figure.iteration}": stage.fingerprint}
                stages[f"{run_id}/{runs.profile.name}/seed{seed}"] = what
        told = (topic for of_seed in by_seed.values() for topic in of_seed.topics)
        return cls(
            seeds=runs.seeds, topics=() if topics is None else _names(topics, told),
            found=found_of(last, store), by_seed=by_seed, stages=stages,
        )  # fmt: skip


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

    _COLUMNS: ClassVar = {"iteration": int, "seed": int, "prompt_id": str, "topic": str}

    def write(self, path: Path) -> None:
        """Write the topics as Parquet: iteration, seed, prompt_id, topic."""
        rows = [(*key, *prompt) for key, prompts in self.prompts.items() for prompt in prompts]
        write_rows(path, self._COLUMNS, rows)

    def read(self, path: Path) -> ShareData:
        """Return the data with the topics that `write` kept."""
        prompts: dict[tuple[int, int], list[tuple[str, str]]] = {}
        for *key, prompt, topic in read_rows(path, *self._COLUMNS):
            prompts.setdefault((key[0], key[1]), []).append((prompt, topic))
        done = {i: sum((i, seed) in prompts for seed in self.seeds) for i in self.iterations}
        found = {iteration: Found.of(n, len(self.seeds)) for iteration, n in done.items()}
        kept = {key: tuple(several) for key, several in prompts.items()}
        return self.model_copy(update={"found": found, "prompts": kept})

    @classmethod
    def stored(cls, runs: FigureRuns, store: Store) -> ShareData:
        """Return the topics of the training prompts of each iteration, as a store has them."""
        from harness.pipeline.runs import topics_stage

        figure = runs.figure
        assert isinstance(figure, SharesFigure)
        sorting, lacking = _topics(runs, figure.row)
        if lacking is not None or sorting is None:
            return cls(seeds=runs.seeds, found={1: Found("not_available", 0, lacking)})
        run_id = runs.places[figure.row][1].run
        assert run_id is not None
        of_seeds = [(seed, runs.runs[run_id, seed].iterations) for seed in runs.seeds]
        found: dict[int, Found] = {}
        prompts: dict[tuple[int, int], Prompts] = {}
        stages: Stages = {}
        for number in range(1, len(of_seeds[0][1]) + 1):
            pairs = [(seed, iterations[number - 1].pairs) for seed, iterations in of_seeds]
            found[number] = found_of([topics_stage(sorting, stage) for _, stage in pairs], store)
            for seed, stage in pairs:
                telling = topics_stage(sorting, stage).fingerprint
                if store.status(telling) == "done":
                    prompts[number, seed] = tuple(sorting.read(store.open(telling)))
                    name = f"{run_id}/{runs.profile.name}/seed{seed}"
                    stages.setdefault(name, {})[f"{stage.kind} {number}"] = stage.fingerprint
        told = (topic for several in prompts.values() for _, topic in several)
        return cls(
            seeds=runs.seeds, topics=_names(sorting, told), iterations=tuple(found),
            found=found, prompts=prompts, stages=stages,
        )  # fmt: skip


def found_of(stages: Sequence[Stage], store: Store) -> Found:
    """Return whether some stages, one for each seed, are done."""
    failures = Failures(store)
    state, done = failures.state([[stage] for stage in stages])
    reasons = [why for stage in stages if (why := failures.behind(stage)) is not None]
    return Found(state, done, *reasons[:1])


def _topics(runs: FigureRuns, row: str) -> tuple[Topics | None, str | None]:
    """Return what sorts prompts by topic, and why a row's topics cannot be shown."""
    from harness.worlds.lookup import world_of

    topics, lacking = world_of(runs.profile).prompts.topics(), runs.lacking.get(row)
    if lacking is None and topics is None:
        lacking = f"`{runs.profile.name}` has no scorer that sorts prompts by topic"
    return topics, lacking


def _names(topics: Topics, told: Any) -> tuple[str, ...]:
    """Return the names of the topics, with that of prompts of none where there are any."""
    from harness.worlds import NO_TOPIC

    return (*topics.names, *([NO_TOPIC] if NO_TOPIC in told else []))


def _last(rewards: Stage, topics: Topics | None, store: Store) -> Stage:
    """Return what a seed waits for: its rewards, or the topics, which a model may tell apart."""
    from harness.pipeline.runs import topics_stage

    if topics is None or store.status(rewards.fingerprint) != "done":
        return rewards
    answers = rewards.inputs["completions"]
    sorted_by = topics_stage(topics, answers)
    return rewards if sorted_by == answers else sorted_by


def _rewards(store: Store, stage: Stage, topics: Topics | None) -> PromptRewards:
    """Read one seed's rewards, and the topics of its prompts."""
    from harness.pipeline.runs import topics_stage

    path = store.file(stage.fingerprint, "rewards.parquet")
    found = PromptRewards.of(read_rows(path, "prompt_id", "sample", "reward"))
    if topics is None:
        return found
    sorted_by = topics_stage(topics, stage.inputs["completions"])
    by_prompt = dict(topics.read(store.open(sorted_by.fingerprint)))
    of_prompts = tuple(by_prompt[prompt] for prompt in found.prompt_ids)
    return PromptRewards(found.prompt_ids, found.rewards, of_prompts)


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


def share_points(_: SharesFigure, data: ShareData) -> list[Point]:
    """Return the share of each topic among the training prompts of each iteration."""
    points = []
    for topic in data.topics or (ALL_TOPICS,):
        for iteration, found in data.found.items():
            parts = [data.prompts.get((iteration, seed)) for seed in data.seeds]
            shares = [sum(t == topic for _, t in part) / len(part) for part in parts if part]
            place = (topic, TRAINED_SHARE, str(iteration))
            points.append(seeds_point(place, "share", "", found, shares))
    return points


def density_points(figure: DensitiesFigure, data: RewardData) -> list[Point]:
    """Return what is told of each metric, from 0 to 1 over a seed's prompts, then its histogram."""
    points = []
    for metric in figure.metrics:
        name = NAMES[metric]
        seeds = [scaled(informativeness(part.rewards, metric)) for part in data.parts]
        for at, quantity, number in TOLD:
            told = [number(values) for values in seeds]
            points.append(seeds_point((SUMMARY, name, at), quantity, "0-1", data.found, told))
        edges = np.linspace(0.0, 1.0, figure.bins + 1)
        shares = [np.histogram(values, edges)[0] / len(values) for values in seeds]
        for i, edge in enumerate(edges[:-1]):
            in_bin = [float(seed[i]) for seed in shares]
            place = (HISTOGRAM, name, f"{edge:.4g}")
            points.append(seeds_point(place, "share", "0-1", data.found, in_bin))
    return points


def correlation_points(figure: CorrelationFigure, data: RewardData) -> list[Point]:
    """Return the rank correlation and the number of prompts, over all and over those that vary."""
    points = []
    for series in (ALL, SPREAD):
        pairs = [xy(figure, part, only_spread=series == SPREAD) for part in data.parts]
        rho = [spearman(x.tolist(), y.tolist()) for x, y in pairs]
        place = ("", series, RHO)
        points.append(seeds_point(place, "rank correlation", "", data.found, rho))
        counts = [float(len(x)) for x, _ in pairs]
        points.append(seeds_point(("", series, PROMPTS), "count", "", data.found, counts))
    return points


def correlation_findings(figure: CorrelationFigure, points: Sequence[Point]) -> list[str]:
    """Return what was measured, in a sentence; none while it was not."""
    rho = {point.series: point for point in points if point.at == RHO}
    if any(point.value is None for point in rho.values()):
        return []
    told = ", ".join(f"{p.value:.3f} over {series}" for series, p in rho.items())
    names = f"{NAMES[figure.x]} and {NAMES[figure.y]}"
    return [f"Rank correlation of {names}, mean over seeds: {told}."]


def xy(
    figure: CorrelationFigure, part: PromptRewards, *, only_spread: bool = False
) -> tuple[Floats, Floats]:
    """Return both metrics of a seed's prompts, in the reward model's units."""
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


def topic_points(figure: TopicsFigure, data: RewardData) -> list[Point]:
    """Return share, mean reward and reward gap of each topic."""
    gaps = [informativeness(part.rewards, figure.gap) for part in data.parts]
    means = [part.rewards.mean(axis=1) for part in data.parts]
    points = []
    for topic in data.topics or (ALL_TOPICS,):
        chosen = [np.array([t == topic for t in part.topics]) for part in data.parts]
        quantities: tuple[tuple[str, Quantity, Sequence[float | None]], ...] = (
            (SHARE, "share", [float(inside.mean()) for inside in chosen]),
            (MEAN, "reward", _means(means, chosen)),
            (_gap_name(figure), "reward", _means(gaps, chosen)),
        )
        for panel, quantity, values in quantities:
            unit = "" if quantity == "share" else "reward"
            points.append(seeds_point((panel, panel, topic), quantity, unit, data.found, values))
    return points


def _means(values: Sequence[Floats], chosen: Sequence[Floats]) -> list[float | None]:
    """Return the mean over the chosen prompts of each seed, None where a seed has none."""
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
