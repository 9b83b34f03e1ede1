"""Offline preference losses on TRL trainers: DPO, SPPO, SimPO and ORPO.

For a pair (chosen y_w, rejected y_l) of a prompt x, D(y) = log pi(y|x) - log ref(y|x) is summed
over the completion's tokens, including `<end_of_turn>` but not the prompt and its generation
header, and M(y) is the mean of their log-probabilities under pi.

*DPO*: the loss of a pair is

    -log sigmoid( beta * [ D(y_w) - D(y_l) ] )

*SPPO* with soft win probabilities. P(y) is the probability that y beats a completion drawn from the
same policy: the mean over the prompt's completions, including y itself as a tie. With
eta = 1 / beta, the loss of a pair is

    1/2 * [ (D(y_w) - eta * (P(y_w) - 1/2))^2 + (D(y_l) - eta * (P(y_l) - 1/2))^2 ]

Each completion's log-ratio is pulled to its own target: unlike in DPO, a chosen completion that
barely wins is barely raised.

TRL's `sppo_hard` fixes P(y_w) = 1 and P(y_l) = 0 and lacks the factor 1/2. Shifting the reference's
log-probabilities by (P(y_w) - 1) / beta and P(y_l) / beta gives exactly the soft form, with the
factor as TRL's loss weight. This would also shift the rewards that TRL logs, so beta * D is logged
instead. At beta = 0.001 the loss of a pair starts at up to 250,000 (both targets 500 nats away), so
gradients are always clipped.

*SimPO*:

    -log sigmoid( beta * M(y_w) - beta * M(y_l) - gamma )

gamma is absolute; the published SimPO code gives it relative to beta, so its ratio of 0.5 at
beta = 10 is gamma = 5 here. The logged rewards are beta * M.

*ORPO*, with P(y) = exp M(y) and odds(y) = P(y) / (1 - P(y)):

    -M(y_w) - lambda * log sigmoid( log odds(y_w) - log odds(y_l) )

that is, the likelihood of the chosen completion plus lambda times the odds-ratio term. The logged
rewards are lambda * M.

TRL's SimPO and ORPO trainers are experimental and may change or disappear in any release, so TRL is
pinned and the losses are tested against hand-computed values. Three things differ from TRL:

- *Tokens.* TRL appends the tokenizer's `<eos>` to each completion although the chat template has
  already ended the turn: an extra token to learn and to count in token means. It also truncates
  long completions, possibly to nothing, whose mean is NaN. Here sequences are tokenized as in
  `DPOTrainer`, so all algorithms learn the same tokens; nothing is truncated, because pairs that
  are too long have already been dropped.
- *ORPO's likelihood term.* TRL, like ORPO's published code, averages over all tokens of a
  micro-batch, prompts included. Here it is the mean over pairs of the completion's mean, as in the
  equation of the ORPO paper, and independent of how a batch is split into micro-batches.
- *ORPO's odds.* A completion of probability 1 in float32 has infinite odds and a NaN gradient. Mean
  log-probabilities are clamped to one rounding error below 0, where it is finite.

Source: paper appendix A; Rafailov et al. 2023 (DPO), equation 7; Wu et al. 2024 (SPPO), equation
4.7 and its published trainer; Meng et al. 2024 (SimPO), equation 6; Hong et al. 2024 (ORPO),
section 4, equations 4, 6 and 7.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import Trainer
from trl.import_utils import TRLExperimentalWarning
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from harness.models.reader import shared_prefix
from harness.training.offline import SIDES, OfflineAlgorithm, Setup

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TRLExperimentalWarning)
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.orpo import ORPOConfig
    from trl.experimental.orpo import ORPOTrainer as TRLORPOTrainer

WIN_PROBABILITIES = ("reward_chosen", "reward_rejected")
"""Columns of pairs that are win probabilities, where SPPO's reward model compares two answers."""

MAX_MEAN_LOGP = -torch.finfo(torch.float32).eps
"""Largest mean log-probability whose odds and their gradient are finite in float32."""


@dataclass(frozen=True, kw_only=True)
class DPO(OfflineAlgorithm):
    """DPO; `beta` is the strength of the pull toward the reference."""

    name: ClassVar[str] = "DPO"
    uses_reference: ClassVar[bool] = True

    beta: float

    def trainer(self, setup: Setup) -> Trainer:
        return setup.trainer(DPOTrainer, DPOConfig(**setup.arguments, beta=self.beta))


@dataclass(frozen=True, kw_only=True)
class SPPO(OfflineAlgorithm):
    """SPPO; `beta` is 1 / eta, the inverse of the factor on win probabilities."""

    name: ClassVar[str] = "SPPO"
    columns: ClassVar[tuple[str, ...]] = WIN_PROBABILITIES
    uses_reference: ClassVar[bool] = True

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
    """`sppo_hard` with the reference shifted by the win probabilities of each pair."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        collate: Any = self.data_collator  # type: ignore[has-type]

        def collate_both(examples: list[dict[str, Any]]) -> dict[str, Any]:
            batch: dict[str, Any] = collate(examples)
            for name in WIN_PROBABILITIES:
                batch[name] = torch.tensor([float(example[name]) for example in examples])
            return batch

        # Set last: `super().__init__` uses the collator to precompute the reference.
        self.data_collator = collate_both

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        moved = {name: value for name, value in inputs.items() if name not in WIN_PROBABILITIES}
        won, lost = (inputs[name] for name in WIN_PROBABILITIES)
        moved["ref_chosen_logps"] = moved["ref_chosen_logps"] + (won - 1) / self.beta
        moved["ref_rejected_logps"] = moved["ref_rejected_logps"] + lost / self.beta
        # TRL does not return the log-probabilities: sequences x (tokens - 1), 0 where the predicted
        # token is not part of a completion.
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
            # Replace what TRL just recorded for this micro-batch across all devices.
            noted = self._metrics["train"][f"rewards/{name}"]
            noted[-1] = self.accelerator.gather(values).mean().item()
        return loss


@dataclass(frozen=True, kw_only=True)
class SimPO(OfflineAlgorithm):
    """SimPO; `beta` scales the mean log-probability and `gamma` is the target margin."""

    name: ClassVar[str] = "SimPO"

    beta: float
    gamma: float

    def trainer(self, setup: Setup) -> Trainer:
        args = CPOConfig(
            **setup.arguments,
            loss_type="simpo",
            cpo_alpha=0.0,  # no CPO likelihood term in SimPO
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
    """Tokenizes pairs exactly as the chat template renders them: nothing added, nothing cut."""

    processing_class: Any

    def tokenize_row(self, feature: dict[str, str], model: Any = None) -> dict[str, list[int]]:
        """Return ids, mask and labels (-100 for the prompt) of both sides of a pair."""

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
    """TRL's CPO trainer, which implements SimPO's loss, on the chat template's tokens."""


class ORPOTrainer(_TemplateTokens, TRLORPOTrainer):  # type: ignore[misc]
    """TRL's ORPO trainer on the chat template's tokens, with the paper's likelihood term."""

    def concatenated_forward(self, model: Any, batch: dict[str, Any]) -> tuple[Any, ...]:
        chosen, rejected, chosen_logits, rejected_logits, _, *router = super().concatenated_forward(
            model, batch
        )
        chosen, rejected = chosen.clamp(max=MAX_MEAN_LOGP), rejected.clamp(max=MAX_MEAN_LOGP)
        return chosen, rejected, chosen_logits, rejected_logits, -chosen.mean(), *router
