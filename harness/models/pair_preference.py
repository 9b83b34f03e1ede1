"""Pairwise rewards: the probability that one answer to a prompt is better than another.

The model. A pairwise reward model (`harness.models.reward_loading` lists the kinds) reads a
conversation and two answers to it, a and b; its output is a logit l(a, b) for "the first is the
better one". A reader has a leaning towards a position, so both orders are read. What is averaged
is each model's own affair, the logits or the probabilities:

    p(a, b) = sigmoid((l(a, b) - l(b, a)) / 2)    or    (sigmoid(l(a, b)) + sigmoid(-l(b, a))) / 2

Then p(a, b) + p(b, a) is exactly 1, whatever the model, and p(a, a) is exactly 1/2; answers that
render to the same tokens are the same answer and are never read against each other. Each pair of
token sequences is read once, so equal answers have exactly equal probabilities.

Sequences are padded on the right with an attention mask, so that a probability does not depend
on the batch (beyond rounding, about 1e-6).

Source: paper section 4.2.3 and appendix G (PairRM, in both orders as its authors do); SPPO (Wu et
al., 2024), section 4, for the mean over all samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from harness.errors import HarnessError
from harness.models.loading import Conversation
from harness.models.reader import (
    BATCH_TOKENS,
    Average,
    Comparison,
    OnProgress,
    PairModel,
    read_all,
)
from harness.models.reward_loading import load_reward_model


def win_probabilities(
    pair_model: PairModel | Path,
    conversations: Sequence[Conversation],
    answers: Sequence[Sequence[str]],
    *,
    batch_size: int,
    batch_tokens: int = BATCH_TOKENS,
    on_progress: OnProgress | None = None,
    on_cut: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Compare the answers to each conversation with one another.

    Args:
        pair_model: a loaded pairwise reward model, or the folder of one.
        conversations: P conversations, each ending with the user's turn to be answered.
        answers: K answers to each of them.
        batch_size: most sequences read together.
        batch_tokens: most tokens read together, padding counted.
        on_progress: called with distinct sequences done and in all, after each batch.
        on_cut: called once with how many of the pairs read were too long and were cut.

    Returns:
        P x K x K probabilities in [0, 1]; [p, i, j] that answer i to conversation p is better
        than answer j. An element and its mirror image sum to exactly 1; the diagonal is 1/2.

    Raises:
        HarnessError: no usable checkpoint at the given path, answers not K to a conversation, or a
            prompt that fills the model's context.
    """
    p, k = len(conversations), len(answers[0]) if answers else 0
    if len(answers) != p or any(len(own) != k for own in answers):
        raise HarnessError(
            f"win probabilities need equally many answers to each of {p} conversations; "
            f"got {sorted({len(own) for own in answers})} answers to {len(answers)}"
        )
    if isinstance(pair_model, Path):
        pair_model = load_reward_model(pair_model, "two answers")
    asked = [c for c, own in zip(conversations, answers, strict=True) for _ in own]
    answered = [a for own in answers for a in own]
    # An answer is known by what is read of it against itself; of equal ones the first stands for
    # all.
    single = pair_model.encode_pairs(
        [Comparison(c, a, a) for c, a in zip(asked, answered, strict=True)]
    )
    first = {e.tokens: position for position, e in reversed(list(enumerate(single)))}
    stands = np.array([first[e.tokens] for e in single], dtype=int).reshape(p, k)
    rows = stands.tolist()
    pairs = list(dict.fromkeys(pair for row in rows for pair in permutations(sorted(set(row)), 2)))
    both = pair_model.encode_pairs(
        [Comparison(asked[a], answered[a], answered[b]) for a, b in pairs]
    )
    if on_cut is not None:
        on_cut(sum(e.cut for e in both))
    logits = read_all(
        pair_model,
        [e.tokens for e in both],
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        on_progress=on_progress,
    )
    logit = dict(zip(pairs, logits.tolist(), strict=True))
    read = [[[0.0 if a == b else logit[a, b] for b in row] for a in row] for row in rows]
    return _both_orders(np.array(read, dtype=np.float64).reshape(p, k, k), pair_model.averages)


def _both_orders(logits: NDArray[np.float64], averages: Average) -> NDArray[np.float64]:
    """Return probabilities from P x K x K logits of which [p, i, j] is of i in the first place."""
    mirrored = logits.transpose(0, 2, 1)
    # From the side that leads, since 1 - p is exact there and sigmoid(-x) rounds otherwise.
    high, low = np.maximum(logits, mirrored), np.minimum(logits, mirrored)
    winning = _leads(high, low, averages)
    return np.where(high == low, 0.5, np.where(logits == high, winning, 1.0 - winning))


def _leads(
    high: NDArray[np.float64], low: NDArray[np.float64], averages: Average
) -> NDArray[np.float64]:
    """Return the probability that an answer wins which has the higher logit in its order."""
    if averages == "logits":
        return np.asarray(expit((high - low) / 2))
    return np.asarray((expit(high) + expit(-low)) / 2)


def mean_win_probabilities(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each answer's mean probability of winning, over all K answers and itself.

    Args:
        probabilities: P x K x K, from `win_probabilities`.

    Returns:
        P x K means in [0, 1]; their mean over a prompt's answers is 1/2. Equal answers have
        exactly equal means.

    Source: the authors' code of SPPO, which averages over all samples, the diagonal included.
    """
    means: NDArray[np.float64] = probabilities.mean(axis=-1)
    return means
