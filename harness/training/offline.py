"""Training on preference pairs, for any loss: filter, train, check, save.

An algorithm (`OfflineAlgorithm`) holds hyperparameters and builds a TRL trainer from a `Setup`; the
built-in ones are in `offline_losses`. Everything else is common to all of them and set here rather
than left to TRL's defaults:

- float32 without gradient checkpointing (the defaults target large models on GPUs);
- pairs that are too long are dropped and counted. Truncating them, as the authors do, would train
  on answers without an end. TRL's trainers disagree here: one silently drops such pairs, the others
  can truncate an answer to nothing, whose mean is NaN;
- no checkpoints, console output or tracker: curves go to `on_log`;
- a non-finite loss, or an unexpected number of updates, is an error.

A `Placement` for large models changes the first and third points: with a working folder, training
writes checkpoints and resumes from the last one after being killed.

The same inputs and seed give bit-identical weights on one machine and thread count.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
from accelerate import PartialState
from datasets import Dataset, load_from_disk
from datasets.utils import logging as datasets_logging
from transformers import PreTrainedTokenizerBase, PrinterCallback, Trainer, TrainerCallback

from harness.errors import HarnessError
from harness.extensions import LOSSES
from harness.models.loading import (
    fast_training,
    load_model,
    load_tokenizer,
    silence_progress_bars,
    tokenize,
)
from harness.runtime.files import make_once
from harness.runtime.stage import StageContext
from harness.training.distributed import process_count, save_policy
from harness.training.launch import last_checkpoint, mark_whole, read_curves
from harness.training.placement import (
    PLAIN,
    Metrics,
    OnLog,
    Placement,
    accumulation,
    filled,
)

Pairs = Sequence[Mapping[str, Any]]

SIDES = ("chosen", "rejected")

STEP_ZERO_TOLERANCE = {"float32": 1e-2, "bfloat16": 2.0}
"""Largest allowed difference, in nats, between the summed log-probabilities of policy and reference
before the first update. In bfloat16, differently shaped batches differ by about a nat on
completions of many hundred tokens."""


class TrainingError(HarnessError):
    """Training failed or cannot be done as requested."""


@dataclass(frozen=True)
class Setup:
    """What an algorithm builds its trainer from; the reference is the initial policy."""

    policy: Any
    tokenizer: PreTrainedTokenizerBase
    pairs: Dataset
    arguments: dict[str, Any]
    adapters: Any = None

    def trainer(self, kind: Callable[..., Trainer], args: Any) -> Trainer:
        """Return a TRL trainer of the given class and configuration for the policy and pairs."""
        return kind(
            model=self.policy,
            args=args,
            train_dataset=self.pairs,
            processing_class=self.tokenizer,
            peft_config=self.adapters,
        )


@dataclass(frozen=True, kw_only=True)
class OfflineAlgorithm(ABC):
    """An algorithm that trains on pairs: name, hyperparameters, and how to build its trainer."""

    name: ClassVar[str]  # shown in messages
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the pairs that its trainer reads besides the texts."""
    uses_reference: ClassVar[bool] = False
    """Whether it uses a reference; its log-probabilities are computed once, before training."""

    learning_rate: float
    epochs: float
    batch_size: int
    micro_batch_size: int
    max_length: int
    max_prompt_length: int | None = None
    schedule: str = "cosine"
    warmup_ratio: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    optimizer: str = "adamw_torch"

    @abstractmethod
    def trainer(self, setup: Setup) -> Trainer:
        """Return the trainer with this loss."""

    def arguments(self, seed: int, placed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that all TRL trainers take, including the placement's."""
        devices = process_count()
        arguments = {
            **placed,
            "seed": seed,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": self.schedule,
            "warmup_steps": self.warmup_ratio,
            "weight_decay": self.weight_decay,
            "max_grad_norm": self.max_grad_norm,
            "optim": self.optimizer,
            "num_train_epochs": self.epochs,
            "per_device_train_batch_size": self.micro_batch_size,
            "gradient_accumulation_steps": accumulation(
                self.batch_size, self.micro_batch_size, devices
            ),
            "max_length": self.max_length,
        }
        if self.uses_reference:
            arguments["precompute_ref_log_probs"] = True
            # Without gradients, a batch four times as large fits in the same memory.
            arguments["precompute_ref_batch_size"] = 4 * self.micro_batch_size
        return arguments


def algorithm_of(
    name: str, settings: Mapping[str, Any], *, micro_batch_size: int | None = None
) -> OfflineAlgorithm:
    """Return an algorithm with the hyperparameters in a profile's settings."""
    found = LOSSES.load(name)
    # A plug-in registers a function, so that naming a loss does not import its trainer.
    kind: type[OfflineAlgorithm] = found if LOSSES.added(name) is None else found()
    given = {
        **settings,
        "schedule": settings["lr_scheduler"],
        "micro_batch_size": micro_batch_size or settings["batch_size"],
    }
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given})


