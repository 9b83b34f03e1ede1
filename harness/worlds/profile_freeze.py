"""Freezes a profile's world, and tells whether it is still what was frozen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.errors import UserError
from harness.registry.profile import INSTRUCTIONS, WORLD, Profile
from harness.worlds.embedded import files
from harness.worlds.embedded import freeze as embedded_freeze
from harness.worlds.freeze import Freeze, read_freeze, write_freeze
from harness.worlds.instructions import freeze as instructions_freeze


def freeze_world(profile: Profile) -> Freeze:
    """Write down what decides the numbers of a profile's world, before any row of eva is run."""
    covered = _frozen_part_of(profile)
    if covered is None:
        raise UserError(f"the prompts of `{profile.name}` are not of a world of this project")
    folder, parts = covered
    return write_freeze(folder, parts(profile))


def freeze_of(profile: Profile) -> tuple[Freeze, dict[str, str]] | None:
    """Return the freeze of a profile's world and its parts as they are now; None if not frozen."""
    folder, parts = _frozen_part_of(profile) or (None, None)
    frozen = folder and read_freeze(folder)
    return (frozen, parts(profile)) if frozen and parts else None


def _frozen_part_of(profile: Profile) -> tuple[Path, Callable[[Profile], dict[str, str]]] | None:
    """Return the folder of a world's freeze, and what it covers; None for prompts of others."""
    if profile.prompts.source == WORLD:
        return files.folder(), embedded_freeze.parts
    if profile.prompts.source == INSTRUCTIONS:
        return Path(instructions_freeze.__file__).parent, instructions_freeze.parts
    return None
