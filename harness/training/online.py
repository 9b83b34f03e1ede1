"""Online training in segments: RLOO and online DPO on prompts that are chosen for each step.

The model. One step draws a mini-batch of prompts, rolls each out N times with the policy as it is,
rewards the rollouts, and takes one optimiser step on the algorithm's loss (`rloo`, `oaif`). What
the prompts are, and what becomes of the rewards, is decided by a `PromptSource`: it may evolve
prompts and roll the rewrites out before the optimiser moves.

A run is cut into segments. A segment starts from the weights and the optimiser's state that the
one before left behind, and ends by writing its own; the learning rate and all random numbers are
functions of the step's number in the run. So where a run is cut changes no number, and a run that
was killed goes on from its last segment to the same end.

The trainers' own checkpoints are not used: they are pickles. The optimiser's state is kept as
safetensors, float32, one entry for each parameter and moment.

Source: paper section 3.2 and appendix A (online eva); TRL's trainers for the losses.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import PrinterCallback, TrainerCallback, get_scheduler

from harness.errors import UserError
from harness.models.loading import (
    Checkpoint,
    load_model,
    load_tokenizer,
    stop_token_ids,
)
from harness.training.loop import TrainingError, quiet

Metrics = dict[str, float]
OnLog = Callable[[int, Metrics], None]
OPTIMIZER = "optimizer.safetensors"


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


class PromptSource(Protocol):
    """Chooses the prompts of each step and takes what came of them."""

    def draw(self) -> Sequence[str]:
        """Begin a step and return the texts of its prompts."""
        ...

    def reward(
        self, completions: Sequence[Sequence[str]], ended: NDArray[np.bool_], tokens: int
    ) -> NDArray[np.float64]:
        """Return the P x N rewards of the step's rollouts.

        Args:
            completions: P x N texts.
            ended: P x N, whether the policy ended the turn itself.
            tokens: tokens generated for them, ends of turns included.
        """
        ...

    def finish(self, policy: Checkpoint) -> Metrics:
        """End the step, with the policy that rolled out, and return what to log of it."""
        ...


@dataclass(frozen=True)
class Segment:
    """A stretch of a run: the steps `first` to `last`, counted from 1 over the whole run."""

    first: int
    last: int

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last - self.first + 1


class Steps:
    """What happens in every step, whatever the loss: called by the trainers, once each a step.

    Attributes:
        metrics: what the source says of the last step.
    """

    def __init__(self, source: PromptSource, segment: Segment, seed: int, *, blocks: bool) -> None:
        """Begin a segment.

        Args:
            source: chooses prompts and takes rewards.
            segment: which steps.
            seed: root of the random numbers of all steps.
            blocks: whether the trainer lays rollouts out as all first ones, then all second ones,
                rather than all of one prompt together.
        """
        self.metrics: Metrics = {}
        self._source = source
        self._seed = seed
        self._blocks = blocks
        self._step = segment.first - 1
        self._prompts = 0

    def attach(self, policy: Checkpoint) -> None:
        """Say which policy rolls out; it is the one that is being trained."""
        self._policy = policy
        self._stops = frozenset(stop_token_ids(policy.tokenizer))

    def begin(self) -> list[list[dict[str, str]]]:
        """Return the conversations of the next step, after seeding its random numbers."""
        self._step += 1
        state = np.random.SeedSequence([self._seed, self._step]).generate_state(1)
        torch.manual_seed(int(state[0]))
        texts = self._source.draw()
        self._prompts = len(texts)
        return [[{"role": "user", "content": text}] for text in texts]

    def reward(self, prompts: Any, completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        """Reward the step's rollouts and end the step: a reward function as TRL calls it."""
        stops = [[token in self._stops for token in ids] for ids in completion_ids]
        ended = np.array([any(row) for row in stops])
        tokens = sum(row.index(True) + 1 if any(row) else len(row) for row in stops)
        texts = [completion[0]["content"].strip() for completion in completions]
        shape = (-1, self._prompts) if self._blocks else (self._prompts, -1)
        order: NDArray[np.int64] = np.arange(len(texts)).reshape(shape)
        order = order.T if self._blocks else order
        grouped = [[texts[i] for i in row] for row in order]
        rewards = np.empty(len(texts))
        rewards[order] = self._source.reward(grouped, ended[order], tokens)
        if not np.isfinite(rewards).all():  # TRL would take them for missing and go on
            raise TrainingError(
                f"a reward at step {self._step} is not finite: check the reward model."
            )
        model, training = self._policy.model, self._policy.model.training
        model.eval()
        self.metrics = self._source.finish(self._policy)
        model.train(training)
        return [float(reward) for reward in rewards]