def train(
    algorithm: OfflineAlgorithm,
    model_path: Path,
    pairs: Pairs,
    out_dir: Path,
    *,
    seed: int,
    on_log: OnLog,
    place: Placement = PLAIN,
) -> Metrics:
    """Train a policy on pairs and save it to `out_dir/model`, as safetensors with its tokenizer.

    The summary has the pairs given, dropped as `too_long`, and trained on, `steps`, and measures
    of the first and last update.
    """
    tokenizer = load_tokenizer(model_path)
    _check_open(pairs, tokenizer)
    kept = short_enough(pairs, tokenizer, algorithm.max_length, algorithm.max_prompt_length)
    if not kept:
        raise TrainingError(
            f"none of the {len(pairs)} pairs fits into max_length = {algorithm.max_length} tokens "
            f"(prompts: {algorithm.max_prompt_length or 'no limit'}): raise it or check the "
            "completions."
        )
    used = kept if place.work is None else filled(kept, algorithm.batch_size, seed)
    recorder = _PairsRecorder(on_log, algorithm, place)
    model = load_model(model_path) if place.work is None else str(model_path)
    with quiet(), fast_training(model, place.attention), tempfile.TemporaryDirectory() as scratch:
        setup = Setup(
            model,
            tokenizer,
            _data(used, algorithm, place.work),
            algorithm.arguments(seed, place.arguments(scratch)),
            place.adapters(),
        )
        trainer = algorithm.trainer(setup)
        _run(trainer, recorder)
        save_policy(trainer, tokenizer, model_path, out_dir / "model", place)
        steps = int(trainer.state.global_step)
    expected = math.ceil(algorithm.epochs * math.ceil(len(kept) / algorithm.batch_size) - 1e-9)
    if steps != expected:
        raise TrainingError(f"the training made {steps} of {expected} updates on {len(kept)} pairs")
    first, last = recorder.history[0], recorder.history[-1]
    return {
        "pairs": len(pairs),
        "too_long": len(pairs) - len(kept),
        "trained_pairs": len(kept),
        **({} if place.work is None else {"repeated": len(used) - len(kept)}),
        "steps": steps,
        "loss_first": first["loss"],
        "loss_last": last["loss"],
        "accuracy_last": last["rewards/accuracies"],
        "margin_last": last["rewards/margins"],
    }


def train_pairs(ctx: StageContext, place: Placement) -> Metrics:
    """Run one process's part of a launched training job (`harness.training.launch`)."""
    s = ctx.settings
    return train(
        algorithm_of(
            s["algorithm"],
            s,
            micro_batch_size=place.micro_batch or place.share(s["batch_size"]),
        ),
        ctx.inputs["policy"],
        pq.read_table(ctx.inputs["pairs"]).to_pylist(),
        ctx.output,
        seed=ctx.seed,
        on_log=ctx.report,
        place=place,
    )


