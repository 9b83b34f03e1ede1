"""Simple preference optimisation, without a reference, through TRL's experimental CPO trainer.

The model. With M(y) the mean of the log-probabilities of a completion's tokens, its end of turn
included, the loss of a pair is

    -log sigmoid( beta * M(y_w) - beta * M(y_l) - gamma )

gamma is absolute: the published SimPO code states it relative to beta, so that its ratio 0.5 at
beta = 10 is gamma = 5 here. The rewards logged are beta * M.

Source: Meng et al. 2024 (SimPO), equation 6; paper appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from transformers import Trainer

from harness.training.experimental import CPOConfig, SimPOTrainer
from harness.training.offline import OfflineAlgorithm, Setup


@dataclass(frozen=True, kw_only=True)
class SimPO(OfflineAlgorithm):
    """SimPO.

    Attributes:
        beta: scale of the mean log-probability.
        gamma: target margin, absolute, in the units of beta times a log-probability.
    """

    name: ClassVar[str] = "SimPO"

    beta: float
    gamma: float

    def trainer(self, setup: Setup) -> Trainer:
        args = CPOConfig(
            **setup.arguments,
            loss_type="simpo",
            cpo_alpha=0.0,  # CPO's likelihood term, which SimPO has not
            beta=self.beta,
            simpo_gamma=self.gamma,
            remove_unused_columns=False,
        )
        return setup.trainer(SimPOTrainer, args)
