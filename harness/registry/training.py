"""How a profile trains: the hyperparameters of each algorithm, and the hardware and its layout.

Sources stand in the profiles, beside the numbers. Without a `hardware` section everything is
trained in the worker's own process in float32; with it under `accelerate`. What changes numbers
(number format, attention, LoRA, that last batches are filled up) is part of a stage's identity; how
devices share a batch is not. Online, one device and several differ: several draw otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.errors import UserError
from harness.project import PACKAGE
from harness.registry.recipe import Algorithm
from harness.strict import Strict, refuse

CONFIGURATIONS = PACKAGE / "training" / "accelerate"
"""The folder of configurations of `accelerate`."""

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Optimiser(Strict):
    learning_rate: Positive
    """Peak learning rate."""
    lr_scheduler: Literal["linear", "cosine", "constant_with_warmup"]
    warmup_ratio: float = Field(ge=0, lt=1)
    """Share of the steps that warm up."""
    max_length: Count
    """Longest prompt and completion together, in tokens."""
    optimizer: Literal["adamw_torch", "rmsprop"]
    weight_decay: float = Field(ge=0)
    """Decoupled weight decay."""
    max_grad_norm: Positive
    """Norm that gradients are clipped to."""


class Offline(Optimiser):
    """Trains on pairs of an iteration."""

    batch_size: Count
    """Pairs in an optimiser step, over all devices."""
    epochs: Positive
    """Passes over the pairs of an iteration."""
    max_prompt_length: Count | None = None
    """Longest prompt, in tokens; null sets no limit of its own."""


class Dpo(Offline):
    """Direct preference optimisation."""

    beta: Positive
    """Strength of the implicit KL constraint."""


class Sppo(Offline):
    """Self-play preference optimisation with soft win probabilities."""

    beta: Positive
    """1 / eta, the inverse of the factor on win probabilities."""


class Simpo(Offline):
    """Simple preference optimisation, without a reference."""

    beta: Positive
    """Scale of the mean log-probability."""
    gamma: float = Field(ge=0)
    """Target margin, absolute, not relative to beta."""


class Orpo(Offline):
    """Odds-ratio preference optimisation, without a reference."""

    odds_weight: Positive = Field(alias="lambda")
    """Weight of the odds-ratio term."""


class OnlineTraining(Optimiser):
    """Trains on rollouts of mini-batches in one continual run."""

    rollouts: int = Field(ge=2)
    """Rollouts of each prompt."""
    beta: float = Field(ge=0)
    """KL coefficient, or DPO's beta for OAIF."""
    temperature: Positive
    top_p: Share
    max_new_tokens: Count
    """Longest rollout, in tokens."""
    missing_eos_penalty: float = Field(ge=0)
    """Taken off the reward of a rollout that does not end."""
    schedule_size: Count
    """Prompts that the learning-rate schedule spans, in multiples of x."""
    segments: Count
    """Segments that x prompts are trained in. A run that was killed goes on from the last whole
    one; where a run is cut changes no number."""


class Training(Strict):
    dpo: Dpo | None = None
    sppo: Sppo | None = None
    simpo: Simpo | None = None
    orpo: Orpo | None = None
    rloo: OnlineTraining | None = None
    oaif: OnlineTraining | None = None

    def of(self, algorithm: str) -> Offline | OnlineTraining:
        found = getattr(self, algorithm) if algorithm in type(self).model_fields else None
        if found is None:
            raise UserError(f"there are no hyperparameters for `{algorithm}` in this profile")
        return found  # type: ignore[no-any-return]


class Lora(Strict):
    """Low-rank adapters, trained instead of the weights and merged into them at the end."""

    rank: Count
    alpha: Count
    """Scale; an adapter's product is multiplied by alpha / rank."""
    targets: tuple[str, ...] | Literal["all-linear"]
    """Names of the layers that get one, or all linear layers."""


