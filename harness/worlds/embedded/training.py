"""What training the embedded world's models shares: encoding, kernels, one step of descent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.worlds.embedded import language as lang
from harness.worlds.embedded.texts import Exchange

if TYPE_CHECKING:
    import torch

IGNORED = -100  # label of tokens without loss


def encode(turns: list[Exchange], ids: dict[str, int]) -> tuple[list[int], list[int]]:
    """Return token ids and labels of a conversation; labels ignore all but the model's turns."""
    tokens, labels = [ids[lang.BOS]], [IGNORED]
    for prompt, answer in turns:
        asked = [lang.START, lang.USER, *prompt.split(), lang.END, lang.START, lang.MODEL]
        reply = [ids[word] for word in (*answer.split(), lang.END)]
        tokens += [ids[word] for word in asked] + reply
        labels += [IGNORED] * len(asked) + reply
    return tokens, labels


def padded(rows: list[list[int]], fill: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the right-padded rows and their attention mask, both (rows, longest)."""
    import torch

    lengths = torch.tensor([[len(row)] for row in rows])
    longest = int(lengths.max())
    values = torch.tensor([row + [fill] * (longest - len(row)) for row in rows])
    return values, (torch.arange(longest)[None, :] < lengths).long()


def compiled(model: Any) -> Any:
    """Return the compiled model, or the model itself without a C++ compiler."""
    import torch

    return torch.compile(model, dynamic=True) if shutil.which("g++") else model


@contextmanager
def reproducible(seed: int, threads: int) -> Iterator[str]:
    """Make torch bitwise reproducible within the context; yields the device to use.

    Without deterministic kernels the embedding gradient is summed in whatever order the threads
    arrive, and two training runs diverge after about fifty steps.
    """
    import torch

    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    # Some operations have no deterministic GPU kernel, so only warn there.
    torch.use_deterministic_algorithms(True, warn_only=device == "cuda")
    try:
        yield device
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])


SHORT, LONG = 0.0042, 0.14
"""RMS of a name's embedding: in the base policy, and roughly what training produces."""


def resize_names(model: Any, size: float) -> None:
    """Scale the embedding of every name to an RMS of `size`; the model's outputs barely change.

    Gemma-2 normalizes each layer's input, so a short embedding means the same as a long one, but a
    step of a given size rotates it further.
    """
    import torch

    rows = torch.tensor([lang.token_ids()[name] for name in lang.MEANING])
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        found = embeddings[rows]
        embeddings[rows] = found * (size / found.pow(2).mean(1, keepdim=True).sqrt())


def descent(
    model: torch.nn.Module, learning_rate: float, warmup_steps: int, steps: int
) -> Callable[[torch.Tensor], None]:
    """Put a model in training mode and return a function that takes one step on a loss."""
    import torch
    from transformers import get_linear_schedule_with_warmup

    optimizer = torch.optim.AdamW(
        model.parameters(), learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    schedule = get_linear_schedule_with_warmup(optimizer, warmup_steps, steps)
    model.train()

    def descend(loss: torch.Tensor) -> None:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)

    return descend
