"""The embedded creator: rewrites prompt text by the methods of an evolving scheme.

It reads a prompt, changes the task, and writes it anew in its own words. It has habits: two
operations it never adds, a frame and a phrasing it never uses, lists it hardly lengthens. And it
fails now and then: it hands back the prompt unchanged, leaves a piece of its template in the
text, or writes more than can be read. Such a rewrite is unusable, and says why.

Source: a method drawn at random for each rewrite, as distilabel does (paper, section 3.3).
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from harness.errors import HarnessError
from harness.eva.evolving import Rewrite
from harness.worlds.embedded.creator_methods import METHODS, Method
from harness.worlds.embedded.language import BENCHMARK_FRAME, parse, render
from harness.worlds.embedded.operations import BENCHMARK_PHRASE

UNCHANGED = 0.04
"""Chance that a rewrite is the prompt itself."""

LEFTOVER = 0.03
"""Chance that a piece of the template stays in the text."""

TEMPLATE_MARK = "#rewritten prompt# :"


class EmbeddedCreator:
    """Rewrites prompts of the embedded language (implements `harness.eva.evolving.Creator`)."""

    def __init__(self, methods: Mapping[str, Method] = METHODS["evol_instruct"]) -> None:
        """Rewrite by some methods, EvolInstruct's by default."""
        self._methods = methods

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt` by a method drawn uniformly, usable or not."""
        draws = random.Random(int(rng.integers(2**63)))
        method = draws.choice(tuple(self._methods))
        text = self._write(prompt, method, draws)
        reason = why_unusable(text, prompt)
        return Rewrite(None if reason else text, method, reason)

    def _write(self, prompt: str, method: str, rng: random.Random) -> str:
        task = parse(prompt)
        slip = rng.random()
        if task is None or task.items is None or slip < UNCHANGED:
            return prompt
        changed = self._methods[method](task, rng)
        phrases = tuple(rng.randrange(BENCHMARK_PHRASE) for _ in changed.operations)
        text = render(changed, rng.randrange(BENCHMARK_FRAME), phrases)
        return f"{TEMPLATE_MARK} {text}" if slip < UNCHANGED + LEFTOVER else text


def embedded_creator(identity: str) -> EmbeddedCreator:
    """Return the creator of an identity, `<world>/<evolving scheme>`.

    Raises:
        HarnessError: the embedded world does not have that scheme.
    """
    scheme = identity.partition("/")[2]
    if scheme not in METHODS:
        raise HarnessError(
            f"the embedded world has no creator `{identity}`; use one of {', '.join(METHODS)}"
        )
    return EmbeddedCreator(METHODS[scheme])


def why_unusable(text: str, parent: str) -> str | None:
    """Return why a rewrite cannot be used (`unchanged`, `leftover`, `too long`, `unreadable`)."""
    if text == parent:
        return "unchanged"
    if "#" in text:
        return "leftover"
    if parse(text) is None:
        return "too long" if parse(text, max_depth=len(text)) else "unreadable"
    return None
