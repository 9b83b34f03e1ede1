"""A run's inputs from outside the algorithm: prompts, creator, models, benchmarks and judges.

A profile's world is used at two times; code outside `harness.worlds` does not care which it is:

- *while a run is planned*, `World` (from `harness.worlds.lookup.world_of`, by profile) gives the
  settings that identify each part. A profile chooses `prompts` and `creator` independently; policy,
  reward models, benchmarks and judges come together. The settings go into fingerprints, so they
  name contents and never locations. No model is loaded and no endpoint is queried.
- *while a stage runs*, `Runtime` (from `harness.worlds.lookup.runtime_of`, by an identity in the
  stage's settings) loads, reads, rewrites and judges what those settings name.

`real` has hub models, endpoints and published benchmarks; `embedded` replaces them with what is
shipped with the package.
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
"""Score name for whether a reward model ranks a held-out pair correctly: 1 or 0."""

BEST_OF_N: Final = "best_of_n"
"""Score name for the oracle's score of the answer a reward model picks, from 0 to 1."""

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
    """A creator, and how to run it."""

    creator: Rewriter
    over: Over = map
    """Maps a function over prompts, possibly concurrently."""
    client: Client | None = None
    """The endpoint client, or None without an endpoint."""


@dataclass(frozen=True)
class Topics:
    """Sorts prompts by topic."""

    names: tuple[str, ...]
    """The topics, in a fixed order."""
    settings: dict[str, Json] | None
    """Settings of the stage in which a model sorts prompts; None if their text gives the topic."""
    read: Callable[[Path], list[tuple[str, str]]]
    """Returns each prompt's id and topic from that stage's folder or, without such a stage, from a
    folder of prompts or answers."""
