"""Pairwise reward models: the probability that one answer to a prompt is better than another.

The model. A transformer with a single scalar output reads one conversation that has two model
turns at its end, the answers a and b; the output at the last token is a logit l(a, b) for "the
first is the better one". A reader has a leaning towards a position, so both orders are read:

    p(a, b) = sigmoid((l(a, b) - l(b, a)) / 2)

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
import torch
from numpy.typing import NDArray
from scipy.special import expit

from harness.errors import HarnessError
from harness.models.loading import (
    FIRST_IS_BETTER,
    Checkpoint,
    Conversation,
    batches_by_length,
    load,
    pad,
    tokenize,
)

Tokens = tuple[int, ...]


def load_pair_model(path: Path, device: str = "cpu") -> Checkpoint:
    """Load a pairwise reward model, or return it from the process's cache.

    Raises:
        HarnessError: no checkpoint at `path`, or one that is not a pairwise reward model.
    """
    checkpoint = load(path, "scalar", device)
    if checkpoint.model.config.id2label != {0: FIRST_IS_BETTER}:
        raise HarnessError(
            f"the model at {path} is no pairwise reward model: its configuration does not name its "
            f"output {FIRST_IS_BETTER}."
        )
    return checkpoint


@torch.inference_mode()
def win_probabilities(
    pair_model: Checkpoint | Path,
    conversations: Sequence[Conversation],
    answers: Sequence[Sequence[str]],
    *,
    batch_size: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Compare the answers to each conversation with one another.

    Args:
        pair_model: a loaded pairwise reward model, or the folder of one.
        conversations: P conversations, each ending with the user's turn to be answered.
        answers: K answers to each of them.
        batch_size: sequences read together.
        on_progress: called with distinct sequences done and in all, after each batch.

    Returns:
        P x K x K probabilities in [0, 1]; [p, i, j] that answer i to conversation p is better
        than answer j. An element and its mirror image sum to exactly 1; the diagonal is 1/2.

    Raises:
        HarnessError: no usable checkpoint at the given path, or answers not K to a conversation.
    """
    p, k = len(conversations), len(answers[0]) if answers else 0
    if len(answers) != p or any(len(own) != k for own in answers):
        raise HarnessError(
            f"win probabilities need equally many answers to each of {p} conversations; "
            f"got {sorted({len(own) for own in answers})} answers to {len(answers)}"
        )
    checkpoint = pair_model if isinstance(pair_model, Checkpoint) else load_pair_model(pair_model)
    asked = [c for c, own in zip(conversations, answers, strict=True) for _ in own]
    answered = [a for own in answers for a in own]
    single = _rendered(checkpoint, [[*c, _turn(a)] for c, a in zip(asked, answered, strict=True)])
    # An answer is known by the tokens of its conversation; of equal ones the first stands for all.
    first = {tokens: position for position, tokens in reversed(list(enumerate(single)))}
    stands = np.array([first[tokens] for tokens in single], dtype=int).reshape(p, k)
    rows = stands.tolist()
    pairs = list(dict.fromkeys(pair for row in rows for pair in permutations(sorted(set(row)), 2)))
    both = [[*asked[a], _turn(answered[a]), _turn(answered[b])] for a, b in pairs]
    logits = _logits(checkpoint, _rendered(checkpoint, both), batch_size, on_progress)
    logit = dict(zip(pairs, logits.tolist(), strict=True))
    halves = [
        [[0.0 if a == b else (logit[a, b] - logit[b, a]) / 2 for b in row] for a in row]
        for row in rows
    ]
    lead = np.array(halves, dtype=np.float64).reshape(p, k, k)
    # From the side that leads, since 1 - p is exact there and sigmoid(-x) rounds otherwise.
    winning = expit(np.abs(lead))
    return np.where(lead >= 0, winning, 1.0 - winning)


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


def _turn(answer: str) -> dict[str, str]:
    return {"role": "assistant", "content": answer}


def _rendered(checkpoint: Checkpoint, conversations: Sequence[Conversation]) -> list[Tokens]:
    """Return the token ids of whole conversations."""
    ids = tokenize(checkpoint.tokenizer, conversations, add_generation_prompt=False)
    return [tuple(sequence) for sequence in ids]


def _logits(
    checkpoint: Checkpoint,
    sequences: Sequence[Tokens],
    batch_size: int,
    on_progress: Callable[[int, int], None] | None,
) -> NDArray[np.float64]:
    """Return the model's output for each sequence."""
    logits = np.empty(len(sequences))
    done = 0
    device = str(checkpoint.model.device)
    for batch in batches_by_length(sequences, batch_size):
        rows = [sequences[i] for i in batch]
        tokens, mask = pad(checkpoint.tokenizer, rows, "right", device)
        output = checkpoint.model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        logits[batch] = output[:, 0].float().cpu().numpy()
        done += len(batch)
        if on_progress is not None:
            on_progress(done, len(sequences))
    return logits
