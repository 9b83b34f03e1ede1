"""One training on pairs, whatever its loss: read, filter, train, check, save.

Each algorithm brings its hyperparameters and builds a TRL trainer from a `Setup`; everything else
is the same for all and settled here rather than left to TRL's defaults:

- float32 without gradient checkpointing (the defaults are for large models on GPUs);
- pairs longer than the limits are left out whole and counted (`pairs`);
- no checkpoints, no console output, no tracker: curves go to `on_log`;
- a loss that is not finite, or fewer updates than asked for, is an error.

Large models are laid on devices as a `Placement` says, which changes the first and the third: they
have checkpoints, and a training that was killed goes on from its last one.

The same inputs and seed give the same weights to the last bit on one machine and thread count.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset, load_from_disk
from datasets.utils import logging as datasets_logging
from transformers import PreTrainedTokenizerBase, PrinterCallback, Trainer, TrainerCallback

from harness.errors import HarnessError, UserError
from harness.models.loading import load_model, load_tokenizer, silence_progress_bars
from harness.training.checkpoints import (
    Points,
    append_point,
    last_checkpoint,
    read_curves,
    rewind_curves,
)
from harness.training.pairs import Pairs, as_messages, read_pairs, short_enough
from harness.training.placement import Placement, accumulation, filled
from harness.training.saving import WholeCheckpoints, save_policy

Metrics = dict[str, float]
OnLog = Callable[[int, Metrics], None]

SCHEDULES = ("cosine", "linear", "constant_with_warmup")


class TrainingError(HarnessError):
    """A training that could not be done as asked."""


@dataclass(frozen=True, kw_only=True)
class OfflineHyperparameters:
    """What shapes every training on pairs, apart from its loss, data, start and seed.

    Attributes:
        learning_rate: peak learning rate.
        epochs: passes over the pairs; may be fractional.
        batch_size: pairs for one update, on whatever hardware.
        micro_batch_size: pairs for one forward pass on a device; divides `batch_size`.
        max_length: longest prompt plus completion, in tokens; longer pairs are left out.
        max_prompt_length: longest prompt, in tokens, generation header included; pairs with a
            longer one are left out; None sets no limit of its own.
        schedule: `cosine`, `linear` or `constant_with_warmup` after the warm-up.
        warmup_ratio: share of the updates over which the learning rate rises from 0, in [0, 1).
        weight_decay: the optimiser's weight decay (AdamW's is decoupled).
        max_grad_norm: gradients are scaled down to this norm.
        optimizer: optimiser, by transformers' name.
    """

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

    def __post_init__(self) -> None:
        accumulation(self.batch_size, self.micro_batch_size)
        if not 0 <= self.warmup_ratio < 1:
            raise UserError(f"warmup_ratio is {self.warmup_ratio}: give a share in [0, 1).")
        if self.schedule not in SCHEDULES:
            raise UserError(
                f"unknown schedule `{self.schedule}`: use one of {', '.join(SCHEDULES)}."
            )


@dataclass(frozen=True)
class Setup:
    """What an algorithm builds its trainer from.

    Attributes:
        policy: the model to train, not shared with anyone; or its path, where TRL is to load it.
        tokenizer: its tokenizer.
        pairs: the pairs that fit, as messages, with the columns the algorithm asked for.
        arguments: arguments that the configurations of all of TRL's trainers share.
        adapters: peft's configuration of the adapters to train; None trains all weights.
    """

    policy: Any
    tokenizer: PreTrainedTokenizerBase
    pairs: Dataset
    arguments: dict[str, Any]
    adapters: Any = None


class Recorder(TrainerCallback):  # type: ignore[misc]
    """Hands the curves on, and stops a training whose loss cannot be right."""

    def __init__(self, on_log: OnLog, algorithm: str) -> None:
        self.hand_on = on_log
        self.algorithm = algorithm
        self.history: list[Metrics] = []

    def replay(self, points: Points) -> None:
        """Take in what a training that was killed had logged."""
        for step, metrics in points:
            self.history.append(metrics)
            self.hand_on(step, metrics)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check and pass on what the trainer logs after an update."""
        logs = kwargs["logs"]
        if "loss" not in logs:  # the closing line, which holds only speeds
            return
        step, loss = int(state.global_step), float(logs["loss"])
        if not math.isfinite(loss):
            raise TrainingError(
                f"the {self.algorithm} loss is {loss} at update {step}: lower the learning rate or "
                "check the pairs."
            )
        metrics = {name: float(value) for name, value in logs.items() if name != "epoch"}
        if not self.history:
            self.check_first(metrics)
        self.history.append(metrics)
        self.hand_on(step, metrics)

    def check_first(self, metrics: Metrics) -> None:
        """Raise TrainingError if the first update shows that the training cannot be right."""


