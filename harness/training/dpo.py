"""Direct preference optimisation of a policy on pairs, through TRL's `DPOTrainer`.

The model. For a pair (chosen y_w, rejected y_l) of a prompt x the loss is

    -log sigmoid( beta * [ (log pi(y_w|x) - log ref(y_w|x)) - (log pi(y_l|x) - log ref(y_l|x)) ] )

with log-probabilities summed over the completion's tokens, its `<end_of_turn>` included and the
prompt with its generation header excluded. Before the first update policy and reference agree, so
the loss is log 2; this is checked, because a wrong reference is otherwise invisible.

What is settled here rather than left to TRL's defaults:

- policy and reference are named by path (TRL would reload an unnamed reference from wherever the
  policy was once loaded);
- float32 without gradient checkpointing (the defaults are for large models on GPUs);
- pairs longer than `max_length` are left out whole and counted (TRL drops some silently and cuts
  the others; the authors cut);
- the reference's log-probabilities are computed once, before training: the reference is fixed, and
  this saves a forward pass in each epoch;
- no checkpoints, no console output, no tracker: curves go to `on_log`.

The same inputs and seed give the same weights to the last bit on one machine and thread count.

Source: paper appendix A; Rafailov et al. 2023, equation 7.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset
from datasets.utils import logging as datasets_logging
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from harness.errors import HarnessError, UserError
from harness.models.loading import (
    load_model,
    load_tokenizer,
    silence_progress_bars,
    tokenize,
)

Metrics = dict[str, float]
OnLog = Callable[[int, Metrics], None]

SCHEDULES = ("cosine", "linear", "constant_with_warmup")

# Rounding between the precomputed reference and the first step, far below any real disagreement.
STEP_ZERO_TOLERANCE = 1e-3


@dataclass(frozen=True)
class DPOHyperparameters:
    """Everything that shapes one DPO training, apart from data, start and seed.

    Attributes:
        learning_rate: peak learning rate.
        beta: strength of the pull to the reference.
        epochs: passes over the pairs; may be fractional.
        batch_size: pairs for one update, on whatever hardware.
        micro_batch_size: pairs for one forward pass; divides `batch_size`.
        max_length: longest prompt plus completion, in tokens; longer pairs are left out.
        schedule: `cosine`, `linear` or `constant_with_warmup` after the warm-up.
        warmup_ratio: share of the updates over which the learning rate rises from 0, in [0, 1).
        weight_decay: AdamW's decoupled weight decay.
        max_grad_norm: gradients are scaled down to this norm.
        optimizer: optimiser, by transformers' name.
    """

    learning_rate: float
    beta: float
    epochs: float
    batch_size: int
    micro_batch_size: int
    max_length: int
    schedule: str = "cosine"
    warmup_ratio: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    optimizer: str = "adamw_torch"

    def __post_init__(self) -> None:
        if self.micro_batch_size < 1 or self.batch_size % self.micro_batch_size:
            raise UserError(
                f"a batch of {self.batch_size} pairs cannot be made of micro-batches of "
                f"{self.micro_batch_size}: choose a divisor."
            )
        if not 0 <= self.warmup_ratio < 1:
            raise UserError(f"warmup_ratio is {self.warmup_ratio}: give a share in [0, 1).")
        if self.schedule not in SCHEDULES:
            raise UserError(
                f"unknown schedule `{self.schedule}`: use one of {', '.join(SCHEDULES)}."
            )


class TrainingError(HarnessError):
    """A training that could not be done as asked."""


def train_dpo(
    model_path: Path,
    reference_path: Path,
    pairs: pa.Table | Sequence[Mapping[str, Any]],
    out_dir: Path,
    hyper: DPOHyperparameters,
    *,
    seed: int,
    on_log: OnLog,
    log_every: int = 1,
    device: str = "cpu",
) -> dict[str, float]:
    """Train a policy with DPO and save it to `out_dir/model`.

    Args:
        model_path: checkpoint to start from; also the source of the tokenizer.
        reference_path: checkpoint of the reference.
        pairs: rows with the texts `prompt`, `chosen` and `rejected`; other columns are ignored.
        out_dir: existing folder; receives `model/` (safetensors and tokenizer) and nothing else.
        hyper: hyperparameters.
        seed: seed of the order of the data.
        on_log: called with the number of finished updates and their metrics.
        log_every: updates between two calls of `on_log` (the first update is always logged).
        device: `cpu`, or `cuda` for the first visible GPU.

    Returns:
        A summary that repeats exactly with the seed: `pairs` given, `too_long` left out,
        `trained_pairs`, `steps`, `loss_first`, `loss_last`, `accuracy_last`, `margin_last` (the
        last three are means over the last `log_every` updates).

    Raises:
        TrainingError: no pair is left after the length filter, the first loss is not log 2 although
            policy and reference are the same checkpoint, a loss is not finite, or the training
            stopped early.
        HarnessError: no checkpoint at one of the paths.
    """
    tokenizer = load_tokenizer(model_path)
    rows = _texts(pairs)
    kept = _short_enough(rows, tokenizer, hyper.max_length)
    if not kept:
        raise TrainingError(
            f"none of the {len(rows)} pairs fits into max_length = {hyper.max_length} tokens: "
            "raise it or check the completions."
        )
    same = Path(model_path).resolve() == Path(reference_path).resolve()
    recorder = _Recorder(on_log, expect_log_2=same)
    with _quiet(), tempfile.TemporaryDirectory() as scratch:
        policy = load_model(model_path, "causal")
        trainer = DPOTrainer(
            model=policy,
            # With precomputed log-probabilities None means the policy as it was loaded.
            ref_model=None if same else load_model(reference_path, "causal"),
            args=_trl_config(hyper, scratch, seed, log_every, device),
            train_dataset=Dataset.from_list([_as_messages(row) for row in kept]),
            processing_class=tokenizer,
            callbacks=[recorder],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        _check_finished(trainer, len(kept), hyper)
        policy.config.use_cache = True  # switched off by the trainer
        policy.save_pretrained(out_dir / "model")
        tokenizer.save_pretrained(out_dir / "model")
    first, last = recorder.history[0], recorder.history[-1]
    return {
        "pairs": len(rows),
        "too_long": len(rows) - len(kept),
        "trained_pairs": len(kept),
        "steps": int(trainer.state.global_step),
        "loss_first": first["loss"],
        "loss_last": last["loss"],
        "accuracy_last": last["rewards/accuracies"],
        "margin_last": last["rewards/margins"],
    }


def _trl_config(
    hyper: DPOHyperparameters, scratch: str, seed: int, log_every: int, device: str
) -> DPOConfig:
    return DPOConfig(
        output_dir=scratch,
        seed=seed,
        beta=hyper.beta,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type=hyper.schedule,
        warmup_steps=hyper.warmup_ratio,
        weight_decay=hyper.weight_decay,
        max_grad_norm=hyper.max_grad_norm,
        optim=hyper.optimizer,
        num_train_epochs=hyper.epochs,
        per_device_train_batch_size=hyper.micro_batch_size,
        gradient_accumulation_steps=hyper.batch_size // hyper.micro_batch_size,
        max_length=hyper.max_length,
        precompute_ref_log_probs=True,
        # Without gradients to keep, four times the batch fits into the same memory.
        precompute_ref_batch_size=4 * hyper.micro_batch_size,
        use_cpu=device == "cpu",
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=device != "cpu",
        logging_steps=log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )


class _Recorder(TrainerCallback):  # type: ignore[misc]
    """Hands the curves on, and stops a training whose loss cannot be right."""

    def __init__(self, on_log: OnLog, *, expect_log_2: bool) -> None:
        self.hand_on = on_log
        self.expect_log_2 = expect_log_2
        self.history: list[Metrics] = []

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check and pass on what the trainer logs after an update."""
        logs = kwargs["logs"]
        if "loss" not in logs:  # the closing line, which holds only speeds
            return
        step, loss = int(state.global_step), float(logs["loss"])
        if not math.isfinite(loss):
            raise TrainingError(
                f"the DPO loss is {loss} at update {step}: lower the learning rate or check the "
                "pairs."
            )
        if not self.history and self.expect_log_2 and abs(loss - math.log(2)) > STEP_ZERO_TOLERANCE:
            raise TrainingError(
                f"the first DPO loss is {loss:.4f} instead of log 2 = 0.6931, so policy and "
                "reference differ before training: rebuild the checkpoint and report this."
            )
        metrics = {name: float(value) for name, value in logs.items() if name != "epoch"}
        self.history.append(metrics)
        self.hand_on(step, metrics)


