"""Online training in segments: RLOO and online DPO on prompts chosen at each step.

One step draws a mini-batch of prompts, rolls each out N times with the current policy, rewards the
rollouts, and takes one optimizer step on the loss (`online_losses`). A `StepPrompts` chooses the
prompts and consumes the rewards; it may evolve prompts and roll out the rewrites before the
optimizer step.

A segment starts from the weights and optimizer state saved by the previous one; the learning rate
and all random numbers depend only on the step's number in the run, so where a run is split changes
no number (except with the oracle, which measures the policy anew for each segment). With several
processes, only the first has a `StepPrompts`; every process rolls out and learns from its share of
the batch, so stream, buffer and creator see what they would with one.

Source: paper section 3.3.2 and appendix A (online eva); TRL's trainers for the losses.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PrinterCallback, get_scheduler

from harness.models.loading import (
    Checkpoint,
    fast_training,
    load_model,
    load_tokenizer,
    stop_token_ids,
)
from harness.training import distributed
from harness.training.distributed import (
    GivenOptimizer,
    SharedPolicy,
    save_optimizer,
    save_policy,
)
from harness.training.offline import Recorder, TrainingError, quiet
from harness.training.placement import Metrics, OnLog, Placement

OPTIMIZER = "optimizer.safetensors"

Policy = Checkpoint | SharedPolicy
"""The policy held by this process alone, or shared by all processes of the training."""

_ROLLOUTS = 3
"""Seeds a step's own rollouts; the stream's draws use other numbers in this position."""


@dataclass(frozen=True, kw_only=True)
class OnlineAlgorithm(ABC):
    """An algorithm that trains on rollouts: a loss and its training hyperparameters."""

    blocks: ClassVar[bool]
    """Whether its trainer orders a process's rollouts as all first ones, then all second ones,
    rather than grouped by prompt."""

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

    @abstractmethod
    def trainer(self, setup: OnlineSetup) -> Any: ...

    def arguments(self, segment: Segment, placed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that both TRL trainers take, including the placement's."""
        return {
            **placed,
            "max_steps": segment.steps,
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "max_grad_norm": self.max_grad_norm,
            "optim": self.optimizer,
            "beta": self.beta,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": 0,
            "seed": 0,  # every step sets its own seed
        }


