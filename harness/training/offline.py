"""One training on pairs, whatever its loss: filter, train, check, save.

An algorithm (`OfflineAlgorithm`) is its hyperparameters and what makes a TRL trainer of a `Setup`;
the shipped ones stand in `offline_losses`. Everything else is the same for all and
settled here rather than left to TRL's defaults:

- float32 without gradient checkpointing (the defaults are for large models on GPUs);
- pairs that do not fit are left out whole and counted. Cutting them, as the authors do, would
  train on an answer that ends nowhere; TRL's trainers differ here from one another: one drops such
  pairs without a word, the others cut an answer down to nothing, whose mean is not a number;
- no checkpoints, no console output, no tracker: curves go to `on_log`;
- a loss that is not finite, or fewer updates than asked for, is an error.

Large models are laid on devices as a `Placement` says, which changes the first and the third: with
a working folder they have checkpoints, and a training that was killed goes on from its last one.

The same inputs and seed give the same weights to the last bit on one machine and thread count.
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
from typing import Any, ClassVar, cast

import pyarrow.parquet as pq
from accelerate import PartialState
from datasets import Dataset, load_from_disk
from datasets.utils import logging as datasets_logging
from transformers import PreTrainedTokenizerBase, PrinterCallback, Trainer, TrainerCallback

from harness.errors import HarnessError, UserError
from harness.extensions import LOSSES
from harness.models.loading import load_model, load_tokenizer, silence_progress_bars, tokenize
from harness.runtime.stage import StageContext
from harness.training.distributed import save_policy
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
"""Largest difference of summed log-probabilities of policy and reference before the first update,
in nats. In bfloat16, batches of other shapes differ by a nat in a completion of many hundred
tokens."""


class TrainingError(HarnessError):
    """A training that could not be done as asked."""


@dataclass(frozen=True)
class Setup:
    """What an algorithm makes its trainer of.

    Attributes:
        policy: the model to train, not shared with anyone; or its path, where TRL is to load it.
            A reference is the policy as it starts, which TRL takes when none is named.
        pairs: those that fit, as messages, with the columns that the algorithm asked for.
        arguments: those that the configurations of all of TRL's trainers share.
        adapters: peft's configuration of the adapters to train; None trains all weights.
    """

    policy: Any
    tokenizer: PreTrainedTokenizerBase
    pairs: Dataset
    arguments: dict[str, Any]
    adapters: Any = None

    def trainer(self, kind: Callable[..., Trainer], args: Any) -> Trainer:
        """Return a trainer of TRL's, of some class and configuration, on the policy and pairs."""
        return kind(
            model=self.policy,
            args=args,
            train_dataset=self.pairs,
            processing_class=self.tokenizer,
            peft_config=self.adapters,
        )


@dataclass(frozen=True, kw_only=True)
class OfflineAlgorithm(ABC):
    """An algorithm that trains on pairs: a loss with everything that shapes a training by it.

    A subclass adds the constants of its loss as fields, its name, and what makes its trainer. What
    a profile states as well means what it does there (`harness.registry.training.Offline`).

    Attributes:
        micro_batch_size: pairs for one forward pass on a device; divides `batch_size`.
        max_length: longer pairs are left out, as are those with a longer prompt, its generation
            header included, than `max_prompt_length`.
        schedule: `cosine`, `linear` or `constant_with_warmup` after the warm-up.
    """

    name: ClassVar[str]  # what messages call it
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the pairs that its trainer reads besides the texts."""
    refers: ClassVar[bool] = False
    """Whether there is a reference; its log-probabilities are computed once, before training."""

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
        """Return the arguments that all of TRL's trainers take, with those of the placement."""
        devices = int(PartialState().num_processes)
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
        if self.refers:
            arguments["precompute_ref_log_probs"] = True
            # Without gradients to keep, four times the batch fits into the same memory.
            arguments["precompute_ref_batch_size"] = 4 * self.micro_batch_size
        return arguments


