"""Pointwise reward models: one number for a conversation that ends with an answer.

The model. A transformer with a single scalar output reads the whole conversation through its chat
template; the output at the last token is the reward, in the model's own units, never normalised.

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
import torch
from numpy.typing import NDArray

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


def load_reward_model(path: Path, device: str = "cpu") -> Checkpoint:
    """Load a pointwise reward model, or return it from the process's cache.

    Raises:
        HarnessError: no checkpoint at `path`, one with several outputs, or a pairwise one.
    """
    checkpoint = load(path, "scalar", device)
    if FIRST_IS_BETTER in checkpoint.model.config.id2label.values():
        raise HarnessError(
            f"the model at {path} compares two answers and cannot score one: give it a pairwise "
            "role in the profile."
        )
    return checkpoint


@torch.inference_mode()
def score(
    reward_model: Checkpoint | Path,
    conversations: Sequence[Conversation],
    *,
    batch_size: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Score conversations.

    Args:
        reward_model: a loaded reward model, or the folder of one.
        conversations: P conversations, each ending with the assistant message to be scored.
        batch_size: sequences scored together.
        on_progress: called with distinct sequences done and in all, after each batch.

    Returns:
        P rewards, in the reward model's units; equal conversations have equal rewards.

    Raises:
        HarnessError: no usable checkpoint at the given path.
    """
    checkpoint = (
        reward_model if isinstance(reward_model, Checkpoint) else load_reward_model(reward_model)
    )
    ids = tokenize(checkpoint.tokenizer, conversations, add_generation_prompt=False)
    distinct = list(dict.fromkeys(map(tuple, ids)))
    rewards = np.empty(len(distinct))
    done = 0
    for batch in batches_by_length(distinct, batch_size):
        tokens, mask = pad(
            checkpoint.tokenizer,
            [distinct[i] for i in batch],
            "right",
            str(checkpoint.model.device),
        )
        logits = checkpoint.model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        rewards[batch] = logits[:, 0].float().cpu().numpy()
        done += len(batch)
        if on_progress is not None:
            on_progress(done, len(distinct))
    place = {sequence: i for i, sequence in enumerate(distinct)}
    return rewards[[place[tuple(sequence)] for sequence in ids]]
