"""Loading checkpoints and tokenizing conversations, for all models.

A model is a folder. Nothing is downloaded here: users fetch weights, which may be tens of gigabytes
under a license they have to accept, with `hf download`.

*One BOS.* Conversations are always rendered with the chat template and tokenized without adding
special tokens, so the template's `<bos>` is the only one (the authors' generation and training both
prepend a second one; see the assumptions in the report).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch.nn.utils.rnn import pad_sequence
from torch.utils.mkldnn import to_mkldnn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from harness.errors import HarnessError, UserError
from harness.foreign import error_in_a_line
from harness.runtime.files import make_once

Message = Mapping[str, str]
Conversation = Sequence[Message]
Side = Literal["left", "right"]

END_OF_TURN = "<end_of_turn>"

FIRST_IS_BETTER = "FIRST_IS_BETTER"
"""Output name in the configuration of a pairwise sequence classifier (`id2label`), which
distinguishes it from a pointwise one of the same shape."""

VOCABULARIES = (
    "tokenizer.json", "*.model", "vocab.json", "vocab.txt", "tekken.json"
)  # fmt: skip
"""File name patterns of tokenizer vocabularies."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Checkpoint:
    """A model in evaluation mode with its tokenizer; shared, so do not modify it."""

    model: Any
    tokenizer: PreTrainedTokenizerBase


def stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the names, sizes and times of the weight files, which change on a rebuild."""
    return tuple((w.name, w.stat().st_size, w.stat().st_mtime_ns) for w in weight_files(path))


def weight_files(path: Path) -> list[Path]:
    weights = sorted(path.glob("*.safetensors"))
    if (path / "config.json").is_file() and weights:
        return weights
    pickled = sorted(f.name for f in path.glob("*") if f.suffix in {".bin", ".pt", ".pth"})
    if pickled:
        raise UserError(
            f"the weights at {path} are pickled ({pickled[0]}), and reading those can run code: "
            "use a revision of the model with safetensors, or convert it in a sandbox with "
            "from_pretrained and save_pretrained."
        )
    raise HarnessError(
        f"no checkpoint at {path}: a folder with config.json and safetensors weights is needed, "
        f"such as `hf download NAME --local-dir {path}` makes (if the model is gated, accept "
        "its license on its page and type `hf auth login`)."
    )


def load_model(path: Path) -> Any:
    """Load a new, unshared causal language model in float32."""
    return from_folder(AutoModelForCausalLM, path)


def load_strictly(kind: Any, path: Path, device: str, dtype: str) -> Any:
    """Load a model in evaluation mode; its tensors must be exactly those in the files."""
    return from_folder(kind, path, dtype, strict=True).to(torch.device(device)).eval()


def from_folder(kind: Any, path: Path, dtype: str = "float32", *, strict: bool = False) -> Any:
    """Load a new model of a transformers class; missing or mismatched tensors are an error."""
    weight_files(path)
    silence_progress_bars()
    try:
        model, said = kind.from_pretrained(
            path,
            dtype=DTYPES[dtype],
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below
        )
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise UserError(
            f"the weights at {path} cannot be read ({error_in_a_line(error)}): complete the "
            "download."
        ) from error
    wrong = {
        "lack": sorted(said["missing_keys"]),
        "have another shape of": sorted(name for name, *_ in said["mismatched_keys"]),
        "have, beyond the model's,": sorted(said["unexpected_keys"]) if strict else [],
    }
    for what, names in wrong.items():
        if names:
            raise UserError(
                f"the weights at {path} {what} {names[0]} ({len(names)} in all): complete the "
                "download, or check that it is the model that its config.json names."
            )
    return model


def fastest_device() -> str:
    """Return the device for large models: `cuda` if available, otherwise `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


LARGE = 10_000_000
"""Parameters from which on a model on a processor takes other kernels."""


def on_fast_kernels(model: Any) -> Any:
    """Return a model that only answers, with the fastest products of its device.

    On a processor that is oneDNN: MKL, PyTorch's default, uses half of an AMD processor's AVX-512.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32 or model.num_parameters() < LARGE:
        return model
    return to_mkldnn(model)


@contextmanager
def fast_training(model: Any, attention: str | None = None) -> Iterator[None]:
    """Train a large model on a processor through oneDNN: in half the time, to 1e-6 the same.

    PyTorch's name for it is the precision `medium`, which lowers it only where there is AMX.
    Attention is eager, because the fused one is slow at that setting. Nothing changes for a path,
    whose model `accelerate` loads, or if a profile names the `attention`.
    """
    is_placed = isinstance(model, str) or attention is not None
    if is_placed or model.device.type != "cpu" or model.num_parameters() < LARGE:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def silence_progress_bars() -> None:
    """Disable transformers' progress bars; the harness shows its own."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    weight_files(path)
    if not any(found for name in VOCABULARIES for found in path.glob(name)):
        # transformers would build a tokenizer without a vocabulary from the configuration alone.
        raise UserError(
            f"there is no tokenizer at {path}: complete the download, or add the tokenizer files "
            "published with the model."
        )
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise UserError(
            f"the tokenizer at {path} cannot be loaded ({error_in_a_line(error)}): complete the "
            "download; one without tokenizer.json needs `pip install sentencepiece`."
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # masked, so any token works
    return tokenizer


def stop_token_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids of end-of-turn, EOS, and those in the `generation_config.json`."""
    end_of_turn = tokenizer.get_vocab().get(END_OF_TURN)
    file = Path(tokenizer.name_or_path or "nowhere") / "generation_config.json"
    try:
        told = json.loads(file.read_bytes()).get("eos_token_id") if file.is_file() else None
    except (ValueError, AttributeError) as error:
        raise UserError(
            f"{file} cannot be read ({error_in_a_line(error)}): complete the download."
        ) from error
    own = told if isinstance(told, list) else [told]
    return sorted({i for i in (end_of_turn, tokenizer.eos_token_id, *own) if i is not None})


TEMPLATE = "chat_template.jinja"


def with_template_arguments(
    folder: Path, arguments: Mapping[str, bool | int | float | str], out: Path
) -> Path:
    """Create a checkpoint of symlinks with arguments fixed in its template; return it."""
    template = load_tokenizer(folder).chat_template
    head = "".join(f"{{% set {k} = {json.dumps(v)} %}}" for k, v in sorted(arguments.items()))

    def make(draft: Path) -> None:
        draft.mkdir()
        for file in folder.iterdir():
            if file.name != TEMPLATE:
                (draft / file.name).symlink_to(file.resolve())
        (draft / TEMPLATE).write_text(f"{head}{template}", encoding="utf-8")

    return make_once(out, make)


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    conversations: Sequence[Conversation],
    *,
    add_generation_prompt: bool,
) -> list[list[int]]:
    if not conversations:
        return []
    if not tokenizer.chat_template:
        raise UserError(
            f"the tokenizer at {tokenizer.name_or_path} has no chat template, so its prompt format "
            "is not known: use the tokenizer files of the instruction-tuned model."
        )
    texts = tokenizer.apply_chat_template(
        [[dict(message) for message in conversation] for conversation in conversations],
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
    )
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return ids


def text_of(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """Decode an answer without special tokens and surrounding whitespace."""
    text = tokenizer.decode(
        list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return str(text).strip()


def batches_by_length(
    sequences: Sequence[Sequence[int]], size: int, tokens: int | None = None
) -> Iterator[list[int]]:
    """Yield indices in batches of similar length, shortest first, within `size` or `tokens`."""
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
    """Pad token ids to the longest; return B x T ids and attention mask."""
    rows = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
    padded = partial(pad_sequence, batch_first=True, padding_side=side)
    ids = padded(rows, padding_value=int(tokenizer.pad_token_id))
    mask = padded([torch.ones_like(row) for row in rows])
    return ids.to(device), mask.to(device)


def read_config(path: Path) -> dict[str, Any]:
    weight_files(path)
    file = path / "config.json"
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{file} is not a model's configuration ({error}): download the model again."
        ) from error