def algorithm_of(
    name: str, settings: Mapping[str, Any], *, micro_batch_size: int | None = None
) -> OfflineAlgorithm:
    """Return an algorithm with the hyperparameters that a profile's settings ask for.

    Settings that are no hyperparameters are ignored. A whole batch goes through at once unless a
    `micro_batch_size` is given.
    """
    if name not in LOSSES:
        raise UserError(f"no algorithm `{name}` trains on pairs: use one of {', '.join(LOSSES)}.")
    found = LOSSES.get(name)
    # A plug-in gives a function, so that naming a loss does not import what trains by it.
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

    The pairs are rows with the texts `prompt`, `chosen` and `rejected`, and the algorithm's own
    `columns`; others are ignored. The reference is the policy as it starts. `seed` orders the data;
    in the first process `on_log` is called with each finished update and its metrics.

    Returns:
        A summary that repeats exactly with the seed: `pairs` given, `too_long` left out,
        `trained_pairs`, `steps`, `loss_first`, `loss_last`, `accuracy_last`, `margin_last` (the
        last three are those of the last update); with a working folder also how many pairs fill
        the last batch up (`repeated`).
    """
    tokenizer = load_tokenizer(model_path)
    kept = short_enough(pairs, tokenizer, algorithm.max_length, algorithm.max_prompt_length)
    if not kept:
        raise TrainingError(
            f"none of the {len(pairs)} pairs fits into max_length = {algorithm.max_length} tokens "
            f"(prompts: {algorithm.max_prompt_length or 'no limit'}): raise it or check the "
            "completions."
        )
    used = kept if place.work is None else filled(kept, algorithm.batch_size, seed)
    recorder = _PairsRecorder(on_log, algorithm, place)
    with quiet(), tempfile.TemporaryDirectory() as scratch:
        setup = Setup(
            load_model(model_path) if place.work is None else str(model_path),
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
    """Do one process's part of a training that was launched (`harness.training.launch`)."""
    s = cast(dict[str, Any], ctx.settings)
    return train(
        algorithm_of(s["algorithm"], s, micro_batch_size=place.micro_batch),
        ctx.inputs["policy"],
        pq.read_table(ctx.inputs["pairs"]).to_pylist(),
        ctx.output,
        seed=ctx.seed,
        on_log=ctx.report,
        place=place,
    )


def as_messages(row: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Return the texts of a pair as the conversations that TRL's trainers take."""
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def short_enough(
    rows: Pairs,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_prompt_length: int | None = None,
) -> list[Mapping[str, Any]]:
    """Return the pairs of which prompt and completion fit, either side, and the prompt by itself.

    Lengths are in tokens, those of the chat template included.
    """
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
    """Hands a training's curves on, and stops one whose loss is not a number.

    Its first step comes after `before` steps of the run.
    """

    def __init__(self, on_log: OnLog, before: int = 0) -> None:
        self._hand_on = on_log
        self._before = before

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hand a step's metrics on: what the trainer calls."""
        logs = kwargs["logs"]
        if "loss" not in logs:  # the closing line, which holds only speeds
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
        """Return what is shown of TRL's logs of a step."""
        raise NotImplementedError


class _PairsRecorder(Recorder):
    """Keeps the curves of a training on pairs, marks its checkpoints, and checks its reference."""

    def __init__(self, on_log: OnLog, algorithm: OfflineAlgorithm, place: Placement) -> None:
        super().__init__(on_log)
        self._algorithm = algorithm
        self._dtype = place.dtype
        self.work = place.work
        self.history: list[Metrics] = []

    def metrics(self, logs: Mapping[str, Any]) -> Metrics:
        metrics = {name: float(value) for name, value in logs.items() if name != "epoch"}
        if self.work is not None:
            # TRL counts tokens from where a process began, not from where the training did.
            metrics.pop("num_tokens", None)
        if not self.history and self._algorithm.refers:
            self._check_first(metrics)
        self.history.append(metrics)
        return metrics

    def _check_first(self, metrics: Metrics) -> None:
        """Refuse a reference that is not the policy, which nothing else would show."""
        beta = self._algorithm.beta  # type: ignore[attr-defined]
        apart = max(abs(metrics[f"rewards/{side}"]) for side in SIDES) / beta
        if apart > STEP_ZERO_TOLERANCE[self._dtype]:
            raise TrainingError(
                f"policy and reference differ by {apart:.4f} nats before the first "
                f"{self._algorithm.name} update although they are one checkpoint: rebuild the "
                "checkpoint and report this."
            )

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()  # each has written its part
        if self.work is not None and state.is_world_process_zero:
            mark_whole(self.work, state.global_step)


def _run(trainer: Trainer, recorder: _PairsRecorder) -> None:
    """Train; in a working folder from its last whole checkpoint on, if there is one."""
    checkpoint = None
    if recorder.work is not None:
        checkpoint, done = last_checkpoint(recorder.work)
        recorder.history += [metrics for _, metrics in read_curves(recorder.work, done)]
        PartialState().wait_for_everyone()  # nobody marks a new checkpoint before all have looked
    trainer.add_callback(recorder)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


def _data(
    rows: Sequence[Mapping[str, Any]], algorithm: OfflineAlgorithm, work: Path | None
) -> Dataset:
    """Return pairs as messages, with the columns that the algorithm asked for.

    In a working folder they come from files that all processes read, as the precomputed reference
    needs.
    """
    messages = [
        {**as_messages(row), **{name: row[name] for name in algorithm.columns}} for row in rows
    ]
    if work is None:
        return Dataset.from_list(messages)
    with PartialState().main_process_first():
        folder, growing = work / "pairs", work / "pairs.new"
        if not folder.exists():
            Dataset.from_list(messages).save_to_disk(growing)
            growing.rename(folder)
        return load_from_disk(str(folder))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and notices about their next versions off the console."""
    silence_progress_bars()
    datasets_logging.disable_progress_bar()
    os.environ["TQDM_DISABLE"] = "1"  # the only switch of TRL's bar over the reference
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
