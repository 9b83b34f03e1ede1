"""TRL's experimental trainers, imported here and nowhere else, with their traps closed.

TRL may change or remove them in any release, so TRL is pinned (`PINNED`), a test says in plain
words when they move, and their losses are checked against arithmetic by hand. Online DPO's trainer
passes through as it is; in the others three things differ from TRL's own:

- *Tokens.* TRL appends the tokenizer's `<eos>` to each completion although the chat template has
  already ended the turn: one more token to learn and, in a mean over tokens, one more to count. It
  also cuts over-long completions, down to none, of which the mean is not a number. Here sequences
  are tokenised as `DPOTrainer` does it, so that all algorithms learn the same tokens; nothing is
  cut, because over-long pairs have been left out before.
- *ORPO's likelihood term.* TRL takes the mean over all tokens of a micro-batch, prompts included.
  Here it is the mean over the pairs of the completion's mean, as in the equation of ORPO's paper,
  and independent of how a batch is cut into micro-batches.
- *ORPO's odds.* A completion of probability 1, in float32, has infinite odds, and the gradient is
  not a number. Mean log-probabilities are kept a rounding error below 0, where it is finite.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import trl
from trl.import_utils import TRLExperimentalWarning

from harness.errors import HarnessError
from harness.models.reader import shared_prefix
from harness.training.offline import SIDES

PINNED = "1.16"
"""The series of TRL that this module was written and checked against."""

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TRLExperimentalWarning)
        from trl.experimental.cpo import CPOConfig, CPOTrainer
        from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer
        from trl.experimental.orpo import ORPOConfig
        from trl.experimental.orpo import ORPOTrainer as TRLORPOTrainer
except ImportError as error:
    raise HarnessError(
        f"TRL {trl.__version__} no longer has the experimental trainers of SimPO, ORPO and OAIF "
        f"({error}): install TRL {PINNED}."
    ) from error

__all__ = [
    "CPOConfig",
    "ORPOConfig",
    "ORPOTrainer",
    "OnlineDPOConfig",
    "OnlineDPOTrainer",
    "SimPOTrainer",
]

SURE = -torch.finfo(torch.float32).eps
"""Largest mean log-probability of which the odds and their gradient are finite in float32."""


class _TemplateTokens:
    """Tokenises pairs as the chat template renders them: nothing added, nothing cut."""

    processing_class: Any

    def tokenize_row(self, feature: dict[str, str], model: Any = None) -> dict[str, list[int]]:
        """Return ids, mask and labels of both sides of a pair given as rendered text.

        The prompt ends with the generation header; labels are -100 on it.
        """
        head = self._ids(feature["prompt"])
        sides = {side: self._ids(feature["prompt"] + feature[side]) for side in SIDES}
        shared = min(shared_prefix(head, ids) for ids in sides.values())
        row = {"prompt_input_ids": head[:shared], "prompt_attention_mask": [1] * shared}
        for side, ids in sides.items():
            row[f"{side}_input_ids"] = ids
            row[f"{side}_attention_mask"] = [1] * len(ids)
            row[f"{side}_labels"] = [-100] * shared + ids[shared:]
        return row

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.processing_class(text, add_special_tokens=False)["input_ids"]
        return ids


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
