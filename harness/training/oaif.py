"""OAIF: online DPO on prompts that are chosen for each step, through TRL's `OnlineDPOTrainer`.

The model. A prompt is rolled out twice; the rollout of the higher reward is the chosen one, and
the loss is DPO's

    -log sigmoid( beta * [ log(pi(y_w|x) / ref(y_w|x)) - log(pi(y_l|x) / ref(y_l|x)) ] )

with the policy as it is as pi. Where both have the same reward the first counts as chosen; if the
two are also the same text, their gradients cancel.

TRL's trainer is exact for two rollouts and knows no other number, which is also what the authors'
code trains with. Its prompts are replaced at the start of a step (`training_step`).

Source: paper section 4.1 and appendix A; Guo et al. 2024 (OAIF).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.models.loading import load_model
from harness.training.experimental import OnlineDPOConfig, OnlineDPOTrainer
from harness.training.online import InSegment, OnlineHyperparameters, clock
from harness.training.online_placement import OnlinePlacement
from harness.training.steps import Steps

BLOCKS = True
"""TRL lays out all first rollouts, then all second ones."""


class _Trainer(InSegment, OnlineDPOTrainer):  # type: ignore[misc]
    """`OnlineDPOTrainer` with its prompts replaced."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Take one step on the prompts that the source draws."""
        return super().training_step(model, {"prompt": self.steps.begin()}, num_items_in_batch)


def trainer(
    model: Any,
    reference: Path,
    tokenizer: Any,
    arguments: dict[str, Any],
    hyper: OnlineHyperparameters,
    steps: Steps,
    place: OnlinePlacement,
) -> Any:
    """Return the trainer of one segment (see `harness.training.online.train_segment`).

    Raises:
        UserError: another number of rollouts than 2, a beta of 0, or a micro-batch smaller than the
            rollouts of a step.
    """
    if hyper.rollouts != 2:
        raise UserError(
            f"OAIF compares 2 rollouts of a prompt and the profile asks for {hyper.rollouts}: set "
            "`rollouts: 2`."
        )
    if hyper.beta == 0:
        raise UserError("OAIF's loss has no gradient with `beta: 0`: give a positive one.")
    rollouts = hyper.minibatch * hyper.rollouts
    if place.micro_batch not in (None, rollouts):
        raise UserError(
            f"OAIF takes all {rollouts} rollouts of a step at once and its micro-batch is "
            f"{place.micro_batch}: set `hardware.micro_batch` to {rollouts} for `oaif`."
        )
    return _Trainer(
        model=model,
        ref_model=load_model(reference, "causal"),
        reward_funcs=steps.reward,
        args=OnlineDPOConfig(
            **arguments,
            per_device_train_batch_size=hyper.minibatch,
            max_new_tokens=hyper.max_new_tokens,
            max_length=hyper.max_length,
            missing_eos_penalty=None,  # the source's rewards have it already
        ),
        train_dataset=clock(hyper.minibatch),
        processing_class=tokenizer,
    )
