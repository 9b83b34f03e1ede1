"""Losses against a reference, through TRL's `DPOTrainer`: DPO and SPPO.

*DPO*. For a pair (chosen y_w, rejected y_l) of a prompt x, with the log-ratio
D(y) = log pi(y|x) - log ref(y|x) summed over the completion's tokens, its `<end_of_turn>` included
and the prompt with its generation header excluded, the loss is

    -log sigmoid( beta * [ D(y_w) - D(y_l) ] )

*SPPO* with soft win probabilities. A completion's win probability P(y) is the chance that it beats
a completion drawn from the same policy, the mean over the prompt's completions, itself included as
a draw. With eta = 1 / beta the loss of a pair is

    1/2 * [ (D(y_w) - eta * (P(y_w) - 1/2))^2 + (D(y_l) - eta * (P(y_l) - 1/2))^2 ]

Every completion's log-ratio is pulled to its own target: unlike in DPO a chosen completion that
wins but little is raised but little.

TRL's `sppo_hard` fixes P(y_w) = 1 and P(y_l) = 0 and lacks the factor 1/2. The soft form is got
from it exactly, by moving the reference's log-probabilities by (P(y_w) - 1) / beta and
P(y_l) / beta, and the factor as TRL's weight of the loss. The rewards that TRL would log are moved
as well; those logged here are beta * D. At beta = 0.001 the loss of a pair starts at up to 250,000
(both targets 500 nats away), so gradients are always clipped.

Source: paper appendix A; Rafailov et al. 2023 (DPO), equation 7; Wu et al. 2024 (SPPO), equation
4.7 and its published trainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import Trainer
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from harness.training.offline import SIDES, OfflineAlgorithm, Setup

WIN_PROBABILITIES = ("p_chosen", "p_rejected")


@dataclass(frozen=True, kw_only=True)
class DPO(OfflineAlgorithm):
    """DPO; beta is the strength of the pull to the reference."""

    name: ClassVar[str] = "DPO"
    refers: ClassVar[bool] = True

    beta: float

    def trainer(self, setup: Setup) -> Trainer:
        return setup.trainer(DPOTrainer, DPOConfig(**setup.arguments, beta=self.beta))


@dataclass(frozen=True, kw_only=True)
class SPPO(OfflineAlgorithm):
    """SPPO; beta is 1 / eta, the inverse of the factor on win probabilities.

    Its pairs carry win probabilities, each in [0, 1], from a pairwise reward model.
    """

    name: ClassVar[str] = "SPPO"
    columns: ClassVar[tuple[str, ...]] = WIN_PROBABILITIES
    refers: ClassVar[bool] = True

    beta: float

    def trainer(self, setup: Setup) -> Trainer:
        args = DPOConfig(
            **setup.arguments,
            beta=self.beta,
            loss_type=["sppo_hard"],
            loss_weights=[0.5],
            remove_unused_columns=False,
        )
        return setup.trainer(SoftSPPOTrainer, args)


class SoftSPPOTrainer(DPOTrainer):  # type: ignore[misc]
    """`sppo_hard` against a reference moved by the win probabilities of each pair."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        collate: Any = self.data_collator  # type: ignore[has-type]

        def collate_both(examples: list[dict[str, Any]]) -> dict[str, Any]:
            batch: dict[str, Any] = collate(examples)
            for name in WIN_PROBABILITIES:
                batch[name] = torch.tensor([float(example[name]) for example in examples])
            return batch

        # Only now: before, the collator also serves the evaluation of the reference.
        self.data_collator = collate_both

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        moved = {name: value for name, value in inputs.items() if name not in WIN_PROBABILITIES}
        moved["ref_chosen_logps"] = moved["ref_chosen_logps"] + (inputs["p_chosen"] - 1) / self.beta
        moved["ref_rejected_logps"] = moved["ref_rejected_logps"] + inputs["p_rejected"] / self.beta
        # TRL keeps the log-probabilities to itself: sequences x (tokens - 1), 0 wherever the token
        # predicted does not belong to a completion.
        seen: list[torch.Tensor] = []
        hook = model.register_forward_hook(lambda _, inputs, output: seen.append(output.log_probs))
        loss: torch.Tensor = super().compute_loss(model, moved)
        hook.remove()
        sums = seen[0].detach().sum(dim=1).chunk(2)  # TRL stacks chosen over rejected
        chosen, rejected = (
            self.beta * (policy - inputs[f"ref_{side}_logps"])
            for side, policy in zip(SIDES, sums, strict=True)
        )
        for name, values in (
            ("chosen", chosen),
            ("rejected", rejected),
            ("margins", chosen - rejected),
            ("accuracies", (chosen > rejected).float()),
        ):
            # Replaces what TRL has just noted for this micro-batch, on all devices together.
            noted = self._metrics["train"][f"rewards/{name}"]
            noted[-1] = self.accelerator.gather(values).mean().item()
        return loss
