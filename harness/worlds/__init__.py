"""What a world answers, and when it is asked.

A world is all that a run takes from outside the paper's algorithm. There are two, and code outside
`harness.worlds` does not ask which one it has: `embedded`, which is shipped with the package, and
`real`, models of the hub, endpoints and published benchmarks. A world is asked at two times, by two
interfaces:

- *while a run is planned*, `World` (from `harness.worlds.lookup.world_of`, by profile): which
  settings identify each part. A profile chooses its `prompts` and its `creator` each by itself;
  policy, reward models, benchmarks and judges come together. The settings go into fingerprints,
  so they name bytes and words and never a place. No model is loaded and nobody is asked.
- *while a stage runs*, `Runtime` (from `harness.worlds.lookup.runtime_of`, by an identity in the
  stage's settings): load, read, rewrite and judge what those settings mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.registry.profile import Profile
from harness.registry.recipe import Online, RewardRole
from harness.runtime.stage import Json, StageContext

if TYPE_CHECKING:
    from harness.endpoint.client import Client
    from harness.eva.evolving import Over, Rewriter
    from harness.models.reward_model import Reads, Rewards

ACCURACY: Final = "rm_accuracy"
"""What a reward model's being right on a held-out pair is called among the scores: 1 or 0."""

BEST_OF_N: Final = "best_of_n"
"""What the oracle's score of the answer it chooses is called among them, from 0 to 1."""

NO_TOPIC: Final = "no topic"
"""The topic of a prompt that cannot be read, or of which a model says nothing readable."""


@dataclass(frozen=True)
class Item:
    """One benchmark item: one or two user turns, a category, a reference answer if pairwise."""

    item_id: str
    category: str
    turn_1: str
    turn_2: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class HumanPrompts:
    """The human prompts of a stage."""

    pool: Sequence[str]
    """Every prompt there is, in a fixed order."""
    positions: Sequence[int]
    """Those of the stage, by their place in the pool."""
    summary: dict[str, Any] | None = None
    """What to write beside them: of a pool from outside, its size and repetitions."""


@dataclass(frozen=True)
class Evolver:
    """A creator at work."""

    creator: Rewriter
    over: Over = map
    """How prompts are worked through."""
    client: Client | None = None
    """Who asks an endpoint; None where none is asked."""


@dataclass(frozen=True)
class Topics:
    """Sorts prompts by topic."""

    names: tuple[str, ...]
    """The topics, in a fixed order."""
    settings: dict[str, Json] | None
    """Those of the stage in which a model sorts prompts; None where their text says the topic."""
    read: Callable[[Path], list[tuple[str, str]]]
    """Returns id and topic of each prompt from the folder of that stage or, without one, of one
    that holds prompts or answers."""


OwnAnswering = Callable[[StageContext, Callable[[], Path]], None]
"""Answers a benchmark in a stage; the second argument returns the folder of the policy."""


class PromptSource(ABC):
    """Where a profile's human prompts come from."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @abstractmethod
    def identity(self) -> dict[str, Json]:
        """Return the settings that identify the human prompts."""

    @abstractmethod
    def matched(self) -> dict[str, Json] | None:
        """Return the settings that identify prompts matched to the hard benchmark's skills.

        They are a control that shows whether prompts matter here, and no method. `matched` is among
        the settings; None where there are no such prompts.
        """

    def off_target(self) -> str:
        """Return what identifies prompts that can hardly help on the hard benchmark.

        They are a control, and only worlds that have an oracle have them.
        """
        raise NotImplementedError

    @abstractmethod
    def topics(self) -> Topics | None:
        """Return what sorts prompts by topic, None where nothing does."""

    @abstractmethod
    def pool(self) -> tuple[list[str], str]:
        """Return every human prompt, and what identifies them."""

    def shown_word(self, word: str) -> str:
        """Return a word of a prompt as it counts for the distance between prompts."""
        return word


class CreatorSource(ABC):
    """What rewrites a profile's prompts, and scores those of best-of-n trees."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @abstractmethod
    def identity(self, scheme: str) -> dict[str, Json]:
        """Return the settings that identify the creator with an evolving scheme."""

    def tree_scorer(self, online: Online) -> dict[str, Json]:
        """Return the settings that identify the model that scores prompts of best-of-n trees.

        They are empty where no tree grows, or where no model is asked.
        """
        return {}


