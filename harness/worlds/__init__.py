"""What a run takes from outside the algorithm: prompts, creator, models, benchmarks and judges.

A profile's world is asked at two times, and code outside `harness.worlds` does not ask which it is:

- *while a run is planned*, `World` (from `harness.worlds.lookup.world_of`, by profile): which
  settings identify each part. A profile chooses its `prompts` and its `creator` each by itself;
  policy, reward models, benchmarks and judges come together. The settings go into fingerprints,
  so they name bytes and words and never a place. No model is loaded and nobody is asked.
- *while a stage runs*, `Runtime` (from `harness.worlds.lookup.runtime_of`, by an identity in the
  stage's settings): load, read, rewrite and judge what those settings mean.

`real` has models of the hub, endpoints and published benchmarks; `embedded` puts in their place
what is shipped with the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.runtime.stage import Json

if TYPE_CHECKING:
    from harness.endpoint.client import Client
    from harness.eva.evolving import Over, Rewriter

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
