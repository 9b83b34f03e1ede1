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

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from harness.models.loading import load_model
from harness.training.dpo import precomputed
from harness.training.log_probabilities import watched
from harness.training.loop import (
    Metrics,
    OfflineHyperparameters,
    OnLog,
    Recorder,
    Setup,
    TrainingError,
    train_on_pairs,
)
from harness.training.pairs import SIDES, Pairs, read_pairs
from harness.training.placement import Placement

Collator = Callable[[list[dict[str, Any]]], dict[str, Any]]

WIN_PROBABILITIES = ("p_chosen", "p_rejected")

# Difference of summed log-probabilities that rounding can make, in nats; targets are hundreds.
STEP_ZERO_TOLERANCE = {"float32": 1e-2, "bfloat16": 2.0}


@dataclass(frozen=True, kw_only=True)
class SPPOHyperparameters(OfflineHyperparameters):
    """Everything that shapes one SPPO training, apart from data, start and seed.

    Attributes:
        beta: 1 / eta, the inverse of the factor on win probabilities.
        schedule: as for all, linear unless told.
        optimizer: as for all, RMSprop unless told.
    """

    beta: float
    schedule: str = "linear"
    optimizer: str = "rmsprop"


def train_sppo(
    model_path: Path,
    reference_path: Path,
    pairs: Pairs,
    out_dir: Path,
    hyper: SPPOHyperparameters,
    *,
    seed: int,
    on_log: OnLog,
    log_every: int = 1,
    device: str = "cpu",
    place: Placement | None = None,
) -> dict[str, float]:
    """Train a policy with SPPO and save it to `out_dir/model`.

    Args:
        model_path: checkpoint to start from; also the source of the tokenizer.
        reference_path: checkpoint of the reference.
        pairs: rows with the texts `prompt`, `chosen` and `rejected` and the win probabilities
            `p_chosen` and `p_rejected`, each in [0, 1]; other columns are ignored.
        out_dir: existing folder; receives `model/` (safetensors and tokenizer) and nothing else.
        hyper: hyperparameters.
        seed: seed of the order of the data.
        on_log: called with the number of finished updates and their metrics.
        log_every: updates between two calls of `on_log` (the first update is always logged).
        device: `cpu`, or `cuda` for the first visible GPU.
        place: how to lay a large model on devices; None trains in this process alone.

    Returns:
        The summary that `train_dpo` describes.

    Raises:
        TrainingError: a win probability is missing or not in [0, 1], policy and reference differ
            before training although they are the same checkpoint, and as for `train_dpo`.
        HarnessError: no checkpoint at one of the paths.
    """
    same = Path(model_path).resolve() == Path(reference_path).resolve()
    rows = read_pairs(pairs)
    _check_probabilities(rows)

    def build(setup: Setup) -> DPOTrainer:
        return SoftSPPOTrainer(
            model=setup.policy,
            ref_model=None if same else load_model(reference_path, "causal"),
            args=DPOConfig(
                **setup.arguments,
                beta=hyper.beta,
                loss_type=["sppo_hard"],
                loss_weights=[0.5],
                remove_unused_columns=False,
                **precomputed(hyper),
            ),
            train_dataset=setup.pairs,
            processing_class=setup.tokenizer,
            peft_config=setup.adapters,
        )

    return train_on_pairs(
        model_path,
        rows,
        out_dir,
        hyper,
        build,
        _Recorder(
            on_log,
            hyper.beta,
            expect_agreement=same,
            tolerance=STEP_ZERO_TOLERANCE["float32" if place is None else place.dtype],
        ),
        seed=seed,
        log_every=log_every,
        device=device,
        place=place,
        columns=WIN_PROBABILITIES,
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


class _Recorder(Recorder):
    """Also checks that policy and reference agree before training."""

    def __init__(
        self,
        on_log: OnLog,
        beta: float,
        *,
        expect_agreement: bool,
        tolerance: float = STEP_ZERO_TOLERANCE["float32"],
    ) -> None:
        super().__init__(on_log, "SPPO")
        self.beta = beta
        self.expect_agreement = expect_agreement
        self.tolerance = tolerance

    def check_first(self, metrics: Metrics) -> None:
        apart = max(abs(metrics[f"rewards/{side}"]) for side in SIDES) / self.beta
        if self.expect_agreement and apart > self.tolerance:
            raise TrainingError(
                f"policy and reference differ by {apart:.4f} nats before the first SPPO update "
                "although they are one checkpoint: rebuild the checkpoint and report this."
            )


def _check_probabilities(rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        for name in WIN_PROBABILITIES:
            value = row.get(name)
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise TrainingError(
                    f"pair {number} has {name} = {value}: SPPO needs the win probabilities "
                    "`p_chosen` and `p_rejected` in [0, 1], from a pairwise reward model."
                )
