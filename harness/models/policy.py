"""The policy answers: completions sampled from a causal model, n for each conversation.

From the logits at temperature T come probabilities; only the nucleus is kept, the smallest set of
most likely tokens whose mass reaches `top_p`; one token of it is drawn by inversion of its
cumulative distribution at a uniform number u, until the turn ends or `max_new_tokens` are spent:

    token = first k with  p_1 + ... + p_k > u * (mass of the nucleus)       (p falling)

The numbers u are derived from the seed, the position of the conversation and the sample number, so
adding conversations at the end changes no other's completions. `batch_size` enters through rounding
alone, which now and then tips a draw, so it is part of the identity of a result.

Source: paper appendix A (six completions); authors' code (temperature 0.7, top_p 0.9).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from harness.models.loading import (
    Checkpoint,
    Conversation,
    batches_by_length,
    load_model,
    load_tokenizer,
    pad,
    stamp,
    stop_token_ids,
    tokenize,
)


@dataclass(frozen=True)
class Completion:
    text: str
    """Without special tokens and surrounding blanks."""
    n_tokens: int
    """Tokens sampled before the end of the turn (that token not counted)."""
    ids: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The tokens, with the one that ended the turn; none where a server sampled them."""


def load_policy(path: Path, device: str = "cpu") -> Checkpoint:
    """Load a policy in float32, or return it from the process's cache.

    The last ones are kept, by path, size and time of change. They are shared, so nobody may train
    or otherwise change one; training loads its own.
    """
    return _load(str(Path(path).resolve()), stamp(path), device)


@lru_cache(maxsize=6)
def _load(path: str, stamp: tuple[Any, ...], device: str) -> Checkpoint:
    del stamp  # part of the key only
    tokenizer = load_tokenizer(Path(path))
    model = load_model(Path(path)).to(torch.device(device)).eval()
    return Checkpoint(model, tokenizer)


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
) -> list[list[Completion]]:
    """Sample n completions of each conversation; return P lists of n, in their order.

    Temperature 0 is greedy decoding, `top_p` the nucleus' mass in (0, 1]. The n of one conversation
    stay together in a batch. The process's own random state is neither used nor changed.
    """
    checkpoint = policy if isinstance(policy, Checkpoint) else load_policy(policy)
    tokenizer, device = checkpoint.tokenizer, str(checkpoint.model.device)
    stops = stop_token_ids(tokenizer)
    prompts = tokenize(tokenizer, conversations, add_generation_prompt=True)
    completions: list[list[Completion]] = [[] for _ in prompts]
    for batch in batches_by_length(prompts, max(1, batch_size // n)):
        ids, mask = pad(tokenizer, [prompts[i] for i in batch], "left", device)
        draws = [np.random.default_rng([seed, i]).random((n, max_new_tokens)) for i in batch]
        ends: dict[int, int] = {}
        sampled = decode(
            checkpoint.model,
            ids,
            mask,
            n=n,
            max_new_tokens=max_new_tokens,
            stops=stops,
            temperature=temperature,
            top_p=top_p,
            uniforms=torch.from_numpy(np.concatenate(draws)).to(device),
            ends=ends,
        )
        for row, tokens in enumerate(sampled):
            text = tokenizer.decode(
                tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            ids_of_row = (*tokens, *([ends[row]] if row in ends else ()))
            one = Completion(str(text).strip(), len(tokens), ids_of_row)
            completions[batch[row // n]].append(one)
    return completions


@torch.inference_mode()
def embed(
    policy: Checkpoint, conversations: Sequence[Conversation], batch_size: int
) -> NDArray[np.float64]:
    """Return what the policy makes of each of P conversations: P x D numbers.

    They are the last layer's, at the last token before the answer.
    """
    prompts = tokenize(policy.tokenizer, conversations, add_generation_prompt=True)
    made: dict[int, NDArray[np.float64]] = {}
    for batch in batches_by_length(prompts, batch_size):
        rows = [prompts[i] for i in batch]
        ids, mask = pad(policy.tokenizer, rows, "left", str(policy.model.device))
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        read = policy.model.base_model(input_ids=ids, attention_mask=mask, position_ids=positions)
        last = read.last_hidden_state[:, -1].double().cpu().numpy()
        made |= zip(batch, last, strict=True)
    return np.stack([made[i] for i in range(len(prompts))])


@torch.inference_mode()
def decode(
    model: Any,
    ids: torch.Tensor,
    mask: torch.Tensor,
    *,
    n: int,
    max_new_tokens: int,
    stops: Collection[int],
    temperature: float,
    top_p: float,
    uniforms: torch.Tensor,
    ends: dict[int, int] | None = None,
) -> list[list[int]]:
    """Sample n completions of each prompt in a batch.

    Unlike in `model.generate`, each prompt is read once, its key-value cache is repeated n times,
    and finished sequences leave the batch: on a CPU a third of the time for six short completions.

    Token ids and mask are B x T, padded on the left; `uniforms` are (B * n) x M numbers in [0, 1),
    one for each token. `ends` receives, by row, the token that ended the turn.

    Returns:
        B * n token lists, the n of the first prompt first, without the stopping token.
    """
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    logits = _next_logits(model, ids, mask, positions, cache)
    cache.batch_repeat_interleave(n)
    logits, mask = logits.repeat_interleave(n, 0), mask.repeat_interleave(n, 0)
    position = positions[:, -1:].repeat_interleave(n, 0)
    rows = torch.arange(len(mask), device=mask.device)
    completions: list[list[int]] = [[] for _ in rows]
    stop_ids = torch.tensor(sorted(stops), device=mask.device)
    for step in range(max_new_tokens):
        tokens = next_tokens(logits, temperature, top_p, uniforms[rows, step])
        going = ~torch.isin(tokens, stop_ids)
        left = going.nonzero()[:, 0]
        if ends is not None:
            ends |= zip(rows[~going].tolist(), tokens[~going].tolist(), strict=True)
        if len(left) < len(rows):
            rows, tokens, mask, position = rows[left], tokens[left], mask[left], position[left]
            cache.batch_select_indices(left)
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            completions[row].append(token)
        if len(rows) == 0 or step == max_new_tokens - 1:
            break
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        position = position + 1
        logits = _next_logits(model, tokens[:, None], mask, position, cache)
    return completions


def _next_logits(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
) -> torch.Tensor:
    """Read tokens after those in the cache; return the logits of the next one, B x V."""
    logits: torch.Tensor = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    ).logits
    return logits[:, -1]


def next_tokens(
    logits: torch.Tensor, temperature: float, top_p: float, uniforms: torch.Tensor
) -> torch.Tensor:
    """Draw B tokens from B x V logits by B numbers in [0, 1); see the module for the rest."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities, tokens = (logits.float() / temperature).softmax(-1).sort(-1, descending=True)
    cumulative = probabilities.cumsum(-1)
    # A token is in the nucleus if those before it do not yet reach `top_p`; the first always is.
    size = (cumulative - probabilities < top_p).sum(-1, keepdim=True)
    mass = cumulative.gather(-1, size - 1)
    drawn = (cumulative <= uniforms.to(cumulative)[:, None] * mass).sum(-1, keepdim=True)
    # u close to 1 times the mass can round up to the mass itself.
    return tokens.gather(-1, torch.minimum(drawn, size - 1))[:, 0]
