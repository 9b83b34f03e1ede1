"""What several processes write together: checkpoints, and the trained policy.

A checkpoint counts when all of them have written their part.

The trained policy is a checkpoint like any other, however it was laid on devices. The weights are
gathered from all of them and put into the model they came from, on the processor of the first
process; adapters are merged into it. What is written is what every later stage loads: safetensors
and a tokenizer, nothing of the trainer's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback

from harness.models.loading import DTYPES, load_model
from harness.training.checkpoints import mark_whole
from harness.training.placement import Placement
from harness.training.whole_model import filled, plain_loading


class WholeCheckpoints(TrainerCallback):  # type: ignore[misc]
    """Marks a checkpoint when every process has written its part of it."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for the others; called in each process when its part is written."""
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            mark_whole(self._work, state.global_step)


def save_policy(
    trainer: Trainer,
    tokenizer: PreTrainedTokenizerBase,
    start: Path,
    folder: Path,
    place: Placement,
) -> None:
    """Write the trained policy; every process calls this, the first one writes.

    Args:
        trainer: the trainer, when it has trained.
        tokenizer: the policy's tokenizer.
        start: checkpoint that the training started from.
        folder: where to write.
        place: how the training was laid on devices.
    """
    accelerator = trainer.accelerator
    weights = accelerator.get_state_dict(trainer.model_wrapped)
    if accelerator.is_main_process:
        if place.lora is None:
            policy = filled(start, weights)
        else:
            with plain_loading():
                policy = load_model(start, "causal")
            policy = _merged(policy, accelerator.unwrap_model(trainer.model), weights)
        policy.to(DTYPES[place.dtype]).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    accelerator.wait_for_everyone()


def _merged(policy: Any, adapted: Any, weights: dict[str, Any]) -> Any:
    """Return a policy with the adapters of its adapted twin merged into it."""
    from peft import PeftModel

    with tempfile.TemporaryDirectory() as scratch:
        adapted.save_pretrained(scratch, state_dict=weights)
        return PeftModel.from_pretrained(policy, scratch).merge_and_unload()