def train_on_pairs(
    model_path: Path,
    pairs: Pairs,
    out_dir: Path,
    hyper: OfflineHyperparameters,
    build: Callable[[Setup], Trainer],
    recorder: Recorder,
    *,
    seed: int,
    log_every: int,
    device: str,
    columns: tuple[str, ...] = (),
    place: Placement | None = None,
) -> dict[str, float]:
    """Train a policy on pairs and save it to `out_dir/model`.

    Args:
        model_path: checkpoint to start from; also the source of the tokenizer.
        pairs: rows with the texts `prompt`, `chosen` and `rejected`.
        out_dir: existing folder; receives `model/` (safetensors and tokenizer) and nothing else.
        hyper: hyperparameters.
        build: returns the trainer.
        recorder: receives the curves.
        seed: seed of the order of the data.
        log_every: updates between two log lines (the first update is always logged).
        device: `cpu`, or `cuda` for the first visible GPU.
        columns: further columns of the pairs that the trainer reads.
        place: how to lay a large model on devices; None trains in this process alone.

    Returns:
        The summary that `train_dpo` describes; with a placement also how many pairs fill the last
        batch up (`repeated`).

    Raises:
        TrainingError: no pair is left after the length filter, or the training stopped early.
        HarnessError: no checkpoint at `model_path`.
    """
    tokenizer = load_tokenizer(model_path)
    rows = read_pairs(pairs)
    kept = short_enough(rows, tokenizer, hyper.max_length, hyper.max_prompt_length)
    if not kept:
        raise TrainingError(
            f"none of the {len(rows)} pairs fits into max_length = {hyper.max_length} tokens "
            f"(prompts: {hyper.max_prompt_length or 'no limit'}): raise it or check the "
            "completions."
        )
    used = kept if place is None else filled(kept, hyper.batch_size, seed)
    messages = [{**as_messages(row), **{name: row[name] for name in columns}} for row in used]
    with quiet(), tempfile.TemporaryDirectory() as scratch:
        processes = 1 if place is None else PartialState().num_processes
        arguments = _arguments(hyper, scratch, seed, log_every, device, processes)
        if place is None:
            policy = load_model(model_path, "causal")
            trainer = build(Setup(policy, tokenizer, Dataset.from_list(messages), arguments))
            _train(trainer, recorder)
            policy.config.use_cache = True  # switched off by the trainer
            policy.save_pretrained(out_dir / "model")
            tokenizer.save_pretrained(out_dir / "model")
        else:
            arguments |= place.arguments()
            data, adapters = _shared(messages, place.work), place.adapters()
            trainer = build(Setup(str(model_path), tokenizer, data, arguments, adapters))
            _train_on(trainer, recorder, place.work)
            save_policy(trainer, tokenizer, model_path, out_dir / "model", place)
        steps = int(trainer.state.global_step)
        _check_finished(steps, len(kept), hyper)
    return {
        "pairs": len(rows),
        "too_long": len(rows) - len(kept),
        "trained_pairs": len(kept),
        **({} if place is None else {"repeated": len(used) - len(kept)}),
        "steps": steps,
        **_first_and_last(recorder.history),
    }


def _train(trainer: Trainer, recorder: Recorder, checkpoint: str | None = None) -> None:
    trainer.add_callback(recorder)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)


def _train_on(trainer: Trainer, recorder: Recorder, work: Path) -> None:
    """Train from the last whole checkpoint on, or from the start where there is none."""
    checkpoint, done = last_checkpoint(work)
    writes = trainer.is_world_process_zero()
    PartialState().wait_for_everyone()  # nobody marks a new checkpoint before all have looked
    recorder.replay(rewind_curves(work, done) if writes else read_curves(work, done))
    hand_on = recorder.hand_on

    def keep(step: int, metrics: Metrics) -> None:
        # TRL counts tokens from where a process began, not from where the training did.
        told = {name: value for name, value in metrics.items() if name != "num_tokens"}
        if writes:
            append_point(work, step, told)
        hand_on(step, told)

    recorder.hand_on = keep
    trainer.add_callback(WholeCheckpoints(work))
    _train(trainer, recorder, None if checkpoint is None else str(checkpoint))


def _shared(messages: list[dict[str, Any]], work: Path) -> Dataset:
    """Return the pairs from files that all processes read, as the precomputed reference needs."""
    with PartialState().main_process_first():
        folder, growing = work / "pairs", work / "pairs.new"
        if not folder.exists():
            Dataset.from_list(messages).save_to_disk(growing)
            growing.rename(folder)
        return load_from_disk(str(folder))


def _first_and_last(history: list[Metrics]) -> Metrics:
    first, last = history[0], history[-1]
    return {
        "loss_first": first["loss"],
        "loss_last": last["loss"],
        "accuracy_last": last["rewards/accuracies"],
        "margin_last": last["rewards/margins"],
    }


def _arguments(
    hyper: OfflineHyperparameters,
    scratch: str,
    seed: int,
    log_every: int,
    device: str,
    processes: int,
) -> dict[str, Any]:
    return {
        "output_dir": scratch,
        "seed": seed,
        "learning_rate": hyper.learning_rate,
        "lr_scheduler_type": hyper.schedule,
        "warmup_steps": hyper.warmup_ratio,
        "weight_decay": hyper.weight_decay,
        "max_grad_norm": hyper.max_grad_norm,
        "optim": hyper.optimizer,
        "num_train_epochs": hyper.epochs,
        "per_device_train_batch_size": hyper.micro_batch_size,
        "gradient_accumulation_steps": accumulation(
            hyper.batch_size, hyper.micro_batch_size, processes
        ),
        "max_length": hyper.max_length,
        "use_cpu": device == "cpu",
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": device != "cpu",
        "logging_steps": log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def _check_finished(done: int, n_pairs: int, hyper: OfflineHyperparameters) -> None:
    """Refuse a training that did fewer updates than its settings ask for."""
    expected = math.ceil(hyper.epochs * math.ceil(n_pairs / hyper.batch_size) - 1e-9)
    if done != expected:
        raise TrainingError(
            f"the training made {done} of {expected} updates on {n_pairs} pairs: report this with "
            "the settings used."
        )


@contextmanager
def quiet() -> Iterator[None]:
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
