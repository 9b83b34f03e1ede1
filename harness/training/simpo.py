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
from pathlib import Path

from harness.training.experimental import CPOConfig, SimPOTrainer
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
class SimPOHyperparameters(OfflineHyperparameters):
    """Everything that shapes one SimPO training, apart from data, start and seed.

    Attributes:
        beta: scale of the mean log-probability.
        gamma: target margin, absolute, in the units of beta times a log-probability.
    """

    beta: float
    gamma: float


def train_simpo(
    model_path: Path,
    pairs: Pairs,
    out_dir: Path,
    hyper: SimPOHyperparameters,
    *,
    seed: int,
    on_log: OnLog,
    log_every: int = 1,
    device: str = "cpu",
    place: Placement | None = None,
) -> dict[str, float]:
    """Train a policy with SimPO and save it to `out_dir/model`.

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

    def build(setup: Setup) -> SimPOTrainer:
        return SimPOTrainer(
            model=setup.policy,
            args=CPOConfig(
                **setup.arguments,
                loss_type="simpo",
                cpo_alpha=0.0,  # CPO's likelihood term, which SimPO has not
                beta=hyper.beta,
                simpo_gamma=hyper.gamma,
                remove_unused_columns=False,
            ),
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
        Recorder(on_log, "SimPO"),
        seed=seed,
        log_every=log_every,
        device=device,
        place=place,
    )
