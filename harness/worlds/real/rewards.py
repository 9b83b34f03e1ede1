"""Reward models from outside: a model of the hub, or a function of prompt and answers.

A profile names either in `reward_models`. A function is known by its plug-in and version
(`brevity@my_file-1`), a shipped one by its version (`math@1`), and one with a model of its own by
that too (`two_heads@my_file-1:owner/name@<commit>`), so that a stage's identity says what rewarded.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.endpoint.connection import Connection
from harness.errors import HarnessError, UserError
from harness.extensions import REWARDS
from harness.foreign import read_json
from harness.worlds.real import models

if TYPE_CHECKING:
    from harness.models.reward_model import Reads, Rewards

URL, KEY = "HARNESS_REWARD_URL", "HARNESS_REWARD_KEY"
"""Where a reward that asks a server finds it, and its key."""


def identity_of(name: str) -> str:
    """Return what identifies a reward model, by its name in profiles.

    Of one of the hub that is its revision, of a function plug-in, version, and the model it reads.
    """
    if name not in REWARDS:
        return models.identity_of(name)
    added = REWARDS.added(name)
    if added is None:
        return f"{name}@{REWARDS.get(name).VERSION}"
    own = f"{name}@{added.plugin}-{added.version}"
    model = added.options["model"]
    return own if model is None else f"{own}:{models.identity_of(model)}"


def models_behind(named: str) -> list[str]:
    """Return the model of the hub behind a profile's name or an identity, if there is one."""
    name, _, behind = named.partition(":")
    name = name.partition("@")[0]
    if name not in REWARDS:
        return [named]
    added = REWARDS.added(name)
    declared = None if added is None else added.options["model"]
    return [model for model in [behind or declared] if model]


def load(identity: str, reads: Reads, dtype: str = "float32") -> Rewards:
    """Return the reward model of an identity.

    Raises:
        UserError: Its files are not here, or are no reward model of the kind.
        HarnessError: The function here is not the one that the identity means.
    """
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
    added, function = REWARDS.added(name), REWARDS.get(name)
    if added is None:
        return FunctionRewards(name, function.score)
    if added.options["model"] is not None:
        function = function(models.folder_of(identity.partition(":")[2]), fastest_device())
    if added.options["asks"]:
        function = partial(_asking, function)
    return FunctionRewards(name, function)


def _asking(function: Any, prompt: str, answers: list[str]) -> Any:
    return function(prompt, answers, _post)


def _post(path: str, body: dict[str, Any]) -> Any:
    """Send JSON to the server of rewards, and return what it answers."""
    if not os.environ.get(URL):
        raise UserError(f"nothing says where rewards are served; name the address in {URL}")
    server = Connection(os.environ[URL], KEY, retries=2)
    try:
        return read_json(server.post(path, body))
    except Exception as error:  # the client's, or no JSON
        said = server.quoted(str(error))
        raise HarnessError(f"the server in {URL} gave no reward: {said}") from error
