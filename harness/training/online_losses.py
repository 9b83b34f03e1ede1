"""Online losses on TRL trainers: RLOO and OAIF.

*RLOO*. Each of a prompt's N rollouts has an advantage over the mean reward of the other N - 1,

    A_i = R_i - mean of R_j over j != i,      R_i = r_i - beta * log(pi(y_i|x) / ref(y_i|x))

and the loss is minus the mean of the advantage times the ratio of the policy to itself before the
step, which is 1 here because every rollout is used for a single step. Here pi and ref are at the
sampling temperature, in OAIF at 1, so the two logged KL are not comparable.

*OAIF*, online DPO. A prompt is rolled out twice; the rollout with the higher reward is chosen, and
the loss is DPO's

    -log sigmoid( beta * [ log(pi(y_w|x) / ref(y_w|x)) - log(pi(y_l|x) / ref(y_l|x)) ] )

with the current policy as pi. On equal rewards, the first is chosen; if the two texts are also
identical, their gradients cancel. TRL's trainer is exact for two rollouts and supports no other
number; the authors' code also trains with two.

TRL prefetches prompts from a dataset, a batch ahead. Prompts created in one step must be trained on
in the next, so they are replaced just before TRL generates: for RLOO in a private method, whose
call order a test checks.

Source: paper section 4 and appendix A; Ahmadian et al. 2024, equation 6; Guo et al. 2024 (OAIF).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from trl.import_utils import TRLExperimentalWarning
from trl.trainer.rloo_config import RLOOConfig
from trl.trainer.rloo_trainer import RLOOTrainer

from harness.errors import UserError
from harness.models.loading import load_model, pad, tokenize
from harness.training.online import InSegment, OnlineAlgorithm, OnlineSetup

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TRLExperimentalWarning)
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer


@dataclass(frozen=True, kw_only=True)
class RLOO(OnlineAlgorithm):
    """RLOO; `beta` is the coefficient of the KL penalty."""

    blocks: ClassVar[bool] = False

    micro_batch: int | None = None

    def trainer(self, setup: OnlineSetup) -> Any:
        args = RLOOConfig(
            **setup.arguments,
            **setup.place.batches(self.minibatch * self.rollouts, self.micro_batch),
            num_generations=self.rollouts,
            max_completion_length=self.max_new_tokens,
        )
        trained = setup.load()
        # TRL loads the reference from the path in the policy's config.
        trained.config._name_or_path = str(setup.reference)
        return setup.trainer(_RLOOTrainer, args, trained, reward_funcs=setup.steps.reward)


class _RLOOTrainer(InSegment, RLOOTrainer):  # type: ignore[misc]
    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        prompts = self.steps.begin(repeat=self.num_generations)
        outputs: dict[str, Any] = super()._generate_and_score_completions(
            [{"prompt": prompt} for prompt in prompts]
        )
        return outputs

    def _generate_single_turn(self, prompt_ids: Any, images: Any, multimodal_fields: Any) -> Any:
        if self.steps.own_rollouts:
            return self.steps.sample(prompt_ids)
        return super()._generate_single_turn(prompt_ids, images, multimodal_fields)


@dataclass(frozen=True, kw_only=True)
class OAIF(OnlineAlgorithm):
    """OAIF; `beta` is the coefficient of the implicit reward."""

    blocks: ClassVar[bool] = True

    def trainer(self, setup: OnlineSetup) -> Any:
        if self.rollouts != 2 or self.beta == 0:
            raise UserError(
                f"OAIF compares 2 rollouts of a prompt, and has no gradient without a `beta`; the "
                f"profile has `rollouts: {self.rollouts}` and `beta: {self.beta}`."
            )
        prompts = setup.place.share(self.minibatch)
        if setup.place.micro_batch not in (None, 2 * prompts):
            raise UserError(
                f"OAIF takes all rollouts of a step on a device at once: set "
                f"`hardware.micro_batch` to {2 * prompts} for `oaif`."
            )
        args = OnlineDPOConfig(
            **setup.arguments,
            per_device_train_batch_size=prompts,
            max_new_tokens=self.max_new_tokens,
            max_length=self.max_length,
            missing_eos_penalty=None,  # already in the source's rewards
        )
        reference = load_model(setup.reference)
        return setup.trainer(
            _OAIFTrainer, args, reward_funcs=setup.steps.reward, ref_model=reference
        )


class _OAIFTrainer(InSegment, OnlineDPOTrainer):  # type: ignore[misc]
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        prompts = self.steps.begin()
        return super().training_step(model, {"prompt": prompts}, num_items_in_batch)

    def _generate(self, model: Any, prompts: Any, images: Any = None) -> tuple[Any, ...]:
        if not self.steps.own_rollouts:
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


ALGORITHMS: dict[str, type[OnlineAlgorithm]] = {"rloo": RLOO, "oaif": OAIF}
