"""Sampling from the policy: n completions of each conversation from a causal language model.

Each token is drawn at temperature T from the nucleus, the smallest set of most likely tokens whose
mass reaches `top_p`, by inverting its cumulative distribution at a uniform number u, until the turn
ends or `max_new_tokens` is reached:

    token = first k with  p_1 + ... + p_k > u * (mass of the nucleus)       (p descending)

The numbers u are seeded by the seed and the conversation's index, with a row per sample, so
appending conversations does not change the completions of others. `batch_size` matters only through
rounding, which occasionally changes a draw, so it is part of a result's identity.

Source: paper appendix A (six completions); authors' code (temperature 0.7, top_p 0.9).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad as pad_tensor
from transformers import DynamicCache, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer

from harness.models.loading import (
    Checkpoint,
    Conversation,
    batches_by_length,
    load_model,
    load_tokenizer,
    pad,
    stamp,
    stop_token_ids,
    text_of,
    tokenize,
)


@dataclass(frozen=True)
class Completion:
    text: str
    """Without special tokens and surrounding whitespace."""
    n_tokens: int
    """Number of tokens sampled, excluding the end-of-turn token."""
    ids: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The tokens, including the one that ended the turn; empty from a server or a file."""


def load_policy(path: Path) -> Checkpoint:
    """Load a policy in float32, or return it from the process's cache.

    The cache is keyed by path and the weight files' sizes and modification times. Policies are
    shared, so do not modify or train them; training loads its own.
    """
    return _load(path.resolve(), stamp(path))


