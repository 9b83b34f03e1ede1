"""Direct preference optimisation of a policy on pairs, through TRL's `DPOTrainer`.

The model. For a pair (chosen y_w, rejected y_l) of a prompt x the loss is

    -log sigmoid( beta * [ (log pi(y_w|x) - log ref(y_w|x)) - (log pi(y_l|x) - log ref(y_l|x)) ] )

with log-probabilities summed over the completion's tokens, its `<end_of_turn>` included and the
prompt with its generation header excluded. Before the first update policy and reference agree, so
the loss is log 2; this is checked, because a wrong reference is otherwise invisible.

Source: paper appendix A; Rafailov et al. 2023, equation 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from harness.training.launch import Metrics
from harness.training.offline import OfflineAlgorithm, Setup, TrainingError

# Rounding between the precomputed reference and the first step, far below any real disagreement. In
# bfloat16, batches of other shapes can differ by a nat in a completion of many hundred tokens.
STEP_ZERO_TOLERANCE = {"float32": 1e-3, "bfloat16": 5e-2}


@dataclass(frozen=True, kw_only=True)
class DPO(OfflineAlgorithm):
    """DPO.

    Attributes:
        beta: strength of the pull to the reference.
    """

    name: ClassVar[str] = "DPO"

    beta: float

    def trainer(self, setup: Setup) -> DPOTrainer:
        args = DPOConfig(**setup.arguments, beta=self.beta, **precomputed(self))
        return setup.referring_trainer(DPOTrainer, args)

    def check_first(self, metrics: Metrics, dtype: str) -> None:
        if abs(metrics["loss"] - math.log(2)) > STEP_ZERO_TOLERANCE[dtype]:
            raise TrainingError(
                f"the first DPO loss is {metrics['loss']:.4f} instead of log 2 = 0.6931, so policy "
                "and reference differ before training: rebuild the checkpoint and report this."
            )


def precomputed(algorithm: OfflineAlgorithm) -> dict[str, Any]:
    """Return the arguments by which the reference is evaluated once, before training.

    It is fixed, and this saves a forward pass in each epoch.
    """
    return {
        "precompute_ref_log_probs": True,
        # Without gradients to keep, four times the batch fits into the same memory.
        "precompute_ref_batch_size": 4 * algorithm.micro_batch_size,
    }
