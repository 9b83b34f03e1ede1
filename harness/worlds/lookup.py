"""Which world answers: for a profile while a run is planned, for an identity while it runs."""

from __future__ import annotations

from pathlib import Path

from harness.registry.profile import WORLD, Profile
from harness.registry.recipe import Online
from harness.runtime.stage import Json
from harness.worlds.embedded import files
from harness.worlds.embedded.world import EmbeddedWorld
from harness.worlds.mock.world import MockWorld
from harness.worlds.protocol import Runtime, Topics, World
from harness.worlds.real.world import RealWorld

STAGES = {
    "topics": "harness.worlds.real.scoring:topics_stage",
    **{
        kind: f"harness.worlds.embedded.reward:{kind}_stage"
        for kind in ("reward_model", "held_out", "best_of_n")
    },
}
"""The function of each kind of stage that only one world has, by dotted name."""


def world_of(profile: Profile) -> World:
    """Return the world of a profile: that of its policy, with what it names from outside."""
    if profile.policy == WORLD:
        outside = {profile.prompts.source, profile.creator.source} != {WORLD}
        return EmbeddedPolicyWorld(profile) if outside else EmbeddedWorld(profile)
    return RealWorld(profile) if profile.stand_ins is None else MockWorld(profile)


def runtime_of(identity: str) -> Runtime:
    """Return what answers for an identity in a stage's settings."""
    # Imported here, because planning loads no judge and nothing that reads files of stages.
    if files.has(identity):
        from harness.worlds.embedded.world import EmbeddedRuntime

        return EmbeddedRuntime()
    from harness.worlds.real.world import RealRuntime

    return RealRuntime()


def resolve(identity: str) -> Path:
    """Return where the files of a model lie, after checking their digest.

    Raises:
        HarnessError: They are missing, or are not the bytes the identity means.
    """
    return runtime_of(identity).resolve(identity)


class EmbeddedPolicyWorld(EmbeddedWorld):
    """The embedded world with human prompts, a creator or both from outside."""

    def __init__(self, profile: Profile) -> None:
        """Serve a profile."""
        super().__init__(profile)
        real, embedded = RealWorld(profile), EmbeddedWorld(profile)
        self._prompts: World = embedded if profile.prompts.source == WORLD else real
        self._creator: World = embedded if profile.creator.source == WORLD else real

    def prompts(self) -> dict[str, Json]:
        """Return the settings that identify the human prompts."""
        return self._prompts.prompts()

    def matched_prompts(self) -> dict[str, Json] | None:
        """Return the settings that identify prompts matched to the hard benchmark."""
        return self._prompts.matched_prompts()

    def topics(self) -> Topics | None:
        """Return what sorts prompts by topic, None where nothing does."""
        return self._prompts.topics()

    def prompt_pool(self) -> tuple[list[str], str]:
        """Return every human prompt, and what identifies them."""
        return self._prompts.prompt_pool()

    def shown_word(self, word: str) -> str:
        """Return a word of a prompt as it counts for the distance between prompts."""
        return self._prompts.shown_word(word)

    def creator(self, scheme: str) -> dict[str, Json]:
        """Return the settings that identify the creator with an evolving scheme."""
        return self._creator.creator(scheme)

    def tree_scorer(self, online: Online) -> dict[str, Json]:
        """Return the settings that identify the model that scores prompts of best-of-n trees."""
        return self._creator.tree_scorer(online)