class World(ABC):
    """What a profile's names stand for, asked while runs are planned; see the module."""

    self_contained = True
    """Whether all it needs is shipped or made on this machine: nothing has a price, nothing is
    downloaded, and no model is known outside."""

    has_validation_prompts = False
    """Whether it has prompts that no benchmark asks, with an oracle to score answers to them."""

    def __init__(self, profile: Profile, prompts: PromptSource, creator: CreatorSource) -> None:
        self.profile = profile
        self.prompts = prompts
        self.creator = creator

    @abstractmethod
    def policy(self) -> str:
        """Return the base policy's identity."""

    @abstractmethod
    def reward_model(self, role: str) -> str:
        """Return the identity of the reward model of a role."""

    @abstractmethod
    def engine(self) -> dict[str, Json]:
        """Return what stages in which the policy answers say of the engine."""

    @abstractmethod
    def rewriter(self) -> dict[str, Json]:
        """Return what identifies the instruction to revise an answer."""

    @abstractmethod
    def benchmark(self, name: str) -> str:
        """Return a benchmark's identity."""

    @abstractmethod
    def judge(self, name: str) -> str:
        """Return a judge's identity."""

    def answering(self, name: str, seed: int) -> dict[str, Json]:
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

    def judging(self, name: str) -> dict[str, Json]:
        """Return the settings of the stage that judges the answers to a benchmark."""
        judge = self.profile.benchmarks[name].judge
        return {"benchmark": self.benchmark(name), "judge": self.judge(judge)}

    def rating(self, name: str) -> dict[str, Json]:
        """Return the settings of the stage that rates prompts, by its name among benchmarks."""
        return {"judge": self.judge(self.profile.benchmarks[name].judge)}

    def reward_model_accuracy(self, role: RewardRole) -> float | None:
        """Return the share of held-out pairs, from 0 to 1, that a reward model orders rightly.

        It is None where there is no such model, or where nobody has measured it.
        """
        return None


class Runtime(ABC):
    """What the settings of stages stand for, asked while stages run; see the module.

    A UserError says that something is not on this machine, or that nothing says where a model is
    served; a HarnessError that files or settings are not what an identity means, or that a model
    does not answer.
    """

    @abstractmethod
    def resolve(self, identity: str) -> Path:
        """Return where the files of an identity lie, after checking their digest."""

    @abstractmethod
    def rewards(self, identity: str, reads: Reads, dtype: str) -> Rewards:
        """Return the reward model of an identity, in a number format."""

    @abstractmethod
    def human_prompts(self, settings: Mapping[str, Json]) -> HumanPrompts:
        """Return the human prompts, or those matched to them, that a stage's settings ask for.

        The pool is the same for every seed; the seed decides the order it is cut in, so that
        pieces of one seed never overlap (authors' code, `shuffle_ds.py`).
        """

    @abstractmethod
    def evolver(
        self, settings: Mapping[str, Json], done: Callable[[int], None] | None = None
    ) -> Evolver:
        """Return the creator that a stage's settings mean.

        `done` is told how many prompts are evolved, where they are many at once.
        """

    @abstractmethod
    def tree_score(self, settings: Mapping[str, Json]) -> Callable[[str], float] | None:
        """Return what scores prompts for best-of-n trees; None where no tree grows."""

    def prompt_metrics(self) -> Mapping[str, Callable[[str], float]]:
        """Return what is read from the text of prompts while a policy is trained, by name."""
        return {}

    @abstractmethod
    def questions(self, identity: str) -> Sequence[Item]:
        """Return the items of a benchmark, after checking that they are those it means."""

    def own_answering(self, identity: str) -> OwnAnswering | None:
        """Return what answers a benchmark whose package asks the questions; None for others.

        It writes what the stage writes.
        """
        return None

    @abstractmethod
    def judge(self, ctx: StageContext) -> None:
        """Judge answers; writes `judgments.parquet`, `scores.parquet` and `summary.json`."""

    @abstractmethod
    def rate(self, ctx: StageContext) -> None:
        """Score prompts; writes `scores.parquet` and `summary.json`."""
