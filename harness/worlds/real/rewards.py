"""Reward models from outside: a model of the hub, or a function of prompt and answers.

A profile names either in `reward_models`. A function is known by its plug-in and version
(`brevity@my_file-1`), a shipped one by its version (`math@1`), and one with a model of its own by
that too (`two_heads@my_file-1:owner/name@<commit>`), so that a stage's identity says what rewarded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.endpoint.connection import Connection
from harness.errors import HarnessError, UserError
from harness.extensions import REWARDS
from harness.foreign import error_in_a_line, read_json
from harness.worlds.real import models

if TYPE_CHECKING:
    from harness.models.loading import Conversation
    from harness.models.reward_model import Reads, Rewarded, Rewards

Function = Callable[[str, list[str]], Sequence[float] | None]

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
    from harness.models.reward_model import CheckpointRewards, load_reward_model, verification

    name = identity.partition("@")[0]
    if name not in REWARDS:
        folder = models.folder_of(identity)
        reader = load_reward_model(folder, reads, device=fastest_device(), dtype=dtype)
        return CheckpointRewards(reader, verification(identity))
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
        return OwnRewards(name, function.score)
    if added.options["model"] is not None:
        function = function(models.folder_of(identity.partition(":")[2]), fastest_device())
    if added.options["asks"]:
        function = partial(_asking, function)
    return OwnRewards(name, function)


@dataclass(frozen=True)
class OwnRewards:
    """The rewards that a function gives to the answers of one prompt at a time."""

    name: str
    function: Function
    weights: str = "none"

    @property
    def format(self) -> str:
        return f"function {self.name}"

    def score(self, prompts: Sequence[Conversation], answers: Sequence[Sequence[str]]) -> Rewarded:
        """Return the rewards; a prompt of which the function returns None has none."""
        import numpy as np

        from harness.models.reward_model import Rewarded

        rows = [
            self._checked(_text(prompt), list(some))
            for prompt, some in zip(prompts, answers, strict=True)
        ]
        return Rewarded(np.array(rows, dtype=np.float64).reshape(len(prompts), -1))

    def _checked(self, prompt: str, answers: list[str]) -> list[float]:
        try:
            found = self.function(prompt, answers)
        except HarnessError:
            raise
        except Exception as error:  # code of the user's
            said = error_in_a_line(error)
            raise UserError(f"the reward `{self.name}` fails at a prompt: {said}") from error
        if found is None:
            return [math.nan] * len(answers)
        numbers = [float(reward) for reward in found]
        if len(numbers) != len(answers) or not all(map(math.isfinite, numbers)):
            raise UserError(
                f"the reward `{self.name}` returned {numbers} for {len(answers)} answers; let it "
                "return one finite number for each, or None to leave the prompt out"
            )
        return numbers


def _text(conversation: Conversation) -> str:
    """Return a conversation as a function reads it: its one turn, or all with who speaks."""
    if len(conversation) == 1:
        return conversation[0]["content"]
    return "\n\n".join(f"{turn['role'].capitalize()}: {turn['content']}" for turn in conversation)


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
