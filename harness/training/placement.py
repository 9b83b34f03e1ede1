"""How training is placed on devices.

An update averages the gradient over a batch of B pairs. On D devices with m pairs per forward pass,
each device accumulates B / (m D) passes, so the batch, and up to rounding the result, is the same
however it is split. That requires every micro-batch to be full: the last batch is filled with
repeated pairs, drawn with the stage's seed (`filled`). Libraries repeat pairs too, but only to fill
the micro-batches of all devices, so results would depend on the hardware.

Weights, gradients and optimizer state are float32; with `bfloat16`, the passes run under autocast:
an update of 1e-7 would vanish in a bfloat16 weight. This is TRL's default and equivalent to the
authors' DeepSpeed. The trained policy is saved in the profile's dtype, as theirs is.

Online, RLOO can split a device's share of the rollouts into micro-batches that together make one
optimizer step; online DPO generates and learns in one pass, so its share is processed whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from harness.errors import UserError
from harness.registry.training import Lora
from harness.strict import Strict

Row = TypeVar("Row")
Metrics = dict[str, float]
OnLog = Callable[[int, Metrics], None]

OUT_OF_MEMORY = (
    "a GPU's memory is full: lower `hardware.micro_batch`, switch on "
    "`hardware.gradient_checkpointing`, shard over more `hardware.devices` (`fsdp.yaml`), or, "
    "offline, train adapters (`hardware.lora`)"
)

TIMEOUT_S = 12 * 3600
"""Longest a process waits for the others, as the first may be waiting for the creator. The launcher
notices at once if a process exits."""


class Placement(Strict):
    """How training is placed on devices; the defaults are the embedded world's, in this process."""

    device: Literal["cpu", "cuda"] = "cpu"
    devices: int = 1
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Format of the forward and backward passes, and of the saved policy when trained on pairs."""
    attention: str | None = None
    """Attention implementation, by transformers' name; `eager` supports Gemma-2's soft-capping.
    None leaves the choice to transformers."""
    gradient_checkpointing: bool = False
    micro_batch: int | None = None
    """Pairs or rollouts per forward pass on a device; None means its whole share of a step."""
    work: Path | None = None
    """On pairs: folder of checkpoints, curves and prepared data, which survives a crash. With None,
    nothing is kept and a partial last batch is not filled."""
    checkpoint_every: int = 1
    lora: Lora | None = None
    """On pairs: adapters, merged into the weights at the end; None trains all weights."""
    shared: bool = False
    """Online: whether each rollout has its own random numbers, as several processes require."""

    def arguments(self, scratch: str) -> dict[str, Any]:
        """Return the arguments that all TRL trainers take: no console output and no stray files."""
        arguments = {
            "output_dir": scratch,
            "use_cpu": self.device == "cpu",
            "bf16": self.dtype == "bfloat16",
            "gradient_checkpointing": self.gradient_checkpointing,
            "dataloader_pin_memory": self.device != "cpu",
            "logging_steps": 1,
            "logging_nan_inf_filter": False,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
        }
        if self.work is not None:
            # The trainer loads the model: sharding must be set up first.
            loading = {
                "dtype": "float32",
                "attn_implementation": self.attention,
                "device_map": None,  # the experimental trainers would use all GPUs
                "use_safetensors": True,
                "local_files_only": True,
            }
            arguments |= {
                "output_dir": str(self.work),
                "save_strategy": "steps",
                "save_steps": self.checkpoint_every,
                "model_init_kwargs": loading,
            }
        if self.shared:
            arguments["ddp_timeout"] = TIMEOUT_S
        return arguments

    def adapters(self) -> Any:
        """Return the peft configuration of the adapters, or None without adapters."""
        if self.lora is None:
            return None
        try:
            from peft import LoraConfig
        except ImportError as error:
            raise UserError(
                f"`lora` needs the library peft ({error}): install it with "
                "`python -m pip install -e '.[lora]'`, or train all weights."
            ) from error
        targets = self.lora.targets
        return LoraConfig(
            r=self.lora.rank,
            lora_alpha=self.lora.alpha,
            target_modules=targets if isinstance(targets, str) else list(targets),
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
        )

    def batches(self, rollouts: int, micro_batch: int | None = None) -> dict[str, int]:
        micro = self.micro_batch or micro_batch or self.share(rollouts)
        return {
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": accumulation(rollouts, micro, self.devices),
        }

    def share(self, rows: int) -> int:
        share, rest = divmod(rows, self.devices)
        if rest or not share:
            raise UserError(
                f"{rows} prompts, pairs or rollouts of a step cannot be shared by {self.devices} "
                "devices: set `hardware.devices` to a divisor."
            )
        return share


PLAIN = Placement()


def accumulation(batch: int, micro_batch: int, devices: int = 1) -> int:
    """Return the number of forward passes per device in an update over a batch of pairs."""
    passes, rest = divmod(batch, micro_batch * devices)
    if rest or not passes:
        raise UserError(
            f"a batch of {batch} pairs cannot be made of micro-batches of {micro_batch} on "
            f"{devices} device(s): choose a micro-batch that divides a device's share."
        )
    return passes


def filled(rows: Sequence[Row], batch: int, seed: int) -> list[Row]:
    """Return the rows, some repeated to fill the last batch; the seed decides which."""
    missing = -len(rows) % batch
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    return [*rows, *(rows[order[i % len(rows)]] for i in range(missing))]
