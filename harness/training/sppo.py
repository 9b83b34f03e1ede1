"""Self-play preference optimisation with soft win probabilities, through TRL's `DPOTrainer`.

The model. A completion's win probability P(y) is the chance that it beats a completion drawn from
the same policy, the mean over the prompt's completions, itself included as a draw. With
D(y) = log pi(y|x) - log ref(y|x), summed over the completion's tokens, and eta = 1 / beta the loss
of a pair is

    1/2 * [ (D(y_w) - eta * (P(y_w) - 1/2))^2 + (D(y_l) - eta * (P(y_l) - 1/2))^2 ]

Every completion's log-ratio is pulled to its own target: unlike in DPO a chosen completion that
wins but little is raised but little.

TRL's `sppo_hard` fixes P(y_w) = 1 and P(y_l) = 0 and lacks the factor 1/2. The soft form is got
from it exactly, by moving the reference's log-probabilities by (P(y_w) - 1) / beta and
P(y_l) / beta, and the factor as TRL's weight of the loss. The rewards that TRL would log are moved
as well; those logged here are beta * D. At beta = 0.001 the loss of a pair starts at up to 250,000
(both targets 500 nats away), so gradients are always clipped.

Source: Wu et al. 2024 (SPPO), equation 4.7 and its published trainer; paper appendix A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from harness.training.dpo import precomputed
from harness.training.launch import Metrics
from harness.training.offline import SIDES, OfflineAlgorithm, Setup, TrainingError

Collator = Callable[[list[dict[str, Any]]], dict[str, Any]]

WIN_PROBABILITIES = ("p_chosen", "p_rejected")

# Difference of summed log-probabilities that rounding can make, in nats; targets are hundreds.
STEP_ZERO_TOLERANCE = {"float32": 1e-2, "bfloat16": 2.0}


@dataclass(frozen=True, kw_only=True)
class SPPO(OfflineAlgorithm):
    """SPPO. Its pairs carry win probabilities, each in [0, 1], from a pairwise reward model.

    Attributes:
        beta: 1 / eta, the inverse of the factor on win probabilities.
        schedule: as for all, linear unless told.
        optimizer: as for all, RMSprop unless told.
    """

    name: ClassVar[str] = "SPPO"
    columns: ClassVar[tuple[str, ...]] = WIN_PROBABILITIES

    beta: float
    schedule: str = "linear"
    optimizer: str = "rmsprop"

    def trainer(self, setup: Setup) -> DPOTrainer:
        """Return TRL's `sppo_hard` with soft win probabilities."""
        args = DPOConfig(
            **setup.arguments,
            beta=self.beta,
            loss_type=["sppo_hard"],
            loss_weights=[0.5],
            remove_unused_columns=False,
            **precomputed(self),
        )
        return setup.referring_trainer(SoftSPPOTrainer, args)

    def check_pairs(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for number, row in enumerate(rows):
            for name in WIN_PROBABILITIES:
                value = row.get(name)
                if not isinstance(value, int | float) or not 0 <= value <= 1:
                    raise TrainingError(
                        f"pair {number} has {name} = {value}: SPPO needs the win probabilities "
                        "`p_chosen` and `p_rejected` in [0, 1], from a pairwise reward model."
                    )

    def check_first(self, metrics: Metrics, dtype: str) -> None:
        apart = max(abs(metrics[f"rewards/{side}"]) for side in SIDES) / self.beta
        if apart > STEP_ZERO_TOLERANCE[dtype]:
            raise TrainingError(
                f"policy and reference differ by {apart:.4f} nats before the first SPPO update "
                "although they are one checkpoint: rebuild the checkpoint and report this."
            )


class SoftSPPOTrainer(DPOTrainer):  # type: ignore[misc]
    """`sppo_hard` against a reference moved by the win probabilities of each pair."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Only now: before, the collator also serves the evaluation of the reference.
        self.data_collator: Collator = _with_probabilities(self.data_collator)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        """Return the loss of a micro-batch, a mean over its pairs."""
        moved = {name: value for name, value in inputs.items() if name not in WIN_PROBABILITIES}
        moved["ref_chosen_logps"] = moved["ref_chosen_logps"] + (inputs["p_chosen"] - 1) / self.beta
        moved["ref_rejected_logps"] = moved["ref_rejected_logps"] + inputs["p_rejected"] / self.beta
        with watched(model) as seen:
            loss: torch.Tensor = super().compute_loss(model, moved)
        [log_probabilities] = seen
        sums = log_probabilities.detach().sum(dim=1).chunk(2)  # TRL stacks chosen over rejected
        chosen, rejected = (
            self.beta * (policy - inputs[f"ref_{side}_logps"])
            for side, policy in zip(SIDES, sums, strict=True)
        )
        self._correct("rewards/chosen", chosen)
        self._correct("rewards/rejected", rejected)
        self._correct("rewards/margins", chosen - rejected)
        self._correct("rewards/accuracies", (chosen > rejected).float())
        return loss

    def _correct(self, name: str, values: torch.Tensor) -> None:
        """Replace what TRL has just noted for this micro-batch, on all devices together."""
        self._metrics["train"][name][-1] = self.accelerator.gather(values).mean().item()


def _with_probabilities(collate: Collator) -> Collator:
    """Return a collator that adds the win probabilities to the tensors of a micro-batch."""

    def collate_both(examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = collate(examples)
        for name in WIN_PROBABILITIES:
            batch[name] = torch.tensor([float(example[name]) for example in examples])
        return batch

    return collate_both


@contextmanager
def watched(model: Any) -> Iterator[list[torch.Tensor]]:
    """Collect the log-probabilities that TRL computes in a forward pass and keeps to itself.

    Yields:
        A list that receives a tensor for each pass: sequences x (tokens - 1), 0 wherever the token
        predicted does not belong to a completion.
    """
    seen: list[torch.Tensor] = []
    handle = model.register_forward_hook(lambda _, inputs, output: seen.append(output.log_probs))
    try:
        yield seen
    finally:
        handle.remove()
