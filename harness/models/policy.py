"""The policy answers: completions sampled from a causal model, n for each conversation.

The model. A conversation is rendered with the generation prompt; tokens are sampled at the given
temperature from the smallest set of tokens whose probability reaches `top_p` (no top-k) until the
turn ends or `max_new_tokens` are spent. Temperature 0 means the most likely token.

What decides the text. The random numbers of a completion are derived from the seed, the position
of its conversation and the sample number. Adding conversations at the end changes no other's
completions. `batch_size` enters through rounding alone, which now and then tips a draw, so it is
part of the identity of a result but not of its distribution.

Source: paper appendix A (six completions); authors' code (temperature 0.7, top_p 0.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from harness.models.decoding import decode
from harness.models.loading import (
    Checkpoint,
    Conversation,
    batches_by_length,
    load,
    pad,
    stop_token_ids,
    tokenize,
)


@dataclass(frozen=True)
class Completion:
    """One answer.

    Attributes:
        text: the answer without special tokens and surrounding blanks.
        n_tokens: tokens sampled before the end of the turn (that token not counted).
    """

    text: str
    n_tokens: int


def load_policy(path: Path, device: str = "cpu") -> Checkpoint:
    """Load a policy, or return it from the process's cache.

    Raises:
        HarnessError: no checkpoint at `path`.
    """
    return load(path, device)


def generate(
    policy: Checkpoint | Path,
    conversations: Sequence[Conversation],
    *,
    n: int,
    temperature: float,
    top_p: float,
    max_new_tokens: int,
    batch_size: int,
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[list[Completion]]:
    """Sample completions.

    Args:
        policy: a loaded policy, or the folder of one.
        conversations: P conversations, each ending with a user message.
        n: completions for each conversation.
        temperature: divides the logits; 0 for greedy decoding.
        top_p: nucleus mass, in (0, 1].
        max_new_tokens: longest completion, in tokens.
        batch_size: sequences generated together; the n of one conversation stay together.
        seed: root of all draws; the process's own random state is neither used nor changed.
        on_progress: called with sequences done and in all, after each batch.

    Returns:
        P lists of n completions, in the order of `conversations`.

    Raises:
        HarnessError: no checkpoint at the given path.
    """
    checkpoint = policy if isinstance(policy, Checkpoint) else load_policy(policy)
    tokenizer, device = checkpoint.tokenizer, str(checkpoint.model.device)
    stops = stop_token_ids(tokenizer)
    prompts = tokenize(tokenizer, conversations, add_generation_prompt=True)
    completions: list[list[Completion]] = [[] for _ in prompts]
    done = 0
    for batch in batches_by_length(prompts, max(1, batch_size // n)):
        ids, mask = pad(tokenizer, [prompts[i] for i in batch], "left", device)
        sampled = decode(
            checkpoint.model,
            ids,
            mask,
            n=n,
            max_new_tokens=max_new_tokens,
            stops=stops,
            temperature=temperature,
            top_p=top_p,
            uniforms=torch.from_numpy(
                np.concatenate(
                    [np.random.default_rng([seed, i]).random((n, max_new_tokens)) for i in batch]
                )
            ).to(device),
        )
        for row, tokens in enumerate(sampled):
            text = tokenizer.decode(
                tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            completions[batch[row // n]].append(Completion(str(text).strip(), len(tokens)))
        done += len(batch)
        if on_progress is not None:
            on_progress(n * done, n * len(prompts))
    return completions
