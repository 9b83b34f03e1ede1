"""RLOO on prompts that are chosen for each step, through TRL's `RLOOTrainer`.

The model. Each of a prompt's N rollouts has an advantage over the mean reward of the other N - 1,

    A_i = R_i - mean of R_j over j != i,      R_i = r_i - beta * log(pi(y_i|x) / ref(y_i|x))

and the loss is minus the mean of the advantage times the ratio of the policy to itself before the
step, which is 1 here, since every rollout is used for one step only.

TRL takes prompts from a data set, a batch ahead. Prompts born in one step are to be trained on in
the next, so the prompts are replaced where TRL is about to generate: in a private method, which a
test holds to the sequence of births and steps.

Source: paper section 4.1 and appendix A; Ahmadian et al. 2024, equation 6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trl.trainer.rloo_config import RLOOConfig
from trl.trainer.rloo_trainer import RLOOTrainer

from harness.training.online import InSegment, Load, OnlineHyperparameters, clock
from harness.training.placement import OnlinePlacement
from harness.training.steps import SharedSteps, Steps

BLOCKS = False
"""TRL lays all rollouts of a prompt out together."""


class _Trainer(InSegment, RLOOTrainer):  # type: ignore[misc]
    """`RLOOTrainer` with its prompts replaced."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        prompts = self.steps.begin()
        inputs = [{"prompt": prompt} for prompt in prompts for _ in range(self.num_generations)]
        shard = self.steps.local_shard(inputs)
        outputs: dict[str, Any] = super()._generate_and_score_completions(shard)
        return outputs


class _SharedTrainer(_Trainer):
    """The trainer of several processes, whose rollouts have random numbers of their own."""

    steps: SharedSteps

    def _generate_single_turn(self, prompt_ids: Any, images: Any, multimodal_fields: Any) -> Any:
        if self.use_vllm:
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields)
        return self.steps.sample(prompt_ids)


def trainer(
    load: Load,
    reference: Path,
    tokenizer: Any,
    arguments: dict[str, Any],
    hyper: OnlineHyperparameters,
    steps: Steps,
    place: OnlinePlacement,
) -> Any:
    """Return the trainer of one segment (see `harness.training.online.train_segment`).

    Raises:
        UserError: the devices or the micro-batch do not divide the rollouts of a step.
    """
    args = RLOOConfig(
        **arguments,
        **place.batches(hyper.minibatch * hyper.rollouts),
        num_generations=hyper.rollouts,
        max_completion_length=hyper.max_new_tokens,
    )
    model = load()
    # TRL loads the reference from where the policy says it came from.
    model.config._name_or_path = str(reference)
    return (_SharedTrainer if place.shared else _Trainer)(
        model=model,
        reward_funcs=steps.reward,
        args=args,
        train_dataset=clock(hyper.minibatch),
        processing_class=tokenizer,
    )
