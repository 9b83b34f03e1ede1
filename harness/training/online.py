"""Online training in segments: RLOO and online DPO on prompts that are chosen for each step.

The model. One step draws a mini-batch of prompts, rolls each out N times with the policy as it is,
rewards the rollouts, and takes one optimiser step on the algorithm's loss (`rloo`, `oaif`). What
the prompts are, and what becomes of the rewards, is decided by a `PromptSource`: it may evolve
prompts and roll the rewrites out before the optimiser moves.

A run is cut into segments. A segment starts from the weights and the optimiser's state that the
one before left behind, and ends by writing its own; the learning rate and all random numbers are
functions of the step's number in the run. So where a run is cut changes no number, and a run that
was killed goes on from its last segment to the same end.

Source: paper section 3.2 and appendix A (online eva); TRL's trainers for the losses.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, get_scheduler

from harness.errors import UserError
from harness.models.loading import Checkpoint, load_model, load_tokenizer
from harness.training.distributed import SharedPolicy
from harness.training.offline import OnLog, TrainingError, quiet
from harness.training.placement import FULL, OnlinePlacement
from harness.training.steps import PromptSource, Segment, SharedSteps, Steps
from harness.training.weights import (
    GivenOptimizer,
    read_optimizer,
    save_optimizer,
    save_weights,
    write_optimizer,
)

OPTIMIZER = "optimizer.safetensors"

PLAIN = OnlinePlacement()
"""The embedded world's: float32 on the processor, a step's rollouts at once."""


@dataclass(frozen=True)
class OnlineHyperparameters:
    """Everything that shapes an online training, apart from prompts, rewards, start and seed.

    Attributes:
        learning_rate: peak learning rate.
        schedule: `cosine`, `linear` or `constant_with_warmup` after the warm-up.
        warmup_steps: steps over which the learning rate rises from 0.
        schedule_steps: steps that the schedule spans.
        minibatch: prompts of a step.
        rollouts: rollouts of each prompt (N).
        beta: coefficient of the KL penalty (RLOO), or of the implicit reward (OAIF).
        temperature: sampling temperature of rollouts.
        top_p: nucleus of the sampling.
        max_new_tokens: longest rollout, in tokens.
        max_length: longest prompt and rollout together, in tokens.
        weight_decay: AdamW's decoupled weight decay.
        max_grad_norm: gradients are scaled down to this norm.
        optimizer: optimiser, by transformers' name.
    """

    learning_rate: float
    schedule: str
    warmup_steps: int
    schedule_steps: int
    minibatch: int
    rollouts: int
    beta: float
    temperature: float
    top_p: float
    max_new_tokens: int
    max_length: int
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    optimizer: str = "adamw_torch"

    def __post_init__(self) -> None:
        if self.rollouts < 2:
            raise UserError(f"{self.rollouts} rollouts of a prompt cannot be compared: give 2.")


class InSegment:
    """What makes a TRL trainer train one segment of a run; stands before it among the bases."""

    steps: Steps
    segment: Segment
    hyper: OnlineHyperparameters
    optimizer_state: Path | None

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Create the trainer's optimiser, with the state that the segment before left."""
        optimizer = super().create_optimizer(*args, **kwargs)  # type: ignore[misc]
        if self.optimizer_state is not None:
            read_optimizer(optimizer, self.optimizer_state)
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Create the schedule of the whole run, moved to where the segment begins."""
        h, before = self.hyper, self.segment.first - 1
        idle = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        whole = get_scheduler(h.schedule, idle, h.warmup_steps, h.schedule_steps)
        shape = whole.lr_lambdas[0]
        optimizer = optimizer or self.optimizer  # type: ignore[attr-defined]
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: shape(step + before)
        )
        return self.lr_scheduler


def common_arguments(
    hyper: OnlineHyperparameters, segment: Segment, scratch: str, place: OnlinePlacement
) -> dict[str, Any]:
    """Return the arguments that both trainers take, quiet and without files."""
    return {
        "output_dir": scratch,
        "max_steps": segment.steps,
        "learning_rate": hyper.learning_rate,
        "weight_decay": hyper.weight_decay,
        "max_grad_norm": hyper.max_grad_norm,
        "optim": hyper.optimizer,
        "beta": hyper.beta,
        "temperature": hyper.temperature,
        "top_p": hyper.top_p,
        "top_k": 0,
        **place.arguments(),
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 0,  # every step sets its own
    }


def clock(rows: int) -> Dataset:
    """Return a data set that only makes the trainer take steps; its prompts are replaced."""
    return Dataset.from_list([{"prompt": [{"role": "user", "content": ""}]}] * rows)


MakeTrainer = Callable[..., Any]

Load = Callable[[], Any]
"""Loads the policy; called when TRL's arguments are made, because libraries that spread weights
over processes learn of it from these, and spread them while they are loaded."""


def train_segment(
    make_trainer: MakeTrainer,
    *,
    policy: Path,
    reference: Path,
    optimizer_state: Path | None,
    out_dir: Path,
    hyper: OnlineHyperparameters,
    segment: Segment,
    source: PromptSource | None,
    seed: int,
    blocks: bool,
    on_log: OnLog,
    place: OnlinePlacement = PLAIN,
) -> None:
    """Train one segment; writes `model/` and `optimizer.safetensors` into `out_dir`.

    Where the placement has several processes each of them calls this, and the first one writes.

    Args:
        make_trainer: makes the algorithm's trainer (`rloo.trainer` or `oaif.trainer`).
        policy: checkpoint to start from.
        reference: checkpoint that the KL penalty or the implicit reward refers to.
        optimizer_state: the optimiser's state to start from; None at the start of a run.
        out_dir: existing folder.
        hyper: hyperparameters.
        segment: which steps of the run.
        source: chooses prompts and takes rewards; None in all processes but the first.
        seed: root of the random numbers of all steps.
        blocks: see `Steps`.
        on_log: called in the first process with the number of each finished step and its metrics.
        place: how it is laid on a device; by default in float32 on the processor.

    Raises:
        TrainingError: a loss is not finite, or the trainer took other steps than asked for.
    """
    kind = SharedSteps if place.shared else Steps
    steps = kind(source, segment, seed, blocks=blocks)  # type: ignore[arg-type]

    def load() -> Any:
        model = load_model(policy, "causal")
        if place.attention is not None:
            model.set_attn_implementation(place.attention)
        return model

    with quiet(), tempfile.TemporaryDirectory() as scratch:
        tokenizer = load_tokenizer(policy)
        recorder = _Recorder(on_log, steps, segment, hyper.beta)
        arguments = common_arguments(hyper, segment, scratch, place)
        trainer = make_trainer(load, reference, tokenizer, arguments, hyper, steps, place)
        trainer.steps, trainer.segment = steps, segment
        trainer.hyper, trainer.optimizer_state = hyper, None if place.shared else optimizer_state
        trainer.add_callback(recorder)
        trainer.remove_callback(PrinterCallback)
        if place.shared:
            trainer.add_callback(GivenOptimizer(trainer, policy, optimizer_state))
            steps.attach(_shared(trainer, tokenizer, hyper, place))
        else:
            steps.attach(Checkpoint(trainer.model, tokenizer))
        try:
            trainer.train()
        except torch.OutOfMemoryError as error:
            raise TrainingError(FULL) from error
        if recorder.logged != segment.steps:
            raise TrainingError(
                f"the trainer took {recorder.logged} of {segment.steps} steps: report this with "
                "the settings used."
            )
        if place.shared:
            save_weights(trainer, tokenizer, policy, out_dir / "model")
            save_optimizer(trainer, out_dir / OPTIMIZER)
            return
        model = trainer.model
        model.config.use_cache = True  # switched off by the trainers
        model.save_pretrained(out_dir / "model")
        tokenizer.save_pretrained(out_dir / "model")
        write_optimizer(trainer.optimizer, out_dir / OPTIMIZER)


def _shared(
    trainer: Any, tokenizer: Any, hyper: OnlineHyperparameters, place: OnlinePlacement
) -> SharedPolicy:
    return SharedPolicy(
        trainer,
        tokenizer,
        share=place.share(hyper.minibatch * hyper.rollouts),
        temperature=hyper.temperature,
        top_p=hyper.top_p,
        max_new_tokens=hyper.max_new_tokens,
    )


class _Recorder(TrainerCallback):  # type: ignore[misc]
    """Hands the curves on, with what the prompts' source says of the same step."""

    def __init__(self, on_log: OnLog, steps: Steps, segment: Segment, beta: float) -> None:
        self._hand_on = on_log
        self._beta = beta
        self._steps = steps
        self._before = segment.first - 1
        self.logged = 0

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check and pass on what the trainer logs after a step."""
        logs = kwargs["logs"]
        if "loss" not in logs:  # the closing line, which holds only speeds
            return
        step = self._before + int(state.global_step)
        if not math.isfinite(float(logs["loss"])):
            raise TrainingError(
                f"the loss is {logs['loss']} at step {step}: lower the learning rate or check the "
                "rewards."
            )
        self.logged += 1
        if not state.is_world_process_zero:
            return
        logged = {name: float(logs[key]) for key, name in LOGGED.items() if key in logs}
        if "rewards/chosen" in logs:
            # TRL's own figure for online DPO counts padding. Its implicit rewards do not: they are
            # beta times the log-ratio of a rollout, chosen and rejected making up all of them.
            both = float(logs["rewards/chosen"]) + float(logs["rewards/rejected"])
            logged["kl"] = both / (2 * self._beta * self._steps.length)
        self._hand_on(step, logged | self._steps.metrics)


LOGGED: Mapping[str, str] = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "kl": "kl",
    "rewards/accuracies": "accuracy",
    "rewards/margins": "margin",
}
"""What the trainers log that is shown, by TRL's name and ours; rewards come from the source. `kl`
is the log-ratio to the reference per token, over the step's rollouts."""
