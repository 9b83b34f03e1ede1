"""Odds-ratio preference optimisation, without a reference, through TRL's experimental trainer.

The model. With M(y) the mean of the log-probabilities of a completion's tokens, its end of turn
included, P(y) = exp M(y) and odds(y) = P(y) / (1 - P(y)), the loss of a pair is

    -M(y_w) - lambda * log sigmoid( log odds(y_w) - log odds(y_l) )

the likelihood of the chosen completion and, weighed by lambda, the odds ratio. TRL and ORPO's
published code take the first term over the prompt as well; the equation, and this module, over the
completion only (`experimental`). The rewards logged are lambda * M.

Source: Hong et al. 2024 (ORPO), section 4, equations 4, 6 and 7; paper appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from transformers import Trainer

from harness.training.experimental import ORPOConfig, ORPOTrainer
from harness.training.offline import OfflineAlgorithm, Setup


@dataclass(frozen=True, kw_only=True)
class ORPO(OfflineAlgorithm):
    """ORPO.

    Attributes:
        odds_weight: weight of the odds-ratio term (lambda; TRL calls it beta).
    """

    name: ClassVar[str] = "ORPO"

    odds_weight: float

    def trainer(self, setup: Setup) -> Trainer:
        args = ORPOConfig(**setup.arguments, beta=self.odds_weight, remove_unused_columns=False)
        return setup.trainer(ORPOTrainer, args)
