"""DPO with a negative log-likelihood of the chosen completion, weighed by its length.

The model. With NLL(y) = -log pi(y|x), summed over the |y| tokens of the completion, its end of turn
included, the term added to the DPO loss is the mean over the pairs of

    per_token         alpha * NLL(y_w) / |y_w|
    doubly_divided    alpha * NLL(y_w) / |y_w|^2

`per_token` is the ordinary cross-entropy. `doubly_divided` is what the authors' code computes under
the name of a length penalty: their mean over tokens is divided by the number of tokens once more,
so that at 500 tokens the term weighs 1/500 of an ordinary one.

The authors divide by the tokens of a micro-batch, which on their machines holds one pair, and TRL
(`loss_type=["sigmoid", "sft"]`) takes the mean over the tokens of a micro-batch. Both depend on how
a batch is cut to fit the hardware. Here each pair is divided by its own length, so nothing depends
on the cut, and at one pair for each micro-batch both of theirs are reproduced exactly.

Source: captions of the paper's tables 13 to 15; the authors' `eva/trainer.py` at d605e6f.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from trl.trainer.dpo_trainer import DPOTrainer

from harness.training.log_probabilities import watched

NLLForm = Literal["per_token", "doubly_divided"]

DIVISIONS: dict[str, int] = {"per_token": 1, "doubly_divided": 2}
"""How often each form divides by the length of the completion."""


class DPOWithNLLTrainer(DPOTrainer):  # type: ignore[misc]
    """DPO plus `weight` times the term above; logs the term without its weight as `nll_loss`."""

    def __init__(self, *args: Any, form: NLLForm, weight: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.divisions = DIVISIONS[form]
        self.weight = weight

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        """Return the loss of a micro-batch, a mean over its pairs."""
        with watched(model) as seen:
            loss: torch.Tensor = super().compute_loss(model, inputs)
        [log_probabilities] = seen
        chosen, _ = log_probabilities.sum(dim=1).chunk(2)  # TRL stacks chosen over rejected
        lengths, _ = inputs["completion_mask"].sum(dim=1).chunk(2)
        nll = -(chosen / lengths**self.divisions).mean()
        everywhere = self.accelerator.gather(nll.detach())
        self._metrics["train"]["nll_loss"].append(everywhere.mean().item())
        return loss + self.weight * nll
