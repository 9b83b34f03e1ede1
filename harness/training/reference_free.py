"""Losses without a reference, through TRL's experimental trainers: SimPO and ORPO.

With M(y) the mean of the log-probabilities of a completion's tokens, its end of turn included, the
loss of a pair is, for *SimPO*,

    -log sigmoid( beta * M(y_w) - beta * M(y_l) - gamma )

gamma is absolute: the published SimPO code states it relative to beta, so that its ratio 0.5 at
beta = 10 is gamma = 5 here. The rewards logged are beta * M. For *ORPO*, with P(y) = exp M(y) and
odds(y) = P(y) / (1 - P(y)), it is

    -M(y_w) - lambda * log sigmoid( log odds(y_w) - log odds(y_l) )

the likelihood of the chosen completion and, weighed by lambda, the odds ratio. The rewards logged
are lambda * M.

TRL may change or remove these trainers in any release, so TRL is pinned, and the losses are checked
against arithmetic by hand. Three things differ from TRL's own:

- *Tokens.* TRL appends the tokenizer's `<eos>` to each completion although the chat template has
  already ended the turn: one more token to learn and, in a mean over tokens, one more to count. It
  also cuts over-long completions, down to none, of which the mean is not a number. Here sequences
  are tokenised as `DPOTrainer` does it, so that all algorithms learn the same tokens; nothing is
  cut, because over-long pairs have been left out before.
- *ORPO's likelihood term.* TRL, as ORPO's published code, takes the mean over all tokens of a
  micro-batch, prompts included. Here it is the mean over the pairs of the completion's mean, as in
  the equation of ORPO's paper, and independent of how a batch is cut into micro-batches.
- *ORPO's odds.* A completion of probability 1, in float32, has infinite odds, and the gradient is
  not a number. Mean log-probabilities are kept a rounding error below 0, where it is finite.

Source: Meng et al. 2024 (SimPO), equation 6; Hong et al. 2024 (ORPO), section 4, equations 4, 6 and
7; paper appendix A.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import Trainer
from trl.import_utils import TRLExperimentalWarning

from harness.models.reader import shared_prefix
from harness.training.offline import SIDES, OfflineAlgorithm, Setup

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TRLExperimentalWarning)
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.orpo import ORPOConfig
    from trl.experimental.orpo import ORPOTrainer as TRLORPOTrainer

SURE = -torch.finfo(torch.float32).eps
"""Largest mean log-probability of which the odds and their gradient are finite in float32."""


@dataclass(frozen=True, kw_only=True)
class SimPO(OfflineAlgorithm):
    """SimPO: `beta` scales the mean log-probability, `gamma` is the margin aimed at."""

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


@dataclass(frozen=True, kw_only=True)
class ORPO(OfflineAlgorithm):
    """ORPO; `odds_weight` is lambda, which TRL calls beta."""

    name: ClassVar[str] = "ORPO"

    odds_weight: float

    def trainer(self, setup: Setup) -> Trainer:
        args = ORPOConfig(**setup.arguments, beta=self.odds_weight, remove_unused_columns=False)
        return setup.trainer(ORPOTrainer, args)


class _TemplateTokens:
    """Tokenises pairs as the chat template renders them: nothing added, nothing cut."""

    processing_class: Any

    def tokenize_row(self, feature: dict[str, str], model: Any = None) -> dict[str, list[int]]:
        """Return ids, mask and labels of both sides of a pair given as rendered text.

        The prompt ends with the generation header; labels are -100 on it.
        """

        def ids_of(text: str) -> list[int]:
            return list(self.processing_class(text, add_special_tokens=False)["input_ids"])

        head = ids_of(feature["prompt"])
        sides = {side: ids_of(feature["prompt"] + feature[side]) for side in SIDES}
        shared = min(shared_prefix(head, ids) for ids in sides.values())
        row = {"prompt_input_ids": head[:shared], "prompt_attention_mask": [1] * shared}
        for side, ids in sides.items():
            row[f"{side}_input_ids"] = ids
            row[f"{side}_attention_mask"] = [1] * len(ids)
            row[f"{side}_labels"] = [-100] * shared + ids[shared:]
        return row


class SimPOTrainer(_TemplateTokens, CPOTrainer):  # type: ignore[misc]
    """TRL's CPO trainer, which has SimPO's loss, on the chat template's tokens."""


class ORPOTrainer(_TemplateTokens, TRLORPOTrainer):  # type: ignore[misc]
    """TRL's ORPO trainer on the chat template's tokens, with the paper's likelihood term."""

    def concatenated_forward(self, model: Any, batch: dict[str, Any]) -> tuple[Any, ...]:
        chosen, rejected, chosen_logits, rejected_logits, _, *router = super().concatenated_forward(
            model, batch
        )
        chosen, rejected = chosen.clamp(max=SURE), rejected.clamp(max=SURE)
        return chosen, rejected, chosen_logits, rejected_logits, -chosen.mean(), *router
