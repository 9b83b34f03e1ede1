"""How a pool of prompts is cut into the pieces that iterations train on.

The pool is shuffled once, by the run's seed alone, and cut into contiguous pieces of x prompts, so
that the pieces of one seed never share a prompt. Where the pool is a little smaller than all its
pieces (UltraFeedback's 59,720 prompts make six "10K" splits), the pieces are nearly equal instead:
the same number, one more or less.

The shuffle is that of `datasets.Dataset.shuffle(seed=...)`: with the authors' seed, 8964, the order
is theirs.

Source: paper section 4, footnote 5; authors' `shuffle_ds.py`.
"""

from __future__ import annotations

import numpy as np

from harness.errors import UserError

SHORTEST = 0.95
"""Least share of x prompts that a piece may have."""


def piece_bounds(size: int, x: int, pieces: int) -> list[int]:
    """Return where pieces begin and the last one ends, in a pool.

    Args:
        size: Prompts in the pool.
        x: Prompts a piece should have.
        pieces: How many pieces there are to be.

    Returns:
        `pieces` + 1 positions.

    Raises:
        UserError: The pool is too small.
    """
    if size >= x * pieces:
        return [x * piece for piece in range(pieces + 1)]
    if size < SHORTEST * x * pieces:
        raise UserError(
            f"{size} prompts are too few for {pieces} pieces of {x}; name a larger source, or "
            "fewer pieces in `prompts.available`"
        )
    return [size * piece // pieces for piece in range(pieces + 1)]


def positions(size: int, seed: int, x: int, pieces: int, first: int, count: int) -> list[int]:
    """Return the positions in the pool of some pieces' prompts, in their order.

    Args:
        size: Prompts in the pool.
        seed: Seed of the order.
        x: Prompts of a piece.
        pieces: Pieces the pool is cut into.
        first: Where to begin, in prompts: a multiple of x.
        count: How many, in prompts: a multiple of x.

    Raises:
        UserError: The pool is too small.
    """
    bounds = piece_bounds(size, x, pieces)
    last = (first + count) // x
    if first % x or count % x or last > pieces:
        raise UserError(
            f"prompts {first} to {first + count} are not whole pieces of {x} among {pieces}; ask "
            "for fewer, or raise `prompts.available`"
        )
    order = np.random.default_rng(seed).permutation(size)
    return [int(i) for i in order[bounds[first // x] : bounds[last]]]
