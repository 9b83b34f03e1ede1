"""Pointwise rewards: one number for a conversation that ends with an answer.

The model. A reward model (`harness.models.reward_loading` lists the kinds) reads the whole
conversation; its output is the reward, in the model's own units, never normalised.

Conversations that render to the same tokens are scored once, so equal answers have exactly equal
rewards. Scored in different batches they would differ in the last digits, a tied prompt would seem
to have a reward spread, and min-max weights would act on it.

Sequences are padded on the right with an attention mask, so that a score does not depend on the
batch (beyond rounding, below 1e-5). The authors score without a mask, which is harmless on the
right and wrong on the left, where Gemma's tokenizer pads by default.

Source: paper appendix A (ArmoRM), section 4.2.3 and appendix G (Skywork); authors' code
(`src/reward_hf.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.models.loading import Conversation
from harness.models.reader import BATCH_TOKENS, OnProgress, RewardModel, read_all
from harness.models.reward_loading import load_reward_model


def score(
    reward_model: RewardModel | Path,
    conversations: Sequence[Conversation],
    *,
    batch_size: int,
    batch_tokens: int = BATCH_TOKENS,
    on_progress: OnProgress | None = None,
    on_cut: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Score conversations.

    Args:
        reward_model: a loaded reward model, or the folder of one.
        conversations: P conversations, each ending with the assistant message to be scored.
        batch_size: most sequences scored together.
        batch_tokens: most tokens scored together, padding counted.
        on_progress: called with distinct sequences done and in all, after each batch.
        on_cut: called once with how many of the conversations were too long and were cut.

    Returns:
        P rewards, in the reward model's units; equal conversations have equal rewards.

    Raises:
        HarnessError: no usable checkpoint at the given path, or a prompt that fills its context.
    """
    if isinstance(reward_model, Path):
        reward_model = load_reward_model(reward_model)
    encoded = reward_model.encode(conversations)
    if on_cut is not None:
        on_cut(sum(e.cut for e in encoded))
    distinct = list(dict.fromkeys(e.tokens for e in encoded))
    rewards = read_all(
        reward_model,
        distinct,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        on_progress=on_progress,
    )
    place = {tokens: i for i, tokens in enumerate(distinct)}
    return np.asarray(rewards[[place[e.tokens] for e in encoded]])
