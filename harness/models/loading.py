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
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from harness.errors import HarnessError, UserError

Message = Mapping[str, str]
Conversation = Sequence[Message]
Head = Literal["causal", "scalar"]
Side = Literal["left", "right"]

END_OF_TURN = "<end_of_turn>"

FIRST_IS_BETTER = "FIRST_IS_BETTER"
"""Name of the output in the configuration of a pairwise sequence classifier (`id2label`); a
pointwise one, which has the same shape, is told apart by it."""

VOCABULARIES = (
    "tokenizer.json", "*.model", "*.tiktoken", "vocab.json", "vocab.txt", "tekken.json"
)  # fmt: skip
"""Names of files that hold a tokenizer's vocabulary."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Number formats that models run in."""


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode with its tokenizer; shared, so not to be changed."""

    model: Any
    tokenizer: PreTrainedTokenizerBase


def load(path: Path, device: str = "cpu") -> Checkpoint:
    """Load a policy in float32, or return it from the cache.

    Args:
        path: folder with `config.json`, safetensors weights and a tokenizer.
        device: torch device to run on.

    Raises:
        HarnessError: no checkpoint at `path`.
    """
    return _load(str(Path(path).resolve()), stamp(path), device)


def stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what tells a checkpoint from a rebuilt one: its weights' names, sizes and times.

    Raises:
        HarnessError: no checkpoint at `path`.
    """
    return tuple((w.name, w.stat().st_size, w.stat().st_mtime_ns) for w in weight_files(path))


def weight_files(path: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint.

    Raises:
        HarnessError: `path` is not a folder with `config.json` and safetensors weights.
    """
    weights = sorted(Path(path).glob("*.safetensors"))
    if (Path(path) / "config.json").is_file() and weights:
        return weights
    pickled = sorted(f.name for f in Path(path).glob("*") if f.suffix in {".bin", ".pt", ".pth"})
    if pickled:
        raise UserError(
            f"the weights at {path} are pickled ({pickled[0]}), a form that can run code when it "
            "is read: take a revision of the model with safetensors, or convert it where nothing "
            "can be harmed, by from_pretrained and save_pretrained."
        )
    raise HarnessError(
        f"no checkpoint at {path}: a folder with config.json and safetensors weights is needed, "
        f"such as `hf download NAME --local-dir {path}` makes (a gated model asks for its licence "
        "to be accepted on its page, and for `hf auth login`)."
    )


@lru_cache(maxsize=6)
def _load(path: str, stamp: tuple[Any, ...], device: str) -> Checkpoint:
    del stamp  # part of the key only
    tokenizer = load_tokenizer(Path(path))
    model = load_model(Path(path), "causal").to(torch.device(device)).eval()
    return Checkpoint(model, tokenizer)


def load_model(path: Path, head: Head) -> Any:
    """Load a fresh float32 model, not shared with anyone.

    Raises:
        HarnessError: no checkpoint at `path`.
    """
    kind = AutoModelForCausalLM if head == "causal" else AutoModelForSequenceClassification
    return from_folder(kind, path)


def from_folder(kind: Any, path: Path, dtype: str = "float32") -> Any:
    """Load a fresh model of a class of transformers, or of one derived from its classes.

    Attention is what transformers has for the model: SDPA, or eager where that is missing
    (Gemma-2's soft-capping, DeBERTa's positions).

    Raises:
        HarnessError: no checkpoint at `path`, or one whose weights cannot be read or are not all
            there, which transformers would fill up at random.
    """
    weight_files(path)
    silence_progress_bars()
    try:
        model, said = kind.from_pretrained(
            path,
            dtype=DTYPES[dtype],
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
        )
    except SafetensorError as error:
        raise UserError(
            f"the weights at {path} cannot be read ({error}): complete the download."
        ) from error
    missing = sorted(said["missing_keys"])
    if missing:
        raise UserError(
            f"the weights at {path} lack {missing[0]} ({len(missing)} tensors are missing): "
            "complete the download, or check that it is the model that its config.json names."
        )
    return model


def fastest_device() -> str:
    """Return the device that large models run on here: the first GPU, or the processor."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def silence_progress_bars() -> None:
    """Keep transformers' bars off the console; the harness shows progress of its own."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint.

    Raises:
        HarnessError: no checkpoint at `path`, or one without a readable tokenizer.
    """
    weight_files(path)
    if not any(found for name in VOCABULARIES for found in Path(path).glob(name)):
        # transformers makes one without a vocabulary out of the configuration alone.
        raise UserError(
            f"there is no tokenizer at {path}: complete the download, or put the tokenizer files "
            "there that were published with the model."
        )
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (ImportError, OSError, ValueError) as error:
        [why, *_] = str(error).strip().splitlines() or [repr(error)]
        raise UserError(
            f"the tokenizer at {path} cannot be loaded ({why}): "
            "complete the download; a tokenizer that has no tokenizer.json but a .model file needs "
            "`pip install sentencepiece`."
        ) from error
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
    """Render conversations with the chat template and return their token ids.

    Raises:
        UserError: the tokenizer has no chat template.
    """
    if not conversations:
        return []
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer at {tokenizer.name_or_path} has no chat template, so how the model is "
            "asked is not known: take the tokenizer files of the instruction-tuned model."
        )
    texts = tokenizer.apply_chat_template(
        [[dict(message) for message in conversation] for conversation in conversations],
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
    )
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return ids


def batches_by_length(
    sequences: Sequence[Sequence[int]], size: int, tokens: int | None = None
) -> Iterator[list[int]]:
    """Yield positions in batches of similar length, shortest first (ties by position).

    Args:
        sequences: what is batched.
        size: most sequences of a batch.
        tokens: most tokens of a batch, padding counted; a sequence that is longer by itself has a
            batch of its own. Unlimited if not given.
    """
    batch: list[int] = []
    for i in sorted(range(len(sequences)), key=lambda i: len(sequences[i])):
        padded = len(sequences[i]) * (len(batch) + 1)
        if batch and (len(batch) == size or (tokens is not None and padded > tokens)):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


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
