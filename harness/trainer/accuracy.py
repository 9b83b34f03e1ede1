"""How good a profile's reward models are, from their cards."""

from __future__ import annotations

from harness.catalogue.profile import WORLD, Profile
from harness.catalogue.recipe import RewardRole


def held_out_accuracy(profile: Profile, role: RewardRole) -> float | None:
    """Return the share of held-out pairs that the reward model of a role orders rightly.

    Returns:
        The accuracy, from 0 to 1; None where the profile has no such model or its card says none.
    """
    if profile.reward_models.get(role) != WORLD:
        return None
    from harness.worlds.embedded import world

    noted = world.card().notes.get(f"rm_{role}")
    found = noted.get("held_out_accuracy") if isinstance(noted, dict) else None
    return None if found is None else float(found)