class StageNeed(Strict):
    cpus: Count | None = None
    """Processor cores; null for `threads` where a model runs, and else one."""
    gpus: int | None = Field(default=None, ge=0)
    """GPUs; null for one where a model answers or scores, for `devices` where one is trained."""
    model_gpus: Count | None = None
    """Those of them over which vLLM or SGLang spreads one copy of a model that answers: with 8 GPUs
    and 1 here, eight copies share the prompts. Null for one copy over all."""

    @model_validator(mode="after")
    def _divides(self) -> StageNeed:
        each = self.model_gpus
        refuse(
            (each is not None and not self.gpus,
             "`model_gpus` needs `gpus` beside it, a multiple of it"),
            (each is not None and (self.gpus or 0) % each,
             f"`model_gpus` is {each}: `gpus` must be a multiple of it"),
        )  # fmt: skip
        return self


class Hardware(Strict):
    """What a profile's stages run on, and how large models are trained."""

    accelerate: Literal[
        "one-gpu.yaml", "fsdp.yaml", "cpu-one-process.yaml", "cpu-two-processes.yaml"
    ]
    """A configuration of `accelerate` in `harness/training/accelerate`."""
    devices: Count
    """Processes, one for each device."""
    micro_batch: Count | dict[Algorithm, Count]
    """Pairs, or online rollouts, for one forward pass on each device; in all or by algorithm."""
    gradient_checkpointing: bool
    """Compute activations again instead of keeping them."""
    checkpoint_every: Count
    """Updates between two checkpoints, from which a training that was killed goes on."""
    attention: Literal["eager", "sdpa", "flash_attention_2"]
    """Implementation of attention; Gemma-2 needs `eager` for its soft-capping."""
    lora: Lora | None = None
    """Adapters; null trains all weights."""
    stages: dict[str, StageNeed] = Field(default={})
    """What stages need, by kind, where that is not the usual."""
    asking: Count = 1
    """Most stages at once that ask creator, scorer or judge, beside those that need GPUs."""

    @model_validator(mode="after")
    def _fits(self) -> Hardware:
        single = self.accelerate in ("one-gpu.yaml", "cpu-one-process.yaml")
        refuse(
            (single != (self.devices == 1),
             f"`accelerate: {self.accelerate}` does not fit `devices: {self.devices}`: use "
             "one-gpu.yaml for one device, and fsdp.yaml to spread a model over several"),
        )  # fmt: skip
        return self

    @property
    def configuration(self) -> Path:
        return CONFIGURATIONS / self.accelerate

    @property
    def on_cpu(self) -> bool:
        return self.accelerate.startswith("cpu-")

    def micro_batch_of(self, algorithm: str) -> int | None:
        """Return the micro-batch of an algorithm, None where only others have one."""
        if isinstance(self.micro_batch, int):
            return self.micro_batch
        return {str(name): size for name, size in self.micro_batch.items()}.get(algorithm)

    def copies(self, kind: str, gpus: int) -> int:
        """Return how many copies of a model that answers share so many GPUs of a kind of stage."""
        said = self.stages.get(kind)
        return 1 if said is None or said.model_gpus is None else max(1, gpus // said.model_gpus)

    def numerics(self, dtype: str) -> dict[str, Any]:
        """Return what changes the numbers of a training on pairs, for its stage's settings."""
        return {
            "dtype": dtype,
            "attention": self.attention,
            "lora": None if self.lora is None else self.lora.model_dump(mode="json"),
            "last_batch": "filled",
        }

    def online_numerics(self, dtype: str) -> dict[str, Any]:
        """Return what changes the numbers of online training, for its stage's settings."""
        if self.lora is not None:
            raise UserError("online training has no adapters: take `hardware.lora` out.")
        told = {"dtype": dtype, "attention": self.attention, "rollouts": "transformers"}
        # One process draws a step's rollouts from one sequence of random numbers; several draw each
        # rollout from its own, so that there may be any number of them.
        return told | ({"draws": "by rollout"} if self.devices > 1 else {})