@dataclass(frozen=True)
class Segment:
    """Steps `first` to `last` of a run, inclusive, counted from 1 over the whole run."""

    first: int
    last: int
    budgeted: bool = False
    """Whether it ends early once the source has spent its budget."""

    @property
    def steps(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class OnlineSetup:
    """The inputs from which an algorithm builds its trainer."""

    policy: Path
    reference: Path
    tokenizer: Any
    arguments: dict[str, Any]
    steps: Steps
    place: Placement

    def load(self) -> Any:
        """Load the policy; call this after creating TRL's arguments, which set up sharding."""
        model = load_model(self.policy)
        if self.place.attention is not None:
            model.set_attn_implementation(self.place.attention)
        return model

    def trainer(self, kind: Callable[..., Any], args: Any, model: Any = None, **more: Any) -> Any:
        """Return a TRL trainer for `model`, or for a newly loaded policy."""
        # The dataset only drives the trainer's steps; its prompts are replaced.
        clock = [{"prompt": [{"role": "user", "content": ""}]}] * self.steps.algorithm.minibatch
        return kind(
            model=self.load() if model is None else model,
            args=args,
            train_dataset=Dataset.from_list(clock),
            processing_class=self.tokenizer,
            **more,
        )


@dataclass(frozen=True)
class Drawn:
    """A step's P prompts and, if already rolled out, the token ids of P x N answers."""

    texts: Sequence[str]
    answers: Sequence[Sequence[Sequence[int]]] | None = None


class StepPrompts(Protocol):
    """Chooses the prompts of each step and rewards their rollouts."""

    @property
    def spent(self) -> bool:
        """Whether the budget of a budgeted segment is spent."""

    def draw(self, policy: Policy) -> Drawn:
        """Begin a step and return its prompts."""

    def reward(
        self, completions: Sequence[Sequence[str]], ended: NDArray[np.bool_], tokens: int
    ) -> NDArray[np.float64]:
        """Return the P x N rewards of a step's rollouts; `ended` says whether each ended itself."""

    def finish(self, policy: Policy) -> Metrics:
        """End the step, given the policy that rolled out, and return the metrics to log."""


class Steps:
    """The loss-independent part of every step, called by each process's trainer."""

    def __init__(
        self, source: StepPrompts | None, algorithm: OnlineAlgorithm, segment: Segment, seed: int
    ) -> None:
        """Begin a segment; `source` is None in all processes but the first."""
        self.algorithm = algorithm
        self.segment = segment
        self.metrics: Metrics = {}
        self.length = 0.0
        self.spent = False
        self._source = source
        self._seed = seed
        self._step = segment.first - 1
        self._prompts = 0
        self._answers: Sequence[Sequence[Sequence[int]]] | None = None

    def attach(self, policy: Policy) -> None:
        self._policy = policy
        self._stops = frozenset(stop_token_ids(policy.tokenizer))

    @property
    def own_rollouts(self) -> bool:
        """Whether rollouts come from `sample` rather than from TRL."""
        return self._answers is not None or isinstance(self._policy, SharedPolicy)

    def begin(self, repeat: int = 1) -> list[list[dict[str, str]]]:
        """Seed the next step and return this process's share of its conversations, repeated."""
        self._step += 1
        torch.manual_seed(self._number())
        drawn: Drawn = self._decided(lambda source: source.draw(self._policy))
        self._prompts, self._answers = len(drawn.texts), drawn.answers
        rows = [[{"role": "user", "content": text}] for text in drawn.texts for _ in range(repeat)]
        return distributed.local_shard(rows)

    def sample(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return this process's rollouts of the step, in the trainer's order, given prompt ids."""
        rows = len(prompts) * distributed.process_count()
        places = {int(row): place for place, row in np.ndenumerate(self._order(rows))}
        own = [places[row] for row in distributed.local_shard(range(rows))]
        if self._answers is not None:
            return [list(self._answers[prompt][number]) for prompt, number in own]
        assert isinstance(self._policy, SharedPolicy)
        root = self._number(_ROLLOUTS)
        return self._policy.sample(prompts, [(root, prompt, number) for prompt, number in own])

    def reward(self, prompts: Any, completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        """Reward a step's rollouts and end the step; has TRL's reward function signature."""
        rows = distributed.all_gather(list(zip(completions, completion_ids, strict=True)))

        def rewarded(source: StepPrompts) -> tuple[list[float], bool]:
            rewards = self._rewards(source, *zip(*rows, strict=True))
            self.metrics = source.finish(self._policy)
            return rewards, self.segment.budgeted and source.spent

        rewards, self.spent = self._decided(rewarded)
        return distributed.local_shard(rewards)

    def _decided(self, decide: Callable[[StepPrompts], Any]) -> Any:
        """Return the first process's decision; the others meanwhile serve its rollout requests."""
        policy = self._policy
        if self._source is None:
            assert isinstance(policy, SharedPolicy)
            return policy.follow()
        training = policy.model.training
        policy.model.eval()
        decision = decide(self._source)
        policy.model.train(training)
        if isinstance(policy, SharedPolicy):
            policy.dismiss(decision)
        return decision

    def _rewards(self, source: StepPrompts, completions: Any, completion_ids: Any) -> list[float]:
        stops = [[token in self._stops for token in ids] for ids in completion_ids]
        ended = np.array([any(row) for row in stops])
        tokens = sum(row.index(True) + 1 if any(row) else len(row) for row in stops)
        self.length = tokens / len(stops)
        texts = [completion[0]["content"].strip() for completion in completions]
        order = self._order(len(texts))
        rewards = np.empty(len(texts))
        rewards[order] = source.reward(
            [[texts[i] for i in row] for row in order], ended[order], tokens
        )
        if not np.isfinite(rewards).all():  # TRL would treat them as missing
            raise TrainingError(
                f"a reward at step {self._step} is not finite: check the reward model."
            )
        return [float(reward) for reward in rewards]

    def _order(self, rows: int) -> NDArray[np.int64]:
        """Return the P x N indices of each prompt's rollouts among the rows of all processes."""
        order: NDArray[np.int64] = np.arange(rows)
        if self.algorithm.blocks:  # blocks of each process's own prompts
            here = self._prompts // distributed.process_count()
            order = order.reshape(distributed.process_count(), -1, here).transpose(0, 2, 1)
        return order.reshape(self._prompts, -1)

    def _number(self, *purpose: int) -> int:
        """Return the step's seed for a purpose."""
        sequence = np.random.SeedSequence([self._seed, self._step, *purpose])
        return int(sequence.generate_state(1)[0])


class InSegment:
    """Mixin, listed before a TRL trainer, that continues the run's learning rate schedule."""

    steps: Steps

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        h, before = self.steps.algorithm, self.steps.segment.first - 1
        idle = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        whole = get_scheduler(h.schedule, idle, h.warmup_steps, h.schedule_steps)
        shape = whole.lr_lambdas[0]
        optimizer = optimizer or self.optimizer  # type: ignore[attr-defined]
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: shape(step + before)
        )
        return self.lr_scheduler


def train_segment(
    algorithm: OnlineAlgorithm,
    *,
    policy: Path,
    reference: Path,
    optimizer_state: Path | None,
    out_dir: Path,
    segment: Segment,
    source: StepPrompts | None,
    seed: int,
    on_log: OnLog,
    place: Placement,
) -> None:
    """Train one segment and write its policy and optimizer; every process calls this."""
    with quiet(), tempfile.TemporaryDirectory() as scratch:
        tokenizer = load_tokenizer(policy)
        steps = Steps(source, algorithm, segment, seed)
        arguments = algorithm.arguments(segment, place.arguments(scratch))
        trainer = algorithm.trainer(
            OnlineSetup(policy, reference, tokenizer, arguments, steps, place)
        )
        trainer.steps = steps
        trainer.add_callback(_SegmentRecorder(on_log, steps))
        if optimizer_state is not None:
            trainer.add_callback(GivenOptimizer(trainer, optimizer_state))
        trainer.remove_callback(PrinterCallback)
        if place.shared:
            share = place.share(algorithm.minibatch * algorithm.rollouts)
            steps.attach(SharedPolicy(trainer, tokenizer, algorithm, share))
        else:
            steps.attach(Checkpoint(trainer.model, tokenizer))
        with fast_training(trainer.model, place.attention):
            trainer.train()
        save_policy(trainer, tokenizer, policy, out_dir / "model", place, resumable=True)
        save_optimizer(trainer, out_dir / OPTIMIZER)


LOGGED: Mapping[str, str] = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "kl": "kl",
    "rewards/accuracies": "accuracy",
    "rewards/margins": "margin",
}
"""TRL metrics to record, and our names for them; rewards come from the source. `kl` is the
log-ratio to the reference per token, over the step's rollouts."""


class _SegmentRecorder(Recorder):
    def __init__(self, on_log: OnLog, steps: Steps) -> None:
        super().__init__(on_log, before=steps.segment.first - 1)
        self._steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= self._steps.spent

    def metrics(self, logs: Mapping[str, Any]) -> Metrics:
        logged = {name: float(logs[key]) for key, name in LOGGED.items() if key in logs}
        if "rewards/chosen" in logs and self._steps.length:  # first process only
            # TRL's own KL for online DPO counts padding. Its implicit rewards do not: they are beta
            # times a rollout's log-ratio, and every rollout is either chosen or rejected.
            both = float(logs["rewards/chosen"]) + float(logs["rewards/rejected"])
            logged["kl"] = both / (2 * self._steps.algorithm.beta * self._steps.length)
        return logged | self._steps.metrics
