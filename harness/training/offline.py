"""One training on pairs, whatever its loss: read, filter, train, check, save.

An algorithm (`OfflineAlgorithm`) is its hyperparameters and what makes a TRL trainer of a `Setup`;
the shipped ones stand in a file each (`dpo`, `sppo`, `simpo`, `orpo`). Everything else is the same
for all and settled here rather than left to TRL's defaults:

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
from typing import Any, ClassVar, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq
from accelerate import PartialState
from datasets import Dataset, load_from_disk
from datasets.utils import logging as datasets_logging
from transformers import PreTrainedTokenizerBase, PrinterCallback, Trainer, TrainerCallback

from harness.errors import HarnessError, UserError
from harness.extensions import LOSSES
from harness.models.loading import load_model, load_tokenizer, silence_progress_bars, tokenize
from harness.runtime.stage import StageContext
from harness.training import distributed, launch
from harness.training.distributed import save_policy
from harness.training.launch import Metrics, OnLog, Points
from harness.training.placement import PLAIN, Placement, accumulation, padded

Pairs: TypeAlias = "pa.Table | Sequence[Mapping[str, Any]]"

TEXTS = ("prompt", "chosen", "rejected")
SIDES = ("chosen", "rejected")


class TrainingError(HarnessError):
    """A training that could not be done as asked."""


@dataclass(frozen=True)
class Setup:
    """What an algorithm makes its trainer of.

    Attributes:
        policy: the model to train, not shared with anyone; or its path, where TRL is to load it.
        reference: checkpoint of a reference that is not the policy as it starts; else None.
        pairs: those that fit, as messages, with the columns that the algorithm asked for.
        arguments: those that the configurations of all of TRL's trainers share.
        adapters: peft's configuration of the adapters to train; None trains all weights.
    """

    policy: Any
    reference: Path | None
    tokenizer: PreTrainedTokenizerBase
    pairs: Dataset
    arguments: dict[str, Any]
    adapters: Any = None

    def trainer(self, kind: Callable[..., Trainer], args: Any, **more: Any) -> Trainer:
        """Return a trainer of TRL's, of some class and configuration, on the policy and pairs."""
        return kind(
            model=self.policy,
            args=args,
            train_dataset=self.pairs,
            processing_class=self.tokenizer,
            peft_config=self.adapters,
            **more,
        )

    def referring_trainer(self, kind: Callable[..., Trainer], args: Any) -> Trainer:
        """Return a trainer that also has the reference.

        It is named by path: TRL would reload an unnamed one from wherever the policy was once
        loaded. Where its log-probabilities are computed before training, None means the policy as
        it starts.
        """
        own = None if self.reference is None else load_model(self.reference)
        return self.trainer(kind, args, ref_model=own)


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

    name: ClassVar[str]
    """What messages call it."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns of the pairs that its trainer reads besides the texts."""

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

    @abstractmethod
    def trainer(self, setup: Setup) -> Trainer:
        """Return the trainer with this loss."""

    def arguments(self, seed: int, placed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that all of TRL's trainers take, with those of the placement."""
        processes = distributed.count()
        return {
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
                self.batch_size, self.micro_batch_size, processes
            ),
            "max_length": self.max_length,
        }

    def check_pairs(self, rows: Sequence[Mapping[str, Any]]) -> None:  # noqa: B027 (optional)
        """Raise TrainingError if the pairs lack what the loss needs."""

    def check_first(self, metrics: Metrics, dtype: str) -> None:  # noqa: B027 (optional)
        """Raise TrainingError if the first update shows that policy and reference differ.

        Called only where they are the same checkpoint, with the number format of the forward pass.
        """


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
    reference_path: Path | None = None,
    seed: int,
    on_log: OnLog,
    place: Placement = PLAIN,
) -> Metrics:
    """Train a policy on pairs and save it to `out_dir/model`, as safetensors with its tokenizer.

    The pairs are rows with the texts `prompt`, `chosen` and `rejected`, and the algorithm's own
    `columns`; others are ignored. The reference is by default the policy as it starts. `seed`
    orders the data; `on_log` is called with the number of finished updates and their metrics.

    Returns:
        A summary that repeats exactly with the seed: `pairs` given, `too_long` left out,
        `trained_pairs`, `steps`, `loss_first`, `loss_last`, `accuracy_last`, `margin_last` (the
        last three are those of the last update); with a working folder also how many pairs fill
        the last batch up (`repeated`).
    """
    other = reference_path is not None and reference_path.resolve() != model_path.resolve()
    tokenizer = load_tokenizer(model_path)
    rows = read_pairs(pairs)
    algorithm.check_pairs(rows)
    kept = short_enough(rows, tokenizer, algorithm.max_length, algorithm.max_prompt_length)
    if not kept:
        raise TrainingError(
            f"none of the {len(rows)} pairs fits into max_length = {algorithm.max_length} tokens "
            f"(prompts: {algorithm.max_prompt_length or 'no limit'}): raise it or check the "
            "completions."
        )
    used = kept if place.work is None else padded(kept, algorithm.batch_size, seed)
    recorder = _Recorder(on_log, algorithm, None if other else place.dtype)
    with quiet(), tempfile.TemporaryDirectory() as scratch:
        setup = Setup(
            load_model(model_path) if place.work is None else str(model_path),
            reference_path if other else None,
            tokenizer,
            _data(used, algorithm, place.work),
            algorithm.arguments(seed, place.arguments(scratch)),
            place.adapters(),
        )
        trainer = algorithm.trainer(setup)
        _run(trainer, recorder, place.work)
        save_policy(trainer, tokenizer, model_path, out_dir / "model", place)
        steps = int(trainer.state.global_step)
    _check_finished(steps, len(kept), algorithm)
    return {
        "pairs": len(rows),
        "too_long": len(rows) - len(kept),
        "trained_pairs": len(kept),
        **({} if place.work is None else {"repeated": len(used) - len(kept)}),
        "steps": steps,
        **_first_and_last(recorder.history),
    }


