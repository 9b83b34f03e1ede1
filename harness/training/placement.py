"""How a training is laid on devices.

An update averages the gradient over a batch of B pairs. On D devices with m pairs in a forward
pass, each device accumulates B / (m D) passes, so that the batch, and with it the result up to
rounding, is the same however it is cut. That needs every micro-batch to be full: the pairs are
padded to whole batches by some of them, drawn again by the stage's seed (`filled`). Libraries
repeat pairs too, but up to the micro-batches of all devices, so that the hardware would show.

Weights, gradients and optimizer state are float32; with `bfloat16` the forward and backward passes
run under autocast. An update of 1e-7 would vanish in a bfloat16 weight, whose neighbours are a part
in 256 apart. It is TRL's default, and what the authors' DeepSpeed does with float32 master weights.
The trained policy is saved in the profile's format, as theirs.

Online, the rollouts of a step are cut into a share for each device. RLOO can cut a share into
micro-batches, all of which see the same rollouts and together take one optimiser step; online DPO
rolls out and learns in one pass, so a share of its mini-batch is taken whole.
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

FULL = (
    "a GPU's memory is full: lower `hardware.micro_batch`, switch on "
    "`hardware.gradient_checkpointing`, shard over more `hardware.devices` (`fsdp.yaml`), or, "
    "offline, train adapters (`hardware.lora`)"
)

PATIENCE_S = 12 * 3600
"""Longest wait of a process for the others: the first one may be waiting for the creator. One that
ends is noticed at once by the process that launched them."""


class Placement(Strict):
    """How a training is laid on devices: by default as the embedded world's, in this process."""

    device: Literal["cpu", "cuda"] = "cpu"
    devices: int = 1
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the forward and backward passes, and of a policy trained on pairs."""
    attention: str | None = None
    """Implementation of attention, by transformers' name; Gemma-2's soft-capping is there in the
    eager one. None takes transformers' choice."""
    gradient_checkpointing: bool = False
    micro_batch: int | None = None
    """Pairs or rollouts for one forward pass on a device; None takes its whole share of a step."""
    work: Path | None = None
    """On pairs: the folder of checkpoints, curves and prepared data, which outlives a crash; None
    keeps none, and leaves a last batch as small as it is."""
    checkpoint_every: int = 1
    lora: Lora | None = None
    """On pairs: adapters, merged into the weights at the end; None trains all weights."""
    shared: bool = False
    """Online: whether each rollout has random numbers of its own, as several processes need."""

    def arguments(self, scratch: str) -> dict[str, Any]:
        """Return the arguments that all of TRL's trainers take: quiet, and without other files."""
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
            # Sharded training must be set up before a model is loaded, so the trainer loads it.
            loading = {
                "dtype": "float32",
                "attn_implementation": self.attention,
                "device_map": None,  # the experimental trainers would spread it over all GPUs
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
            arguments["ddp_timeout"] = PATIENCE_S
        return arguments

    def adapters(self) -> Any:
        """Return the adapters as peft's configuration, None where there are none."""
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

    def batches(self, rollouts: int) -> dict[str, int]:
        micro = self.micro_batch or self.share(rollouts)
        return {
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": accumulation(rollouts, micro, self.devices),
        }

    def share(self, rows: int) -> int:
        share, rest = divmod(rows, self.devices)
        if rest or not share:
            raise UserError(
                f"{rows} prompts or rollouts of a step cannot be shared by {self.devices} devices: "
                "set `hardware.devices` to a divisor."
            )
        return share


PLAIN = Placement()


def accumulation(batch: int, micro_batch: int, devices: int = 1) -> int:
    """Return the forward passes of each device in an update over a batch of pairs."""
    passes, rest = divmod(batch, micro_batch * devices)
    if rest or not passes:
        raise UserError(
            f"a batch of {batch} pairs cannot be made of micro-batches of {micro_batch} on "
            f"{devices} device(s): choose a micro-batch that divides a device's share."
        )
    return passes


def filled(rows: Sequence[Row], batch: int, seed: int) -> list[Row]:
    """Return rows that fill whole batches; the seed decides which are there twice."""
    missing = -len(rows) % batch
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    return [*rows, *(rows[order[i % len(rows)]] for i in range(missing))]
