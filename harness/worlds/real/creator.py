"""A creator that has a language model rewrite prompts by the methods of a scheme.

For each rewrite one of the scheme's methods is drawn, and a sample number; the model is told what
the scheme's templates say, and its reply is read and looked at (`unusable`). Both draws come from
the chain's own generator, so the same chain asks for the same texts whatever else is evolved beside
it, and a retry asks for another one.

Source: paper section 3.3, appendices A and F.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.endpoint.client import Client, work_through
from harness.endpoint.request import Message
from harness.errors import HarnessError
from harness.eva.evolving import Evolution, Grow, Over, Prompt, Rewrite
from harness.worlds.real.generator import TextGenerator, Written
from harness.worlds.real.templates import PROMPT, Scheme
from harness.worlds.real.unusable import LIMITS, Limits, why_unusable

SAMPLES = 2**31
"""Sample numbers there are; two retries of one prompt hardly ever share one."""

CUT, REFUSED = "cut off", "refusal"
"""Reasons that the reply itself gives, beside those of `unusable.REASONS`."""

_QUOTES = {'"': '"', "“": "”", "'": "'", "`": "`"}


@dataclass(frozen=True)
class ModelCreator:
    """Rewrites prompts by a scheme (implements `harness.eva.evolving.Creator`).

    Attributes:
        generator: What writes.
        scheme: What it is told.
        limits: How long a rewrite may be.
    """

    generator: TextGenerator
    scheme: Scheme
    limits: Limits = LIMITS

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt` by a method drawn uniformly, usable or not."""
        methods = self.scheme.methods
        method = methods[int(rng.integers(len(methods)))]
        sample = int(rng.integers(SAMPLES))
        messages = [Message("user", self.scheme.message(method, prompt))]
        if self.scheme.system is not None:
            messages.insert(0, Message("system", self.scheme.system))
        written = self.generator.write(messages, sample, f"a rewrite by {method}")
        text = self._read(written.text, prompt)
        reason = self._why_unusable(written, text, method, prompt)
        kept = written.text if reason or written.text != text else None
        return Rewrite(None if reason else text, method, reason, kept)

    def _read(self, reply: str, parent: str) -> str:
        """Return the rewrite in a reply, without quotes around it that the parent lacks."""
        text = self.scheme.reply.read(reply)
        closing = _QUOTES.get(text[:1])
        inside = text[1:-1]
        quoted = closing is not None and len(text) > 2 and text.endswith(closing)
        if quoted and not set(inside) & {text[0], closing} and parent.strip()[:1] != text[0]:
            return inside.strip()
        return text

    def _why_unusable(self, written: Written, text: str, method: str, parent: str) -> str | None:
        if written.refused:
            return REFUSED
        if written.cut:
            return CUT
        told = self.scheme.messages[method].replace(PROMPT, "\n")
        return why_unusable(text, parent, (told,), self.limits)


def at_once(client: Client, concurrency: int, done: Callable[[int], None] | None = None) -> Over:
    """Return a way to evolve many prompts at once, each asking a client.

    Args:
        client: The client that the creator asks.
        concurrency: Most prompts at once, and with them requests under way.
        done: Told, in the calling thread, how many prompts are evolved.
    """

    def over(grow: Grow, prompts: Sequence[Prompt]) -> list[Evolution]:
        def told(count: int, total: int) -> None:
            if done is not None:
                done(count)

        outcomes = work_through(prompts, grow, client, concurrency, told)
        grown = [outcome.result for outcome in outcomes]
        if None in grown:
            # A creator reports refusals as unusable rewrites; this would be a fault of ours.
            raise HarnessError(f"evolving a prompt gave no result: {outcomes[grown.index(None)]}")
        return [one for one in grown if one is not None]

    return over
