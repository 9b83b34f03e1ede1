"""Evolving: how a chosen prompt becomes several new ones.

The model. The creator rewrites one prompt text into another. From a prompt x come k children, in
one of three ways:

- `chain`: x -> x.1 -> x.2 -> ... -> x.k, each child a rewrite of the last usable prompt before it
  (all children kept, x itself excluded);
- `independent`: k rewrites of x;
- `tree`: a tree of some depth and width k; at each level k rewrites are made and the best of them,
  by a score of the prompt, is rewritten next; the last level's are the children. Depth 1 is
  `independent`.

A rewrite can be unusable. It is then counted by its reason and tried again, up to `retries` more
times; if all fail, that child is dropped and the next one starts from the last usable prompt, so a
chain yields at most k children and its length does not depend on where a failure falls.

Randomness. Each prompt evolved has its own generator, derived from the seed and the *id* of the
prompt. Adding, removing or reordering prompts therefore changes no other prompt's children.

Source: paper section 3.3 and appendix A (EvolInstruct, four evolutions) and figure 11 (the tree,
"as a trial", neither depth nor width named); distilabel's `EvolInstruct` with `num_evolutions=4,
store_evolutions=True`, as the authors call it offline.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from harness.errors import HarnessError, UserError

Shape = Literal["chain", "independent", "tree"]
"""How the children of one prompt hang together."""


@dataclass(frozen=True)
class Rewrite:
    """What the creator made of one prompt.

    Attributes:
        prompt: the new prompt, or None if the rewrite is unusable.
        method: name of the rewriting method that was used, e.g. `deepening`.
        reason: why the rewrite is unusable, in a word or two; None if it is usable.
    """

    prompt: str | None
    method: str
    reason: str | None = None


class Creator(Protocol):
    """Rewrites prompts. All its randomness comes from the generator it is given."""

    def rewrite(self, prompt: str, rng: np.random.Generator) -> Rewrite:
        """Return one rewrite of `prompt`, usable or not."""
        ...


@dataclass(frozen=True)
class Prompt:
    """A prompt with its lineage; the fields are the columns of `prompts.parquet`.

    Attributes:
        prompt_id: unique name; a child's is `<id of the chain's first prompt>.<iteration>.<i>`.
        prompt: the text.
        source: `human` or `evolved`.
        parent_id: the prompt this one was rewritten from; None for human prompts.
        generation: number of rewrites since the human prompt (0 for the human prompt itself).
        method: rewriting method that made it; None for human prompts.
    """

    prompt_id: str
    prompt: str
    source: str = "human"
    parent_id: str | None = None
    generation: int = 0
    method: str | None = None


@dataclass
class Evolution:
    """The children of all chains, and how the creator fared.

    Attributes:
        prompts: usable children, chain after chain, in the order made.
        attempts: calls of the creator.
        dropped: children given up after all retries.
        unusable: number of unusable rewrites by reason (each retry counts).
    """

    prompts: list[Prompt] = field(default_factory=list)
    attempts: int = 0
    dropped: int = 0
    unusable: Counter[str] = field(default_factory=Counter)


def chain_rng(seed: int, prompt_id: str) -> np.random.Generator:
    """Return the generator of one prompt's chain, a function of the seed and the prompt's id."""
    digest = hashlib.sha256(prompt_id.encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])


def evolve(
    prompts: Iterable[Prompt],
    creator: Creator,
    *,
    evolutions: int,
    retries: int,
    seed: int,
    iteration: int = 1,
    shape: Shape = "chain",
    depth: int = 1,
    quality: Callable[[str], float] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Evolution:
    """Evolve each prompt into several children.

    Args:
        prompts: the selected prompts, with distinct ids.
        creator: rewrites one prompt at a time.
        evolutions: children asked for of each prompt (k above).
        retries: further attempts after an unusable rewrite, for each child.
        seed: root of all prompts' generators.
        iteration: which eva iteration, or online step, this is; it enters the children's ids,
            because a prompt that stays in the mix can be selected again in a later iteration.
        shape: how the children hang together.
        depth: levels of a tree.
        quality: score of a prompt's text by which a tree grows on; the first of equals wins.
        on_progress: called with the number of finished prompts after each one.

    Raises:
        UserError: `evolutions` or `depth` below 1, `retries` below 0, or a tree deeper than 1
            without a `quality`.
        HarnessError: two prompts have the same id, and so would their children.
    """
    if evolutions < 1 or retries < 0:
        raise UserError(
            f"evolving got evolutions={evolutions} and retries={retries}: give at least 1 and 0."
        )
    if depth < 1 or (depth > 1 and (shape != "tree" or quality is None)):
        raise UserError(
            f"evolving got the shape `{shape}` with depth {depth}: a depth above 1 belongs to a "
            "`tree` with a score of its prompts."
        )
    result = Evolution()
    seen: set[str] = set()
    for done, start in enumerate(prompts, start=1):
        if start.prompt_id in seen:
            raise HarnessError(
                f"prompt id `{start.prompt_id}` occurs twice among the prompts to evolve: their "
                "children could not be told apart, so give each prompt its own id."
            )
        seen.add(start.prompt_id)
        grower = _Grower(creator, retries, chain_rng(seed, start.prompt_id), result)
        named = f"{start.prompt_id}.{iteration}"
        root = start
        for level in range(1, depth):
            offered = grower.children(root, evolutions, f"{named}.t{level}", chained=False)
            root = max(offered, key=lambda p: quality(p.prompt), default=root)  # type: ignore[misc]
        result.prompts += grower.children(root, evolutions, named, chained=shape == "chain")
        if on_progress is not None:
            on_progress(done)
    return result


@dataclass(frozen=True)
class _Grower:
    """Makes children of one chosen prompt and counts how the creator fares."""

    creator: Creator
    retries: int
    rng: np.random.Generator
    result: Evolution

    def children(self, root: Prompt, count: int, named: str, *, chained: bool) -> list[Prompt]:
        """Return up to `count` rewrites, each of the one before (`chained`) or all of the root."""
        made: list[Prompt] = []
        for i in range(1, count + 1):
            parent = made[-1] if chained and made else root
            rewritten = _rewrite_until_usable(
                parent.prompt, self.creator, self.retries, self.rng, self.result
            )
            if rewritten is None:
                self.result.dropped += 1
                continue
            text, method = rewritten
            made.append(
                Prompt(
                    prompt_id=f"{named}.{i}",
                    prompt=text,
                    source="evolved",
                    parent_id=parent.prompt_id,
                    generation=parent.generation + 1,
                    method=method,
                )
            )
        return made


def _rewrite_until_usable(
    prompt: str, creator: Creator, retries: int, rng: np.random.Generator, result: Evolution
) -> tuple[str, str] | None:
    """Return text and method of the first usable rewrite, or None once the retries are spent."""
    for _ in range(1 + retries):
        result.attempts += 1
        rewrite = creator.rewrite(prompt, rng)
        if rewrite.prompt is not None and rewrite.prompt.strip():
            return rewrite.prompt, rewrite.method
        result.unusable[rewrite.reason or "empty"] += 1
    return None
