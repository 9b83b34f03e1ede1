"""How a profile trains: each algorithm's hyperparameters, and the hardware and its layout.

Without `hardware`, training runs in the worker's own process in float32; with it, under
`accelerate`. What changes numbers (dtype, attention, LoRA, filled last batches) is part of a
stage's identity; how devices share a batch is not. Online, one device and several differ, since
several draw rollouts differently.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.errors import UserError
from harness.extensions import LOSSES
from harness.project import PACKAGE
from harness.registry.recipe import Algorithm
from harness.strict import Strict

CONFIGURATIONS = PACKAGE / "training" / "accelerate"
"""Folder of `accelerate` configurations."""

Positive = Annotated[float, Field(gt=0)]
Nucleus = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Optimizer(Strict):
    learning_rate: Positive
    """Peak learning rate."""
    lr_scheduler: Literal["linear", "cosine", "constant_with_warmup"]
    warmup_ratio: float = Field(ge=0, lt=1)
    """Fraction of steps used for warm-up."""
    max_length: Count
    """Maximum length of prompt plus completion, in tokens.

    Online, OAIF's loss drops the first tokens of a longer prompt, and RLOO has no limit.
    """
    optimizer: Literal["adamw_torch", "rmsprop"]
    weight_decay: float = Field(ge=0)
    """Decoupled weight decay."""
    max_grad_norm: Positive
    """Gradient clipping norm."""


class Offline(Optimizer):
    batch_size: Count
    """Pairs per optimizer step, over all devices."""
    epochs: Positive
    """Passes over an iteration's pairs."""
    max_prompt_length: Count | None = None
    """Maximum prompt length, in tokens; null for no separate limit."""


class Dpo(Offline):
    """Direct preference optimization."""

    beta: Positive
    """Strength of the implicit KL constraint."""


class Sppo(Offline):
    """Self-play preference optimization with soft win probabilities."""

    beta: Positive
    """1 / eta, the inverse of the factor on win probabilities."""


class Simpo(Offline):
    """Simple preference optimization, reference-free."""

    beta: Positive
    """Scale of the mean log-probability."""
    gamma: float = Field(ge=0)
    """Target margin; absolute, not relative to beta."""


class Orpo(Offline):
    """Odds-ratio preference optimization, reference-free."""

    odds_weight: Positive = Field(alias="lambda")
    """Weight of the odds-ratio term."""


class OnlineTraining(Optimizer):
    """Training on rollouts of mini-batches in one continual run."""

    rollouts: int = Field(ge=2)
    """Rollouts per prompt."""
    beta: float = Field(ge=0)
    """KL coefficient, or DPO's beta for OAIF."""
    temperature: Positive
    top_p: Nucleus
    max_new_tokens: Count
    """Maximum rollout length, in tokens."""
    missing_eos_penalty: float = Field(ge=0)
    """Subtracted from the reward of a rollout without EOS."""
    schedule_size: Count
    """Prompts spanned by the learning-rate schedule, in multiples of x."""
    segments: Count
    """Training segments per x prompts. A killed run resumes after its last complete segment; where
    a run is cut does not affect results, except with the oracle."""


class Rloo(OnlineTraining):
    micro_batch: Count | None = None
    """Rollouts per forward pass on a processor; null takes all of a step at once."""


def like(algorithm: str) -> str:
    """Return the shipped algorithm whose settings a plug-in's loss has; a shipped one itself."""
    added = LOSSES.added(algorithm)
    return algorithm if added is None else str(added.options["like"])


class Training(Strict):
    dpo: Dpo | None = None
    sppo: Sppo | None = None
    simpo: Simpo | None = None
    orpo: Orpo | None = None
    rloo: Rloo | None = None
    oaif: OnlineTraining | None = None

    def get(self, algorithm: str) -> Offline | OnlineTraining | None:
        """Return an algorithm's hyperparameters; a plug-in's loss has those of what it is like."""
        return getattr(self, like(algorithm), None)

    def of(self, algorithm: str) -> Offline | OnlineTraining:
        if (found := self.get(algorithm)) is None:
            raise UserError(f"there are no hyperparameters for `{algorithm}` in this profile")
        return found


class Lora(Strict):
    """Low-rank adapters, trained instead of the weights and merged at the end."""

    rank: Count
    alpha: Count
    """Scale: an adapter's product is multiplied by alpha / rank."""
    targets: tuple[str, ...] | Literal["all-linear"]
    """Names of the adapted layers, or all linear layers."""


class Hardware(Strict):
    """What a profile's stages run on, and how its models are trained."""

    accelerate: Literal[
        "one-gpu.yaml", "fsdp.yaml", "cpu-one-process.yaml", "cpu-two-processes.yaml"
    ]
    """An `accelerate` configuration in `harness/training/accelerate`."""
    devices: Count
    """Processes, one per device."""
    micro_batch: Count | dict[Algorithm, Count]
    """Pairs, or online rollouts, per forward pass on each device; for all algorithms or by
    algorithm."""
    gradient_checkpointing: bool
    """Recompute activations instead of storing them."""
    checkpoint_every: Count
    """Updates between checkpoints, from which a killed training resumes."""
    attention: Literal["eager", "sdpa", "flash_attention_2"]
    """Attention implementation; Gemma-2 needs `eager` for its soft-capping."""
    lora: Lora | None = None
    """Adapters; null trains all weights."""

    @model_validator(mode="after")
    def _fits(self) -> Hardware:
        single = self.accelerate in ("one-gpu.yaml", "cpu-one-process.yaml")
        if single != (self.devices == 1):
            raise ValueError(
                f"`accelerate: {self.accelerate}` does not fit `devices: {self.devices}`: use "
                "one-gpu.yaml for one device, and fsdp.yaml to spread a model over several"
            )
        return self

    @property
    def configuration(self) -> Path:
        return CONFIGURATIONS / self.accelerate

    @property
    def on_cpu(self) -> bool:
        return self.accelerate.startswith("cpu-")

    def micro_batch_of(self, algorithm: str) -> int | None:
        """Return an algorithm's micro-batch, or None if only others have one."""
        if isinstance(self.micro_batch, int):
            return self.micro_batch
        return self.micro_batch.get(algorithm, self.micro_batch.get(like(algorithm)))

    def numerics(self, dtype: str) -> dict[str, Any]:
        """Return what affects the results of offline training, for its stage's identity."""
        return {
            "dtype": dtype,
            "attention": self.attention,
            "lora": None if self.lora is None else self.lora.model_dump(mode="json"),
            "last_batch": "filled",
        }

    def online_numerics(self, dtype: str) -> dict[str, Any]:
        """Return what affects the results of online training, for its stage's identity."""
        if self.lora is not None:
            raise UserError("online training has no adapters: take `hardware.lora` out.")
        told = {"dtype": dtype, "attention": self.attention, "rollouts": "transformers"}
        # One process draws a step's rollouts from a single random stream; several give each rollout
        # its own, so that results do not depend on their number.
        return told | ({"draws": "by rollout"} if self.devices > 1 else {})
