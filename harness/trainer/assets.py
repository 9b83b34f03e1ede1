"""The models, prompts and judges a profile names, as identities that go into fingerprints.

An identity says exactly which bytes are meant (`micro-2/theta0@3f2a…`), and nothing about where
they lie. Workers turn it back into a path with `resolve`, which checks the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.catalogue.profile import WORLD, Profile
from harness.worlds.embedded import downstream_items, world

if TYPE_CHECKING:
    from harness.worlds.embedded.sources import Item


class Assets(Protocol):
    """Turns what a profile names into identities."""

    def policy(self) -> str:
        """Return the base policy's identity."""
        ...

    def reward_model(self, role: str) -> str:
        """Return the identity of the reward model of a role."""
        ...

    def prompts(self) -> str:
        """Return the identity of the human prompts."""
        ...

    def creator(self, method: str) -> str:
        """Return the identity of the creator with an evolving method."""
        ...

    def benchmark(self, name: str) -> str:
        """Return a benchmark's identity."""
        ...

    def judge(self, name: str) -> str:
        """Return a judge's identity."""
        ...


class WorldAssets:
    """The embedded world's assets, identified by their digests in the world's card."""

    def __init__(self) -> None:
        """Read the world's card."""
        self._card = world.card()

    def policy(self) -> str:
        """Return θ0's identity."""
        return self._card.identity("theta0")

    def reward_model(self, role: str) -> str:
        """Return the identity of the embedded reward model of a role."""
        return self._card.identity(f"rm_{role}")

    def prompts(self) -> str:
        """Return the identity of the pool of human prompts."""
        return self._card.identity("prompts")

    def creator(self, method: str) -> str:
        """Return the identity of the embedded creator: world version and method."""
        return f"{self._card.version}/{method}"

    def benchmark(self, name: str) -> str:
        """Return the identity of an embedded benchmark's items: a file's, or those made anew."""
        if name == downstream_items.NAME:
            return downstream_items.identity()
        return self._card.identity(name)

    def judge(self, name: str) -> str:
        """Return the identity of the embedded judge."""
        return f"{self._card.version}/{name}"


def assets_of(profile: Profile) -> Assets:
    """Return the assets of a profile: the embedded world's where its policy is from there.

    Stand-ins that are not there yet are made here, because only then they have identities.

    Raises:
        HarnessError: stand-ins cannot be made, or were changed.
    """
    if profile.policy == WORLD:
        return WorldAssets()
    if profile.stand_ins is not None:
        from harness.worlds.mock.places import make_ready

        make_ready(profile.stand_ins.seed)
    from harness.trainer.outside_assets import OutsideAssets

    return OutsideAssets(profile)


def resolve(identity: str) -> Path:
    """Return where the files of an identity lie, after checking their digest.

    Raises:
        HarnessError: they are missing, or are not the bytes the identity means.
    """
    if world.has(identity):
        return world.resolve(identity)
    from harness.worlds.real.models import folder_of

    return folder_of(identity)


def asset_name(identity: str) -> str:
    """Return the name in an identity, as in `<version>/<name>@<digest>`."""
    return identity.partition("/")[2].partition("@")[0]


def benchmark_items(identity: str) -> Sequence[Item]:
    """Return the items of a benchmark, after checking that they are those the identity means.

    Raises:
        HarnessError: they are missing, or are not those.
    """
    if not world.has(identity):
        from harness.worlds.real.benchmarks import questions_of

        return questions_of(identity)
    if asset_name(identity) == downstream_items.NAME:
        return downstream_items.items_of(identity)
    from harness.worlds.embedded.benchmarks import read_items

    return read_items(resolve(identity))