def as_messages(row: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the texts of a pair in TRL's format; an answer that was cut off is marked `open`."""
    messages: dict[str, list[dict[str, Any]]] = {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }
    for side in SIDES:
        if f"{side}_open" in row:
            messages[side][0]["open"] = row[f"{side}_open"]
    return messages


def _check_open(pairs: Pairs, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise `TrainingError` if answers may be marked `open` and the chat template ignores it."""
    if not any(f"{side}_open" in row for row in pairs for side in SIDES):
        return
    asked: dict[str, Any] = {"role": "user", "content": "a"}
    turns = [[asked, {**asked, "role": "assistant", "open": it}] for it in (True, False)]
    open_turn, ended = tokenize(tokenizer, turns, add_generation_prompt=False)
    if open_turn == ended:
        raise TrainingError(
            "the policy's chat template ends the turn of an answer that was cut off: set "
            "`profile.pairs.open_cut=false`, or give it a template that knows `open`."
        )


def short_enough(
    rows: Pairs,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_prompt_length: int | None,
) -> list[Mapping[str, Any]]:
    """Return the pairs within the limits in tokens: prompt with either completion, and alone."""
    conversations = [as_messages(row) for row in rows]
    whole = [[*texts["prompt"], *texts[side]] for texts in conversations for side in SIDES]
    lengths = [len(ids) for ids in tokenize(tokenizer, whole, add_generation_prompt=False)]
    fits = [max(both) <= max_length for both in zip(lengths[::2], lengths[1::2], strict=True)]
    if max_prompt_length is not None:
        prompts = [texts["prompt"] for texts in conversations]
        heads = tokenize(tokenizer, prompts, add_generation_prompt=True)
        fits = [ok and len(ids) <= max_prompt_length for ok, ids in zip(fits, heads, strict=True)]
    return [row for row, ok in zip(rows, fits, strict=True) if ok]


class Recorder(TrainerCallback):  # type: ignore[misc]
    """Forwards the training curves and stops training when the loss is not finite."""

    def __init__(self, on_log: OnLog, before: int = 0) -> None:
        self._hand_on = on_log
        self._before = before

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forward a step's metrics (trainer callback)."""
        logs = kwargs["logs"]
        if "loss" not in logs:  # the final log, which has only throughput
            return
        step = self._before + int(state.global_step)
        if not math.isfinite(float(logs["loss"])):
            raise TrainingError(
                f"the loss is {logs['loss']} at step {step}: lower the learning rate or check what "
                "is trained on."
            )
        metrics = self.metrics(logs)
        if state.is_world_process_zero:
            self._hand_on(step, metrics)

    def metrics(self, logs: Mapping[str, Any]) -> Metrics:
        """Return the metrics to record from TRL's logs of a step."""
        raise NotImplementedError


class _PairsRecorder(Recorder):
    """Records the curves, marks complete checkpoints, and checks the reference."""

    def __init__(self, on_log: OnLog, algorithm: OfflineAlgorithm, place: Placement) -> None:
        super().__init__(on_log)
        self._algorithm = algorithm
        self._dtype = place.dtype
        self.work = place.work
        self.history: list[Metrics] = []

    def metrics(self, logs: Mapping[str, Any]) -> Metrics:
        metrics = {name: float(value) for name, value in logs.items() if name != "epoch"}
        if self.work is not None:
            # TRL counts tokens since the process started, not since training did.
            metrics.pop("num_tokens", None)
        if not self.history and self._algorithm.uses_reference:
            self._check_first(metrics)
        self.history.append(metrics)
        return metrics

    def _check_first(self, metrics: Metrics) -> None:
        """Reject a reference that differs from the initial policy; nothing else would reveal it."""
        beta = self._algorithm.beta  # type: ignore[attr-defined]
        apart = max(abs(metrics[f"rewards/{side}"]) for side in SIDES) / beta
        if apart > STEP_ZERO_TOLERANCE[self._dtype]:
            raise TrainingError(
                f"policy and reference differ by {apart:.4f} nats before the first "
                f"{self._algorithm.name} update although they are one checkpoint: rebuild the "
                "checkpoint and report this."
            )

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()  # until each has written its part
        if self.work is not None and state.is_world_process_zero:
            mark_whole(self.work, state.global_step)


def _run(trainer: Trainer, recorder: _PairsRecorder) -> None:
    """Train, resuming from the working folder's last complete checkpoint if there is one."""
    checkpoint = None
    if recorder.work is not None:
        checkpoint, done = last_checkpoint(recorder.work)
        recorder.history += [metrics for _, metrics in read_curves(recorder.work, done)]
        PartialState().wait_for_everyone()  # no new checkpoint before all have found the last one
    trainer.add_callback(recorder)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


def _data(
    rows: Sequence[Mapping[str, Any]], algorithm: OfflineAlgorithm, work: Path | None
) -> Dataset:
    """Return pairs as messages; with a working folder, all processes read the same files."""
    messages = [
        {**as_messages(row), **{name: row[name] for name in algorithm.columns}} for row in rows
    ]
    if work is None:
        return Dataset.from_list(messages)
    with PartialState().main_process_first():
        folder = make_once(
            work / "pairs", lambda draft: Dataset.from_list(messages).save_to_disk(draft)
        )
        return load_from_disk(str(folder))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the libraries' progress bars and future warnings."""
    silence_progress_bars()
    datasets_logging.disable_progress_bar()
    os.environ["TQDM_DISABLE"] = "1"  # the only way to disable TRL's reference bar
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
