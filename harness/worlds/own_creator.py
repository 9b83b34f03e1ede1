"""Creators that rewrite by an evolving method of the user's own (`harness.creator`).

A world gives them what it has: its rules for unusable rewrites and, where there is one, the model
that writes. Plug-in and version are in the settings of the stages that use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UserError
from harness.eva.evolving import Rewrite
from harness.extensions import CREATORS
from harness.runtime.stage import Json

if TYPE_CHECKING:
    import numpy as np

SETTING = "creator_plugin"
"""The setting of a stage that names the plug-in."""

Write = Callable[[str, "np.random.Generator"], str]
"""Returns a model's reply to a message; raises `NoReplyError` where there is none to be used."""

WhyUnusable = Callable[[str, str, Sequence[str]], str | None]
"""Returns why a rewrite cannot be used, given it, its parent and what a model was told."""


class NoReplyError(Exception):
    """A model wrote nothing that can be used; the message says why in a word."""


@dataclass(frozen=True)
class OwnCreator:
    """Rewrites by a method of the user's own (implements `harness.eva.evolving.Creator`).

    Attributes:
        method: Its name.
        why_unusable: The world's rules.
        write: Has a model reply; None where the method asks none.
    """

    method: str
    why_unusable: WhyUnusable
    write: Write | None = None

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of a prompt, usable or not.

        Raises:
            UserError: The method returns neither a text nor None.
        """
        function = CREATORS.get(self.method)
        told: list[str] = []

        def write(message: str) -> str:
            assert self.write is not None
            told.append(message.replace(prompt, "\n"))
            return self.write(message, rng)

        try:
            text = function(prompt, rng) if self.write is None else function(prompt, rng, write)
        except NoReplyError as error:
            return Rewrite(None, self.method, str(error))
        if text is None:
            return Rewrite(None, self.method, "none")
        if not isinstance(text, str):
            raise UserError(
                f"the evolving method `{self.method}` returned {type(text).__name__}: let it "
                "return the new prompt as a text, or None"
            )
        reason = self.why_unusable(text, prompt, told)
        return Rewrite(None, self.method, reason, text) if reason else Rewrite(text, self.method)


def plugin_settings(method: str) -> dict[str, Json]:
    """Return what identifies a method of the user's own; nothing of a shipped one."""
    identity = CREATORS.identity(method)
    return {SETTING: identity["plugin"]} if identity else {}


def own_method(settings: Mapping[str, Json]) -> str | None:
    """Return the method of the user's own that a stage's settings name; None for a shipped one.

    Raises:
        HarnessError: The plug-in is not here, or in another version.
    """
    if SETTING not in settings:
        return None
    method = str(settings["creator"]).rpartition("/")[2]
    if plugin_settings(method) != {SETTING: settings[SETTING]}:
        raise HarnessError(
            f"the stage rewrites by `{method}` of the plug-in {settings[SETTING]}, which is not "
            "loaded, or in another version; plan the run again"
        )
    return method