def _check_finished(trainer: DPOTrainer, n_pairs: int, hyper: DPOHyperparameters) -> None:
    """Refuse a training that did fewer updates than its settings ask for."""
    expected = math.ceil(hyper.epochs * math.ceil(n_pairs / hyper.batch_size) - 1e-9)
    done = int(trainer.state.global_step)
    if done != expected:
        raise TrainingError(
            f"the training made {done} of {expected} updates on {n_pairs} pairs: report this with "
            "the settings used."
        )


def _texts(pairs: pa.Table | Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    rows = pairs.to_pylist() if isinstance(pairs, pa.Table) else pairs
    return [{name: str(row[name]) for name in ("prompt", "chosen", "rejected")} for row in rows]


def _as_messages(row: Mapping[str, str]) -> dict[str, list[dict[str, str]]]:
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def _short_enough(
    rows: Sequence[dict[str, str]], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> list[dict[str, str]]:
    """Return the pairs of which both sides fit, prompt included, into `max_length` tokens."""
    conversations = [
        [*messages["prompt"], *messages[side]]
        for messages in map(_as_messages, rows)
        for side in ("chosen", "rejected")
    ]
    lengths = [len(ids) for ids in tokenize(tokenizer, conversations, add_generation_prompt=False)]
    longest = map(max, lengths[::2], lengths[1::2])
    return [row for row, length in zip(rows, longest, strict=True) if length <= max_length]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and notices about their next versions off the console."""
    silence_progress_bars()
    datasets_logging.disable_progress_bar()
    before = os.environ.get("TQDM_DISABLE")
    os.environ["TQDM_DISABLE"] = "1"  # the only switch of TRL's bar over the reference
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if before is None:
            del os.environ["TQDM_DISABLE"]
        else:
            os.environ["TQDM_DISABLE"] = before
