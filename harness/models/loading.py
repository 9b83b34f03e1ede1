"""Checkpoints in memory, and conversations as token ids: what every model here needs.

A worker process runs many stages on few checkpoints, so the last ones loaded are kept. A checkpoint
is known by its path, size and time of change: a rebuilt one is loaded anew. A cached model is
shared, so nobody may train or otherwise change it; training loads its own.

Conversations are always rendered by the chat template and tokenised without adding special
tokens, so that the template's `<bos>` is the only one (the authors' generation and training both
prepend a second one; see the assumptions in the report).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from harness.errors import HarnessError

Message = Mapping[str, str]
Conversation = Sequence[Message]
Head = Literal["causal", "scalar"]
Side = Literal["left", "right"]

END_OF_TURN = "<end_of_turn>"

FIRST_IS_BETTER = "FIRST_IS_BETTER"
"""Name of the output in the configuration of a pairwise reward model (`id2label`); a pointwise one,
which has the same shape, is told apart by it."""


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode with its tokenizer; shared, so not to be changed."""

    model: Any
    tokenizer: PreTrainedTokenizerBase


def load(path: Path, head: Head, device: str = "cpu") -> Checkpoint:
    """Load a checkpoint in float32, or return it from the cache.

    Args:
        path: folder with `config.json`, safetensors weights and a tokenizer.
        head: `causal` for a policy, `scalar` for a reward model with one output.
        device: torch device to run on.

    Raises:
        HarnessError: no checkpoint at `path`, or (scalar) a head with several outputs.
    """
    stamp = tuple((w.name, w.stat().st_size, w.stat().st_mtime_ns) for w in weight_files(path))
    return _load(str(Path(path).resolve()), stamp, head, device)


def weight_files(path: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint.

    Raises:
        HarnessError: `path` is not a folder with `config.json` and safetensors weights.
    """
    weights = sorted(Path(path).glob("*.safetensors"))
    if not (Path(path) / "config.json").is_file() or not weights:
        raise HarnessError(
            f"no checkpoint at {path}: a folder with config.json and safetensors weights is needed."
        )
    return weights


@lru_cache(maxsize=6)
def _load(path: str, stamp: tuple[Any, ...], head: Head, device: str) -> Checkpoint:
    del stamp  # part of the key only
    tokenizer = load_tokenizer(Path(path))
    model = load_model(Path(path), head).to(torch.device(device)).eval()
    if head == "scalar" and model.config.num_labels != 1:
        raise HarnessError(
            f"the reward model at {path} has {model.config.num_labels} outputs: one is needed."
        )
    return Checkpoint(model, tokenizer)


def load_model(path: Path, head: Head) -> Any:
    """Load a fresh float32 model, not shared with anyone.

    Attention is eager: Gemma-2's soft-capping has no SDPA kernel.

    Raises:
        HarnessError: no checkpoint at `path`.
    """
    weight_files(path)
    silence_progress_bars()
    kind = AutoModelForCausalLM if head == "causal" else AutoModelForSequenceClassification
    return kind.from_pretrained(
        path,
        dtype=torch.float32,
        attn_implementation="eager",
        use_safetensors=True,
        local_files_only=True,
    )


def silence_progress_bars() -> None:
    """Keep transformers' bars off the console; the harness shows progress of its own."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint.

    Raises:
        HarnessError: no checkpoint at `path`.
    """
    weight_files(path)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, local_files_only=True)
    return tokenizer


def stop_token_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids that end a completion: the end of a turn and the end of the text."""
    end_of_turn = tokenizer.get_vocab().get(END_OF_TURN)
    return sorted({i for i in (end_of_turn, tokenizer.eos_token_id) if i is not None})


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Conversation],
    *,
    add_generation_prompt: bool,
) -> list[list[int]]:
    """Render conversations with the chat template and return their token ids."""
    if not conversations:
        return []
    texts = tokenizer.apply_chat_template(
        [[dict(message) for message in conversation] for conversation in conversations],
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
    )
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return ids


def batches_by_length(sequences: Sequence[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Yield positions in batches of similar length, shortest first (ties by position)."""
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def pad(
    tokenizer: PreTrainedTokenizerBase, sequences: Sequence[Sequence[int]], side: Side, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad token ids to one length; return B x T ids and attention mask."""
    width = max(map(len, sequences))
    ids = torch.full((len(sequences), width), int(tokenizer.pad_token_id))
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        place = slice(width - len(sequence), width) if side == "left" else slice(len(sequence))
        ids[row, place] = torch.tensor(sequence)
        mask[row, place] = 1
    return ids.to(device), mask.to(device)
