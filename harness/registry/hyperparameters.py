"""The hyperparameters of each algorithm, as a profile states them.

What every trainer has comes first, then what offline trainers add, then each algorithm's own
constants under the names the papers use. Sources stand in the profiles, beside the numbers.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from harness.errors import UserError
from harness.extensions import LOSSES, Extension
from harness.registry.recipe import Strict

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class Optimiser(Strict):
    """What every trainer has."""

    learning_rate: Positive
    """Peak learning rate."""
    lr_scheduler: Literal["linear", "cosine", "constant_with_warmup"]
    """Shape of the learning rate after warm-up."""
    warmup_ratio: Share
    """Share of the steps that warm up."""
    max_length: Count
    """Longest prompt and completion together, in tokens."""
    optimizer: Literal["adamw_torch", "rmsprop"]
    """Optimiser."""
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
    """Sampling temperature of rollouts."""
    top_p: Share
    """Nucleus of the sampling."""
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
    """Hyperparameters of each algorithm the profile offers."""

    dpo: Dpo | None = None
    """Hyperparameters of DPO."""
    sppo: Sppo | None = None
    """Hyperparameters of SPPO."""
    simpo: Simpo | None = None
    """Hyperparameters of SimPO."""
    orpo: Orpo | None = None
    """Hyperparameters of ORPO."""
    rloo: OnlineTraining | None = None
    """Hyperparameters of RLOO."""
    oaif: OnlineTraining | None = None
    """Hyperparameters of OAIF."""

    def of(self, algorithm: str) -> Offline | OnlineTraining:
        """Return the hyperparameters of an algorithm.

        Raises:
            UserError: The profile does not have it.
        """
        found = getattr(self, algorithm) if algorithm in type(self).model_fields else None
        if found is None:
            raise UserError(f"there are no hyperparameters for `{algorithm}` in this profile")
        return found  # type: ignore[no-any-return]


def _offer(name: str, loss: Extension) -> None:
    """Let profiles state the hyperparameters of a plug-in's loss: those of the one it is like."""
    kind = Training.model_fields[str(loss.options["like"])].annotation
    described = f"Hyperparameters of {name}, a loss of the plug-in {loss.plugin}."
    Training.model_fields[name] = FieldInfo(annotation=kind, default=None, description=described)
    Training.model_rebuild(force=True)


LOSSES.watch(_offer)
