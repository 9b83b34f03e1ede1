"""Training of adapters on demonstrations, by TRL's supervised trainer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from safetensors.torch import save_file

from harness.models.loading import fast_training, load_model, load_tokenizer
from harness.registry.training import Lora
from harness.training.placement import Placement


def train_adapters(
    policy: Path,
    pairs: Iterable[tuple[str, str]],
    lora: Lora,
    out: Path,
    *,
    learning_rate: float,
    batch_size: int,
    max_length: int,
) -> None:
    """Train on prompts with their answers for one pass; write the factors, as bfloat16.

    In the file they are called `model.….lora_A.weight` and `….lora_B.weight`. The loss is on
    answers alone.

    Raises:
        UserError: peft is not installed.
    """
    from trl import SFTConfig, SFTTrainer

    place = Placement(lora=lora)
    rows = [
        {
            "prompt": [{"role": "user", "content": prompt}],
            "completion": [{"role": "assistant", "content": answer}],
        }
        for prompt, answer in pairs
    ]
    model = load_model(policy)
    with fast_training(model), TemporaryDirectory() as scratch:
        arguments = SFTConfig(
            **place.arguments(scratch),
            num_train_epochs=1,
            learning_rate=learning_rate,
            lr_scheduler_type="linear",
            per_device_train_batch_size=batch_size,
            max_length=max_length,
            warmup_steps=5,
            seed=0,
            optim="adamw_torch",
        )
        trainer = SFTTrainer(
            model,
            arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=load_tokenizer(policy),
            peft_config=place.adapters(),
        )
        trainer.train()
    learned = {
        name.removeprefix("base_model.model.").replace(".default", ""): value
        for name, value in trainer.model.state_dict().items()
        if "lora_" in name
    }
    save_file({name: value.to(torch.bfloat16).contiguous() for name, value in learned.items()}, out)
