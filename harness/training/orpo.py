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
from pathlib import Path

from harness.training.experimental import ORPOConfig, ORPOTrainer
from harness.training.loop import (
    OfflineHyperparameters,
    OnLog,
    Recorder,
    Setup,
    train_on_pairs,
)
from harness.training.pairs import Pairs
from harness.training.placement import Placement


@dataclass(frozen=True, kw_only=True)
class ORPOHyperparameters(OfflineHyperparameters):
    """Everything that shapes one ORPO training, apart from data, start and seed.

    Attributes:
        odds_weight: weight of the odds-ratio term (lambda; TRL calls it beta).
    """

    odds_weight: float


def train_orpo(
    model_path: Path,
    pairs: Pairs,
    out_dir: Path,
    hyper: ORPOHyperparameters,
    *,
    seed: int,
    on_log: OnLog,
    log_every: int = 1,
    device: str = "cpu",
    place: Placement | None = None,
) -> dict[str, float]:
    """Train a policy with ORPO and save it to `out_dir/model`.

    Args:
        model_path: checkpoint to start from; also the source of the tokenizer.
        pairs: rows with the texts `prompt`, `chosen` and `rejected`; other columns are ignored.
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
        TrainingError: no pair is left after the length filter, a loss is not finite, or the
            training stopped early.
        HarnessError: no checkpoint at `model_path`.
    """

    def build(setup: Setup) -> ORPOTrainer:
        return ORPOTrainer(
            model=setup.policy,
            args=ORPOConfig(**setup.arguments, beta=hyper.odds_weight, remove_unused_columns=False),
            train_dataset=setup.pairs,
            processing_class=setup.tokenizer,
            peft_config=setup.adapters,
        )

    return train_on_pairs(
        model_path,
        pairs,
        out_dir,
        hyper,
        build,
        Recorder(on_log, "ORPO"),
        seed=seed,
        log_every=log_every,
        device=device,
        place=place,
    )
