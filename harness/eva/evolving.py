"""Evolving: generate new prompts from a selected one.

Model. The creator rewrites one prompt text into another. A prompt x gets k children: in a chain
x -> x.1 -> x.2 -> ... -> x.k, each child a rewrite of the last usable prompt before it (all of them
are kept, x itself is not), or as k independent rewrites of x.

An unusable rewrite is counted by its reason and retried up to `retries` times. If all fail, the
child is dropped and the next one starts from the last usable prompt, so a chain yields at most k
children and its length does not depend on where a failure occurs.

Randomness. Each evolved prompt has its own generator, derived from the seed and the prompt's *id*,
so adding, removing, or reordering prompts does not change other prompts' children.

User-defined methods. A world provides a plug-in's method (`harness.creator`) with its rules for
unusable rewrites and, if it has one, its generating model. The plug-in and its version are in the
settings of the stages that use it.

Source: paper section 3.3 and appendix A (EvolInstruct, four evolutions); distilabel's
`EvolInstruct` with `num_evolutions=4, store_evolutions=True`, as the authors call it offline.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from harness.errors import HarnessError, UserError
from harness.extensions import CREATORS
from harness.runtime.stage import Json

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Rewrite:
    """The creator's rewrite of one prompt: a new prompt, or the reason why there is none.

    `written` is the creator's raw output if that is not the prompt itself.
    """

    prompt: str | None
    method: str
    reason: str | None = None
    written: str | None = None


class Rewriter(Protocol):
    """Rewrites prompts, with all randomness from the given generator.

    If several chains are evolved concurrently (`MapFn`), it is called from as many threads.
    """

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt`, usable or not."""
        ...


@dataclass(frozen=True)
class Prompt:
    """A prompt with its lineage; the fields are the columns of `prompts.parquet`.

    Attributes:
        prompt_id: Unique id; a child's is `<id of the chain's first prompt>.<iteration>.<i>`.
        source: `human`, `matched`, `evolved`, or `benchmark`.
        parent_id: The prompt this one was rewritten from; None if not rewritten, as is `method`.
        generation: Number of rewrites since the human prompt (0 for that prompt itself).
    """

    prompt_id: str
    prompt: str
    source: str = "human"
    parent_id: str | None = None
    generation: int = 0
    method: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One call of the creator for a child (`attempt` from 1) and its result (see `Rewrite`)."""

    child_id: str
    parent_id: str
    attempt: int
    method: str
    reason: str | None
    written: str | None


@dataclass
class Evolution:
    """The usable children of all chains, every creator call, and the number of dropped children."""

    prompts: list[Prompt] = field(default_factory=list)
    tried: list[Attempt] = field(default_factory=list)
    dropped: int = 0

    @property
    def attempts(self) -> int:
        """Number of creator calls."""
        return len(self.tried)

    @property
    def unusable(self) -> Counter[str]:
        """Number of unusable rewrites by reason (each retry counts)."""
        return Counter(a.reason for a in self.tried if a.reason is not None)

    def add(self, other: Evolution) -> None:
        self.prompts += other.prompts
        self.tried += other.tried
        self.dropped += other.dropped


EvolveOne = Callable[[Prompt], Evolution]
"""Evolves one prompt."""

MapFn = Callable[[EvolveOne, Sequence[Prompt]], Iterable[Evolution]]
"""Evolves several prompts and yields the results in order: `map`, or a concurrent equivalent.
Chains share nothing, so the result is the same."""


def chain_rng(seed: int, prompt_id: str) -> np.random.Generator:
    """Return the random generator of one prompt's chain, derived from the seed and prompt id."""
    import numpy as np  # imported here to keep reading declarations fast

    digest = hashlib.sha256(prompt_id.encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


def evolve(
    prompts: Iterable[Prompt],
    creator: Rewriter,
    *,
    evolutions: int,
    retries: int,
    seed: int,
    iteration: int = 1,
    chained: bool = True,
    over: MapFn = map,
) -> Evolution:
    """Evolve each prompt (ids must be unique) into up to `evolutions` children.

    `iteration` (the eva iteration or online step) is part of the children's ids, because a prompt
    that stays in the mix can be selected again. `over` maps over the prompts.
    """
    starts = list(prompts)
    for prompt_id, times in Counter(prompt.prompt_id for prompt in starts).items():
        if times > 1:
            raise HarnessError(
                f"prompt id `{prompt_id}` occurs twice among the prompts to evolve: their children "
                "could not be told apart, so give each prompt its own id."
            )

    def evolve_one(start: Prompt) -> Evolution:
        # Mutates only its own state, so calls can run concurrently.
        rng, result = chain_rng(seed, start.prompt_id), Evolution()

        def child(parent: Prompt, child_id: str) -> Prompt | None:
            for attempt in range(1, 2 + retries):
                rewrite = creator.rewrite(parent.prompt, rng)
                text = rewrite.prompt or ""
                reason = None if text.strip() else rewrite.reason or "empty"
                tried = (child_id, parent.prompt_id, attempt, rewrite.method)
                result.tried.append(Attempt(*tried, reason, rewrite.written))
                if reason is None:
                    lineage = (parent.prompt_id, parent.generation + 1, rewrite.method)
                    return Prompt(child_id, text, "evolved", *lineage)
            result.dropped += 1
            return None

        made = result.prompts
        for i in range(1, evolutions + 1):
            parent = made[-1] if chained and made else start
            new = child(parent, f"{start.prompt_id}.{iteration}.{i}")
            made += [] if new is None else [new]
        return result

    result = Evolution()
    for one in over(evolve_one, starts):
        result.add(one)
    return result


PLUGIN_SETTING = "creator_plugin"
"""The stage setting that names the plug-in."""

Write = Callable[[str, "np.random.Generator"], str]
"""Returns a model's reply to a message; raises `NoReplyError` without a usable one."""

WhyUnusable = Callable[[str, str, Sequence[str]], str | None]
"""Returns why a rewrite is unusable, or None, given the rewrite, its parent, and the messages sent
to a model."""


class NoReplyError(Exception):
    """A model gave no usable reply; the message is a one-word reason."""


@dataclass(frozen=True)
class OwnCreator:
    """A `Rewriter` with a user-defined method, under a world's rules.

    `write` queries a model; None if the method uses none.
    """

    method: str
    why_unusable: WhyUnusable
    write: Write | None = None

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        function = CREATORS.load(self.method)
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
    """Return the setting that identifies a user-defined method; empty for a built-in one."""
    identity = CREATORS.identity(method)
    return {PLUGIN_SETTING: identity["plugin"]} if identity else {}


def own_method(settings: Mapping[str, Json]) -> str | None:
    """Return the user-defined method named in a stage's settings, or None for a built-in one."""
    if PLUGIN_SETTING not in settings:
        return None
    method = str(settings["creator"]).rpartition("/")[2]
    CREATORS.check(method, settings[PLUGIN_SETTING])
    return method