@lru_cache(maxsize=6)
def _load(path: Path, stamp: tuple[Any, ...]) -> Checkpoint:
    del stamp  # part of the key only
    return Checkpoint(load_model(path).eval(), load_tokenizer(path))


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
    """Sample n completions of each conversation; return P lists of n, in order.

    Temperature 0 is greedy decoding; `top_p` is the nucleus mass in (0, 1]. The n completions of a
    conversation share a batch. The global random state is neither used nor changed.
    """
    checkpoint = policy if isinstance(policy, Checkpoint) else load_policy(policy)
    tokenizer, device = checkpoint.tokenizer, str(checkpoint.model.device)
    stops = stop_token_ids(tokenizer)
    prompts = tokenize(tokenizer, conversations, add_generation_prompt=True)
    completions: list[list[Completion]] = [[] for _ in prompts]
    for batch in batches_by_length(prompts, max(1, batch_size // n)):
        ids, mask = pad(tokenizer, [prompts[i] for i in batch], "left", device)
        draws = [np.random.default_rng([seed, i]).random((n, max_new_tokens)) for i in batch]
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
        )
        for row, tokens in enumerate(sampled):
            completions[batch[row // n]].append(completion_of(tokenizer, tokens, stops))
    return completions


def complete_line(
    policy: Path, text: str, *, temperature: float, max_new_tokens: int, seed: int
) -> str:
    """Continue a plain text, without a chat template, to the end of its line.

    The global random state is neither used nor changed.
    """
    checkpoint = load_policy(policy)
    tokenizer, device = checkpoint.tokenizer, checkpoint.model.device
    ids = tokenizer(text, return_tensors="pt").input_ids.to(device)
    line_ends = tokenizer.encode("\n", add_special_tokens=False)
    draws = np.random.default_rng(seed).random((1, max_new_tokens))
    [tokens] = decode(
        checkpoint.model,
        ids,
        torch.ones_like(ids),
        n=1,
        max_new_tokens=max_new_tokens,
        stops={*stop_token_ids(tokenizer), *line_ends},
        temperature=temperature,
        top_p=1.0,
        uniforms=torch.from_numpy(draws).to(device),
    )
    return text_of(tokenizer, tokens).partition("\n")[0].strip()


def completion_of(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], stops: Collection[int]
) -> Completion:
    """Return what was sampled, given all tokens up to the one in `stops` that ended the turn."""
    said = tokens[:-1] if tokens and tokens[-1] in stops else tokens
    return Completion(text_of(tokenizer, said), len(said), tuple(tokens))


@torch.inference_mode()
def embed(
    policy: Checkpoint, conversations: Sequence[Conversation], batch_size: int
) -> NDArray[np.float64]:
    """Embed P conversations: the last layer's P x D hidden states at the last prompt token."""
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
    context: int = sys.maxsize,
) -> list[list[int]]:
    """Sample n completions of each prompt in a batch.

    Unlike `model.generate`, this reads each prompt once, repeats its key-value cache n times, drops
    finished sequences from the batch, and does not copy the cache for each token: a third of the
    time for six short completions on a CPU.

    Token ids and mask are B x T, left-padded; `uniforms` are (B * n) x M numbers in [0, 1), one per
    token. Tokens after the `context` are of no use, but do not fail.

    Returns:
        B * n token lists, grouped by prompt, each with the token that ended its turn, if one did.
    """
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    cache.layers = [RoomyLayer() if type(own) is DynamicLayer else own for own in cache.layers]
    logits = _next_logits(model, ids, mask, positions, cache)
    cache.batch_repeat_interleave(n)
    logits, mask = logits.repeat_interleave(n, 0), mask.repeat_interleave(n, 0)
    position = positions[:, -1:].repeat_interleave(n, 0)
    rows = torch.arange(len(mask), device=mask.device)
    completions: list[list[int]] = [[] for _ in rows]
    stop_ids = torch.tensor(sorted(stops), device=mask.device)
    for step in range(max_new_tokens):
        tokens = next_tokens(logits, temperature, top_p, uniforms[rows, step])
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            completions[row].append(token)
        left = (~torch.isin(tokens, stop_ids)).nonzero()[:, 0]
        if len(left) < len(rows):
            rows, tokens, mask, position = rows[left], tokens[left], mask[left], position[left]
            cache.batch_select_indices(left)
        if len(rows) == 0 or step == max_new_tokens - 1:
            break
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        position = (position + 1).clamp(max=context - 1)
        logits = _next_logits(model, tokens[:, None], mask, position, cache)
    return completions


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A layer's keys and values, in buffers that grow by `ROOM` tokens at a time.

    `keys` and `values` are views of the buffers' first tokens. The parent concatenates, which
    copies the whole cache for each token: a quarter of the time of a small model.
    """

    ROOM = 64

    _buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.get_seq_length()
        if start == 0:
            read: tuple[torch.Tensor, torch.Tensor] = super().update(key_states, value_states)
            return read
        end = start + key_states.shape[-2]
        if self._buffers is None or end > self._buffers[0].shape[-2]:
            padding = (0, 0, 0, end - start + self.ROOM)
            self._buffers = pad_tensor(self.keys, padding), pad_tensor(self.values, padding)
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start:end, :] = new
        return self._show(end)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self._buffers is None:
            super().batch_select_indices(indices)
            return
        end = self.get_seq_length()
        self._buffers = self._buffers[0][indices], self._buffers[1][indices]
        self._show(end)

    def _show(self, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        assert self._buffers is not None
        keys, values = (buffer[..., :end, :] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


def _next_logits(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
) -> torch.Tensor:
    """Read tokens after those in the cache; return the next token's logits, B x V."""
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
    """Draw B tokens from B x V logits, given B numbers in [0, 1); see the module docstring."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = (logits.float() / temperature).softmax(-1)
    if probabilities.shape[-1] <= HEAD:
        ordered, tokens = probabilities.sort(-1, descending=True)
        return _drawn(ordered, tokens, top_p, uniforms)
    # Sorting a large vocabulary costs more than the model itself; its head decides nearly always.
    head, tokens = probabilities.topk(HEAD)
    drawn = _drawn(head, tokens, top_p, uniforms, whole=False)
    reached = top_p if top_p < 1 else uniforms.to(head)
    rest = (head.sum(-1) <= reached).nonzero()[:, 0]
    if len(rest):
        ordered, others = probabilities[rest].sort(-1, descending=True)
        drawn[rest] = _drawn(ordered, others, top_p, uniforms[rest])
    return drawn


HEAD = 256
"""Tokens sorted first in a vocabulary larger than that."""


def _drawn(
    probabilities: torch.Tensor,
    tokens: torch.Tensor,
    top_p: float,
    uniforms: torch.Tensor,
    *,
    whole: bool = True,
) -> torch.Tensor:
    """Draw from tokens in descending order of probability: all, or enough to hold the draw."""
    cumulative = probabilities.cumsum(-1)
    # A token is in the nucleus if those before it fall short of `top_p`; the first always is.
    size = (cumulative - probabilities < top_p).sum(-1, keepdim=True)
    mass = cumulative.gather(-1, size - 1) if whole or top_p < 1 else 1.0
    drawn = (cumulative <= uniforms.to(cumulative)[:, None] * mass).sum(-1, keepdim=True)
    # For u close to 1, u times the mass can round up to the mass itself.
    return tokens.gather(-1, torch.minimum(drawn, size - 1))[:, 0]