class InSegment:
    """What makes a TRL trainer train one segment of a run; stands before it among the bases."""

    steps: Steps
    segment: Segment
    hyper: OnlineHyperparameters
    moments: Path | None

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Create the trainer's optimiser, with the moments that the segment before left."""
        optimizer = super().create_optimizer(*args, **kwargs)  # type: ignore[misc]
        if self.moments is not None:
            read_moments(optimizer, self.moments)
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
    hyper: OnlineHyperparameters, segment: Segment, scratch: str
) -> dict[str, Any]:
    """Return the arguments that both trainers take, for a processor, quiet and without files."""
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
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
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


def train_segment(
    make_trainer: MakeTrainer,
    *,
    policy: Path,
    reference: Path,
    moments: Path | None,
    out_dir: Path,
    hyper: OnlineHyperparameters,
    segment: Segment,
    source: PromptSource,
    seed: int,
    blocks: bool,
    on_log: OnLog,
) -> None:
    """Train one segment; writes `model/` and `optimizer.safetensors` into `out_dir`.

    Args:
        make_trainer: makes the algorithm's trainer (`rloo.trainer` or `oaif.trainer`).
        policy: checkpoint to start from.
        reference: checkpoint that the KL penalty or the implicit reward refers to.
        moments: the optimiser's state to start from; None at the start of a run.
        out_dir: existing folder.
        hyper: hyperparameters.
        segment: which steps of the run.
        source: chooses prompts and takes rewards.
        seed: root of the random numbers of all steps.
        blocks: see `Steps`.
        on_log: called with the number of each finished step and its metrics.

    Raises:
        TrainingError: a loss is not finite, or the trainer took other steps than asked for.
    """
    steps = Steps(source, segment, seed, blocks=blocks)
    with quiet(), tempfile.TemporaryDirectory() as scratch:
        tokenizer, model = load_tokenizer(policy), load_model(policy, "causal")
        recorder = _Recorder(on_log, steps, segment)
        trainer = make_trainer(
            model, reference, tokenizer, common_arguments(hyper, segment, scratch), hyper, steps
        )
        trainer.steps, trainer.segment = steps, segment
        trainer.hyper, trainer.moments = hyper, moments
        trainer.add_callback(recorder)
        trainer.remove_callback(PrinterCallback)
        steps.attach(Checkpoint(trainer.model, tokenizer))
        trainer.train()
        if recorder.logged != segment.steps:
            raise TrainingError(
                f"the trainer took {recorder.logged} of {segment.steps} steps: report this with "
                "the settings used."
            )
        model.config.use_cache = True  # switched off by the trainers
        model.save_pretrained(out_dir / "model")
        tokenizer.save_pretrained(out_dir / "model")
        write_moments(trainer.optimizer, out_dir / OPTIMIZER)


class _Recorder(TrainerCallback):  # type: ignore[misc]
    """Hands the curves on, with what the prompts' source says of the same step."""

    def __init__(self, on_log: OnLog, steps: Steps, segment: Segment) -> None:
        self._hand_on = on_log
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
        told = {name: float(logs[key]) for key, name in LOGGED.items() if key in logs}
        self._hand_on(step, told | self._steps.metrics)


LOGGED: Mapping[str, str] = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "kl": "kl",
    "objective/kl": "kl",
    "rewards/accuracies": "accuracy",
    "rewards/margins": "margin",
}
"""What the trainers log that is shown, by TRL's name and ours; rewards come from the source."""


def write_moments(optimizer: Any, path: Path) -> None:
    """Write an optimiser's state as safetensors, `<parameter>.<moment>` each."""
    state = optimizer.state_dict()["state"]
    save_file(
        {f"{index}.{name}": value for index, kept in state.items() for name, value in kept.items()},
        path,
    )


def read_moments(optimizer: Any, path: Path) -> None:
    """Give a new optimiser over the same parameters a state that `write_moments` wrote."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(path).items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
