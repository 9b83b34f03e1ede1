"""External reward models: a hub model, or a plug-in's function of prompt and answers.

An identity says what gave the rewards: `brevity@my_file-1` for a function of a plug-in's version,
`two_heads@my_file-1:owner/name@<commit>` for one with its own model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import HarnessError, UserError
from harness.extensions import REWARDS
from harness.worlds.real import models

if TYPE_CHECKING:
    from harness.models.reward_model import Reads, Rewards


def identity_of(name: str) -> str:
    """Return the identity of a reward model from its name in profiles."""
    if name not in REWARDS:
        return models.identity_of(name)
    added = REWARDS.added(name)
    if added is None:
        return f"{name}@{REWARDS.load(name).VERSION}"
    own = f"{name}@{added.plugin}-{added.version}"
    model = added.options["model"]
    return own if model is None else f"{own}:{models.identity_of(model)}"


def models_behind(named: str) -> list[str]:
    """Return the hub model behind a profile's name or an identity, if there is one."""
    name, _, behind = named.partition(":")
    name = name.partition("@")[0]
    if name not in REWARDS:
        return [named]
    added = REWARDS.added(name)
    declared = None if added is None else added.options["model"]
    return [model for model in [behind or declared] if model]


def load(identity: str, reads: Reads, dtype: str = "float32") -> Rewards:
    from harness.models.loading import fastest_device
    from harness.models.reward_model import (
        UNVERIFIED,
        CheckpointRewards,
        FunctionRewards,
        load_reward_model,
    )

    name = identity.partition("@")[0]
    if name not in REWARDS:
        folder = models.folder_of(identity)
        reader = load_reward_model(folder, reads, device=fastest_device(), dtype=dtype)
        return CheckpointRewards(reader, UNVERIFIED)
    if reads == "two answers":
        raise UserError(
            f"the reward `{name}` scores one answer: give it a pointwise role in the profile"
        )
    if identity_of(name) != identity:
        raise HarnessError(
            f"the stage was planned with the reward `{identity}`, and here is "
            f"`{identity_of(name)}`; plan the run again"
        )
    added, function = REWARDS.added(name), REWARDS.load(name)
    if added is None:
        return FunctionRewards(name, function.score)
    if added.options["model"] is not None:
        function = function(models.folder_of(identity.partition(":")[2]), fastest_device())
    return FunctionRewards(name, function)