def train_pairs(ctx: StageContext, place: Placement) -> Metrics:
    """Do one process's part of a training that `launch.train_launched` launched."""
    s = cast(dict[str, Any], ctx.settings)
    return train(
        algorithm_of(s["algorithm"], s, micro_batch_size=place.micro_batch),
        ctx.inputs["policy"],
        pq.read_table(ctx.inputs["pairs"]),
        ctx.output,
        seed=ctx.seed,
        on_log=lambda step, metrics: None,  # the launcher follows the file of the curves
        place=place,
    )


def read_pairs(pairs: Pairs) -> list[dict[str, Any]]:
    """Return the pairs as rows whose columns `prompt`, `chosen` and `rejected` are texts."""
    rows = pairs.to_pylist() if isinstance(pairs, pa.Table) else pairs
    return [{**row, **{name: str(row[name]) for name in TEXTS}} for row in rows]


def as_messages(row: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Return the texts of a pair as the conversations that TRL's trainers take."""
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def short_enough(
    rows: Sequence[dict[str, Any]],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_prompt_length: int | None = None,
) -> list[dict[str, Any]]:
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


class _Recorder(TrainerCallback):  # type: ignore[misc]
    """Hands the curves on, and stops a training whose loss cannot be right."""

    def __init__(self, on_log: OnLog, algorithm: OfflineAlgorithm, dtype: str | None) -> None:
        """Begin; `dtype` is None where the first update shows nothing of the reference."""
        self.hand_on = on_log
        self.algorithm = algorithm
        self.dtype = dtype
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
                f"the {self.algorithm.name} loss is {loss} at update {step}: lower the learning "
                "rate or check the pairs."
            )
        metrics = {name: float(value) for name, value in logs.items() if name != "epoch"}
        if not self.history and self.dtype is not None:
            self.algorithm.check_first(metrics, self.dtype)
        self.history.append(metrics)
        self.hand_on(step, metrics)


def _run(trainer: Trainer, recorder: _Recorder, work: Path | None) -> None:
    """Train; in a working folder from its last whole checkpoint on, if there is one."""
    checkpoint = None if work is None else _take_up(trainer, recorder, work)
    trainer.add_callback(recorder)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)


def _take_up(trainer: Trainer, recorder: _Recorder, work: Path) -> str | None:
    """Take up the curves of a working folder; return the checkpoint to go on from."""
    checkpoint, done = launch.last_checkpoint(work)
    writes = trainer.is_world_process_zero()
    PartialState().wait_for_everyone()  # nobody marks a new checkpoint before all have looked
    recorder.replay((launch.rewind_curves if writes else launch.read_curves)(work, done))
    hand_on = recorder.hand_on

    def keep(step: int, metrics: Metrics) -> None:
        # TRL counts tokens from where a process began, not from where the training did.
        kept = {name: value for name, value in metrics.items() if name != "num_tokens"}
        if writes:
            launch.curves(work).write(step, kept)
        hand_on(step, kept)

    recorder.hand_on = keep
    trainer.add_callback(_WholeCheckpoints(work))
    return None if checkpoint is None else str(checkpoint)


class _WholeCheckpoints(TrainerCallback):  # type: ignore[misc]
    """Marks a checkpoint when every process has written its part of it."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for the others; called in each process when its part is written."""
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            launch.mark_whole(self._work, state.global_step)


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


def _first_and_last(history: list[Metrics]) -> Metrics:
    first, last = history[0], history[-1]
    return {
        "loss_first": first["loss"],
        "loss_last": last["loss"],
        "accuracy_last": last["rewards/accuracies"],
        "margin_last": last["rewards/margins"],
    }


def _check_finished(done: int, n_pairs: int, algorithm: OfflineAlgorithm) -> None:
    """Refuse a training that did fewer updates than its settings ask for."""
    expected = math.ceil(algorithm.epochs * math.ceil(n_pairs / algorithm.batch_size) - 1e-9)
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
