"""Direct preference optimisation of a policy on pairs, through TRL's `DPOTrainer`.

The model. For a pair (chosen y_w, rejected y_l) of a prompt x the loss is

    -log sigmoid( beta * [ (log pi(y_w|x) - log ref(y_w|x)) - (log pi(y_l|x) - log ref(y_l|x)) ] )

with log-probabilities summed over the completion's tokens, its `<end_of_turn>` included and the
prompt with its generation header excluded. Before the first update policy and reference agree, so
the loss is log 2; this is checked, because a wrong reference is otherwise invisible. A term that
raises the likelihood of the chosen completion can be added (`nll`).

What is settled here rather than left to TRL's defaults, besides what all trainers share (`loop`):

- policy and reference are named by path (TRL would reload an unnamed reference from wherever the
  policy was once loaded);
- the reference's log-probabilities are computed once, before training: the reference is fixed, and
  this saves a forward pass in each epoch.

Source: paper appendix A; Rafailov et al. 2023, equation 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from harness.errors import UserError
from harness.models.loading import load_model
from harness.training.loop import (
    Metrics,
    OfflineHyperparameters,
    OnLog,
    Recorder,
    Setup,
    TrainingError,
    train_on_pairs,
)
from harness.training.nll import DIVISIONS, DPOWithNLLTrainer, NLLForm
from harness.training.pairs import Pairs
from harness.training.placement import Placement

__all__ = ["DPOHyperparameters", "TrainingError", "train_dpo"]

# Rounding between the precomputed reference and the first step, far below any real disagreement. In
# bfloat16, batches of other shapes can differ by a nat in a completion of many hundred tokens.
STEP_ZERO_TOLERANCE = {"float32": 1e-3, "bfloat16": 5e-2}


@dataclass(frozen=True, kw_only=True)
class DPOHyperparameters(OfflineHyperparameters):
    """Everything that shapes one DPO training, apart from data, start and seed.

    Attributes:
        beta: strength of the pull to the reference.
        nll: form of the likelihood term, `per_token` or `doubly_divided`; None adds none.
        nll_weight: weight of that term (alpha).
    """

    beta: float
    nll: NLLForm | None = None
    nll_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nll is not None and self.nll not in DIVISIONS:
            raise UserError(f"unknown nll form `{self.nll}`: use one of {', '.join(DIVISIONS)}.")


def train_dpo(
    model_path: Path,
    reference_path: Path,
    pairs: Pairs,
    out_dir: Path,
    hyper: DPOHyperparameters,
    *,
    seed: int,
    on_log: OnLog,
    log_every: int = 1,
    device: str = "cpu",
    place: Placement | None = None,
) -> dict[str, float]:
    """Train a policy with DPO and save it to `out_dir/model`.

    Args:
        model_path: checkpoint to start from; also the source of the tokenizer.
        reference_path: checkpoint of the reference.
        pairs: rows with the texts `prompt`, `chosen` and `rejected`; other columns are ignored.
        out_dir: existing folder; receives `model/` (safetensors and tokenizer) and nothing else.
        hyper: hyperparameters.
        seed: seed of the order of the data.
        on_log: called with the number of finished updates and their metrics.
        log_every: updates between two calls of `on_log` (the first update is always logged).
        device: `cpu`, or `cuda` for the first visible GPU.
        place: how to lay a large model on devices; None trains in this process alone.

    Returns:
        A summary that repeats exactly with the seed: `pairs` given, `too_long` left out,
        `trained_pairs`, `steps`, `loss_first`, `loss_last`, `accuracy_last`, `margin_last` (the
        last three are means over the last `log_every` updates).

    Raises:
        TrainingError: no pair is left after the length filter, the first loss is not log 2 although
            policy and reference are the same checkpoint, a loss is not finite, or the training
            stopped early.
        HarnessError: no checkpoint at one of the paths.
    """
    same = Path(model_path).resolve() == Path(reference_path).resolve()
    recorder = _Recorder(
        on_log,
        expect_log_2=same,
        nll_weight=0.0 if hyper.nll is None else hyper.nll_weight,
        tolerance=STEP_ZERO_TOLERANCE["float32" if place is None else place.dtype],
    )

    def build(setup: Setup) -> DPOTrainer:
        kind = DPOTrainer
        if hyper.nll is not None:
            kind = partial(DPOWithNLLTrainer, form=hyper.nll, weight=hyper.nll_weight)
        return kind(
            model=setup.policy,
            # With precomputed log-probabilities None means the policy as it was loaded.
            ref_model=None if same else load_model(reference_path, "causal"),
            args=DPOConfig(**setup.arguments, beta=hyper.beta, **precomputed(hyper)),
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
        recorder,
        seed=seed,
        log_every=log_every,
        device=device,
        place=place,
    )


def precomputed(hyper: OfflineHyperparameters) -> dict[str, int]:
    """Return the arguments by which the reference is evaluated once, before training."""
    return {
        "precompute_ref_log_probs": True,
        # Without gradients to keep, four times the batch fits into the same memory.
        "precompute_ref_batch_size": 4 * hyper.micro_batch_size,
    }


class _Recorder(Recorder):
    """Also checks that policy and reference agree before training."""

    def __init__(
        self,
        on_log: OnLog,
        *,
        expect_log_2: bool,
        nll_weight: float = 0.0,
        tolerance: float = STEP_ZERO_TOLERANCE["float32"],
    ) -> None:
        super().__init__(on_log, "DPO")
        self.expect_log_2 = expect_log_2
        self.nll_weight = nll_weight
        self.tolerance = tolerance

    def check_first(self, metrics: Metrics) -> None:
        loss = metrics["loss"] - self.nll_weight * metrics.get("nll_loss", 0.0)
        if self.expect_log_2 and abs(loss - math.log(2)) > self.tolerance:
            raise TrainingError(
                f"the first DPO loss is {loss:.4f} instead of log 2 = 0.6931, so policy and "
                "reference differ before training: rebuild the checkpoint and report this."
            )
