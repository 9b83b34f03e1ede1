"""A run's inputs from outside the algorithm: prompts, creator, models, benchmarks and judges.

While a run is planned, a profile's `World` gives the settings that identify each part: they name
contents and never locations, and no model is loaded or asked. While a stage runs, a `Runtime`
loads, reads, rewrites and judges what those settings name. Side by side: `real` (hub models,
endpoints, published benchmarks), `embedded` (shipped with the package) and `instructions` (by
rule); `lookup` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from harness.errors import UserError
from harness.runtime.stage import Json, StageContext
from harness.words import ignore

if TYPE_CHECKING:
    from harness.endpoint.client import Client, Done
    from harness.eva.evolving import MapFn, Rewriter
    from harness.models.reward_model import Reads, Rewards
    from harness.registry.profile import Profile
    from harness.registry.recipe import RewardRole

Settings = dict[str, Json]
"""Stage settings that identify something."""

ACCURACY: Final = "rm_accuracy"
"""Score name for whether a reward model ranks a held-out pair correctly: 1 or 0."""

BEST_OF_N: Final = "best_of_n"
"""Score name for the oracle's score of the answer a reward model picks, from 0 to 1."""

DOWNSTREAM: Final = "downstream"
"""The name of table 9's tasks in a profile."""

NO_TOPIC: Final = "no topic"
"""The topic of a prompt that cannot be parsed, or for which the model's replies cannot."""


@dataclass(frozen=True)
class Item:
    """A benchmark item: one or two user turns, a category, and an optional reference answer."""

    item_id: str
    category: str
    turn_1: str
    turn_2: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class Evolver:
    creator: Rewriter
    over: MapFn = map
    """Maps a function over prompts, possibly concurrently."""
    client: Client | None = None
    """The endpoint client, or None without an endpoint."""


@dataclass(frozen=True)
class Topics:
    names: tuple[str, ...]
    """The topics, in a fixed order."""
    settings: dict[str, Json] | None
    """Settings of the stage in which a model sorts prompts; None if their text gives the topic."""
    read: Callable[[Path], list[tuple[str, str]]]
    """Returns each prompt's id and topic from that stage's folder or, without such a stage, from a
    folder of prompts or answers."""


class Prompts(Protocol):
    def identity(self) -> Settings: ...

    def matched(self) -> Settings:
        """Return what identifies prompts matched to the hard benchmark's skills, a control."""
        raise UserError("the prompts of this profile have none matched to the hard benchmark")

    def off_target(self) -> str:
        """Return the identity of prompts that can hardly help on the hard benchmark, a control."""
        raise UserError("the prompts of this profile have none that are off target")

    def topics(self) -> Topics | None: ...

    def shown_word(self, word: str) -> str:
        """Return a prompt's word in the form used to measure the distance between prompts."""
        return word


class World(Protocol):
    profile: Profile
    prompts: Prompts
    creator: Callable[[str], Settings]
    """Returns what identifies the creator with an evolving method."""

    has_validation_prompts: ClassVar[bool] = False
    """Whether it has prompts outside all benchmarks, with an oracle to score answers."""

    def policy(self) -> str: ...

    def reward_model(self, role: RewardRole) -> str: ...

    def reward_model_accuracy(self, role: RewardRole) -> float | None:
        """Return a reward model's accuracy on held-out pairs, from 0 to 1, if it was measured."""
        return None

    def engine(self) -> Settings:
        """Return the engine of stages in which the policy answers; {} for this process."""

    def rewriter(self) -> Settings:
        """Return the request for a revision of an answer; {} if the policy knows it already."""
        return {}

    def benchmark(self, name: str) -> str: ...

    def judge(self, name: str) -> str: ...

    def answering(self, name: str, seed: int) -> Settings:
        """Return the settings of the stage that answers a benchmark, except for the policy."""
        benchmark = self.profile.benchmarks[name]
        return {
            "benchmark": self.benchmark(name),
            "temperature": benchmark.temperature,  # type: ignore[dict-item]
            "top_p": benchmark.top_p,
            "max_new_tokens": benchmark.max_new_tokens,
            "batch_size": self.profile.generation.batch_size,
            "seed": seed,
            **self.engine(),
        }

    def judging(self, name: str) -> Settings:
        """Return the judge of a benchmark, and whatever else determines its scores."""

    def rating(self, name: str) -> Settings:
        """Return the settings of the prompt-rating stage with this name among the benchmarks."""


class Runtime(Protocol):
    """What stage settings name, for computing.

    Methods raise a UserError if something is not on this machine, and a HarnessError if files do
    not match an identity or a model does not answer.
    """

    def rewards(self, identity: str, reads: Reads, dtype: str) -> Rewards: ...

    def human_prompts(self, settings: Mapping[str, Json]) -> dict[int, str]:
        """Return a stage's prompts by their positions in the pool."""

    def evolver(self, settings: Mapping[str, Json], done: Done = ignore) -> Evolver:
        """Return a creator; `done` gets the number of prompts evolved and of all, if concurrent."""

    def prompt_metrics(self) -> Mapping[str, Callable[[str], float]]:
        """Return the metrics of prompt text logged while a policy is trained, by name."""
        return {}

    def questions(self, identity: str) -> Sequence[Item]: ...

    def own_answering(self, identity: str) -> Callable[[StageContext], None] | None:
        """Return the stage of a benchmark whose package asks the questions; None for others."""
        return None

    def judge(self, ctx: StageContext) -> None:
        """Judge answers; writes `judgments.parquet`, `scores.parquet` and `summary.json`."""

    def rate(self, ctx: StageContext) -> None:
        """Score prompts; writes `scores.parquet` and `summary.json`."""
