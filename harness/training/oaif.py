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

from dataclasses import dataclass
from typing import Any, ClassVar

from harness.errors import UserError
from harness.models.loading import load_model, pad, tokenize
from harness.training.experimental import OnlineDPOConfig, OnlineDPOTrainer
from harness.training.online import InSegment, OnlineAlgorithm, OnlineSetup


@dataclass(frozen=True, kw_only=True)
class OAIF(OnlineAlgorithm):
    """OAIF: beta is the coefficient of the implicit reward."""

    blocks: ClassVar[bool] = True

    def trainer(self, setup: OnlineSetup) -> Any:
        if self.rollouts != 2:
            raise UserError(
                f"OAIF compares 2 rollouts of a prompt and the profile asks for {self.rollouts}: "
                "set `rollouts: 2`."
            )
        if self.beta == 0:
            raise UserError("OAIF's loss has no gradient with `beta: 0`: give a positive one.")
        place = setup.place
        prompts = place.share(self.minibatch)
        rollouts = prompts * self.rollouts
        if place.micro_batch not in (None, rollouts):
            raise UserError(
                f"OAIF takes all {rollouts} rollouts of a step on a device at once and its "
                f"micro-batch is {place.micro_batch}: set `hardware.micro_batch` to {rollouts} for "
                "`oaif`."
            )
        args = OnlineDPOConfig(
            **setup.arguments,
            per_device_train_batch_size=prompts,
            max_new_tokens=self.max_new_tokens,
            max_length=self.max_length,
            missing_eos_penalty=None,  # the source's rewards have it already
        )
        reference = load_model(setup.reference)
        return setup.trainer(_Trainer, args, reward_funcs=setup.steps.reward, ref_model=reference)


class _Trainer(InSegment, OnlineDPOTrainer):  # type: ignore[misc]
    """`OnlineDPOTrainer` with its prompts replaced, and its rollouts where others were made."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Take one step on the prompts that the source draws."""
        prompts = self.steps.begin()
        return super().training_step(model, {"prompt": prompts}, num_items_in_batch)

    def _generate(self, model: Any, prompts: Any, images: Any = None) -> tuple[Any, ...]:
        if not (self.steps.given or self.steps.own_draws):
            rolled_out: tuple[Any, ...] = super()._generate(model, prompts, images)
            return rolled_out
        ids = 2 * tokenize(self.processing_class, prompts, add_generation_prompt=True)
        device = str(self.accelerator.device)
        completions = self.steps.sample(ids)
        return (
            *pad(self.processing_class, ids, "left", device),
            *pad(self.processing_class, completions, "right", device),
            None,
        )
