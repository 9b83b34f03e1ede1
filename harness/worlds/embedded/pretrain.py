"""Trains the base policy θ0, a Gemma-2 of 0.9 million parameters, on demonstrations.

It sees each demonstration once, with the loss on the model's turns only: first what the operations
do, each under one name and without mistakes; then what all the names mean, as far as the
demonstrator knows.

How fast a word's meaning can be relearned is a property of the world. The output layer is not tied
to the embeddings: if tied, every softmax would give each name's row a tiny gradient, which Adam
turns into a full step, so names that no prompt mentions would drift. At the end the name embeddings
are scaled down (`resize_names`), so that training on a prompt teaches the names in it and leaves
the others unchanged.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.worlds.embedded import language as lang
from harness.worlds.embedded.texts import Mix, Turn, demonstrate

if TYPE_CHECKING:
    import torch
    from transformers import Gemma2Config

IGNORED = -100  # label of tokens without loss


@dataclass(frozen=True)
class Course:
    """A training stage: its steps, peak learning rate and warmup."""

    steps: int
    learning_rate: float
    warmup_steps: int


@dataclass(frozen=True)
class PretrainConfig:
    """Hyperparameters of the base policy; all are ours, sized for two CPU cores."""

    seed: int = 0
    operations: Course = Course(6000, 3e-3, 200)
    names: Course = Course(3000, 1.5e-3, 100)
    batch_size: int = 128
    threads: int = 2  # compute threads; a different number rounds differently
    compiled: bool = True
    """Compile the graph if there is a C++ compiler; without one the bytes differ."""
    pool_batches: int = 16
    """Batches per pool; a pool of demonstrations is batched by length to reduce padding."""

    @property
    def steps(self) -> int:
        return self.operations.steps + self.names.steps


def model_config(vocabulary_size: int) -> Gemma2Config:
    from transformers import Gemma2Config

    return Gemma2Config(
        vocab_size=vocabulary_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        query_pre_attn_scalar=32,
        max_position_embeddings=256,
        sliding_window=256,
        initializer_range=0.06,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=4,
    )


def encode(turns: list[Turn], ids: dict[str, int]) -> tuple[list[int], list[int]]:
    """Return token ids and labels of a conversation; labels ignore all but the model's turns."""
    tokens, labels = [ids[lang.BOS]], [IGNORED]
    for prompt, answer in turns:
        asked = [lang.START, lang.USER, *prompt.split(), lang.END, lang.START, lang.MODEL]
        reply = [ids[word] for word in (*answer.split(), lang.END)]
        tokens += [ids[word] for word in asked] + reply
        labels += [IGNORED] * len(asked) + reply
    return tokens, labels


FIRST_NAMES = tuple(operation.names[0] for operation in lang.OPERATIONS)
"""The names used in the first stage."""


def curriculum(progress: float) -> Mix:
    """Return the mix of the first stage at a progress in [0, 1]: one operation, two, three."""
    full = Mix(names=FIRST_NAMES, lift=1.0)
    return dataclasses.replace(full, depths=full.depths[: 1 + int(5 * progress)])


def batches(
    config: PretrainConfig, steps: int, stream: str, mix_at: Callable[[float], Mix]
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield at least `steps` batches of token ids, mask and labels, each (batch, length)."""
    ids = lang.token_ids()
    pad, size = ids[lang.PAD], config.batch_size * config.pool_batches
    for pool in range(-(-steps // config.pool_batches)):
        rng = random.Random(f"{config.seed}/demonstrations/{stream}/{pool}")
        mix = mix_at(pool * config.pool_batches / steps)
        conversations = (encode(demonstrate(rng, mix), ids) for _ in range(size))
        rows = sorted(conversations, key=lambda row: len(row[0]))
        starts = list(range(0, size, config.batch_size))
        rng.shuffle(starts)
        for start in starts:
            part = rows[start : start + config.batch_size]
            tokens, mask = padded([tokens for tokens, _ in part], pad)
            yield tokens, mask, padded([labels for _, labels in part], IGNORED)[0]


def padded(rows: list[list[int]], fill: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the right-padded rows and their attention mask, both (rows, longest)."""
    import torch

    lengths = torch.tensor([[len(row)] for row in rows])
    longest = int(lengths.max())
    values = torch.tensor([row + [fill] * (longest - len(row)) for row in rows])
    return values, (torch.arange(longest)[None, :] < lengths).long()


def pretrain(
    config: PretrainConfig, output: Path, on_step: Callable[[int, float], None] = lambda *_: None
) -> None:
    """Train θ0 and save it with its tokenizer."""
    import torch
    from transformers import Gemma2ForCausalLM

    courses = (
        (config.operations, "operations", curriculum),
        (config.names, "names", lambda progress: Mix()),
    )
    with reproducible(config.seed, config.threads) as device:
        model: Any = Gemma2ForCausalLM(model_config(len(lang.token_ids()))).to(torch.device(device))
        forward = compiled(model) if config.compiled else model
        done = 0
        for course, stream, mix_at in courses:
            descend = descent(model, course.learning_rate, course.warmup_steps, course.steps)
            drawn = batches(config, course.steps, stream, mix_at)
            for step, batch in zip(range(1, course.steps + 1), drawn, strict=False):
                loss = _loss(forward, batch, device)
                descend(loss)
                on_step(done + step, float(loss.detach()))
            done += course.steps
        resize_names(model, SHORT)
        model.bfloat16().save_pretrained(output)
        lang.build_tokenizer().save_pretrained(output)


def _loss(forward: Any, batch: tuple[torch.Tensor, ...], device: str) -> torch.Tensor:
    import torch

    tokens, mask, labels = (part.to(device) for part in batch)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = forward(input_ids=tokens, attention_mask=mask, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
    )


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
