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

from dataclasses import dataclass
from typing import Any, ClassVar

from trl.trainer.rloo_config import RLOOConfig
from trl.trainer.rloo_trainer import RLOOTrainer

from harness.training.online import InSegment, OnlineAlgorithm, OnlineSetup


@dataclass(frozen=True, kw_only=True)
class RLOO(OnlineAlgorithm):
    """RLOO: beta is the coefficient of the KL penalty."""

    blocks: ClassVar[bool] = False

    def trainer(self, setup: OnlineSetup) -> Any:
        args = RLOOConfig(
            **setup.arguments,
            **setup.place.batches(self.minibatch * self.rollouts),
            num_generations=self.rollouts,
            max_completion_length=self.max_new_tokens,
            vllm_max_model_length=self.max_length,
        )
        trained = setup.load()
        # TRL loads the reference from where the policy says it came from.
        trained.config._name_or_path = str(setup.reference)
        return setup.trainer(_Trainer, args, trained, reward_funcs=setup.steps.reward)


class _Trainer(InSegment, RLOOTrainer):  # type: ignore[misc]
    """`RLOOTrainer` with its prompts replaced, and its rollouts where others were made."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        prompts = self.steps.begin(repeat=self.num_generations)
        outputs: dict[str, Any] = super()._generate_and_score_completions(
            [{"prompt": prompt} for prompt in prompts]
        )
        return outputs

    def _generate_single_turn(self, prompt_ids: Any, images: Any, multimodal_fields: Any) -> Any:
        if not self.steps.given and (self.use_vllm or not self.steps.own_draws):
            return super()._generate_single_turn(prompt_ids, images, multimodal_fields)
        return self.steps.sample(prompt_ids)
