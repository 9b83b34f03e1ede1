"""How a training is laid on devices, and who generates its rollouts where it is online.

The model. An update averages the gradient over a batch of B pairs. On D devices with m pairs in a
forward pass, each device accumulates B / (m D) passes, so that the batch, and with it the result up
to rounding, is the same however it is cut. That needs every micro-batch to be full: the pairs are
padded to whole batches by some of them, drawn again by the stage's seed (`padded`). Libraries
repeat pairs too, but up to the micro-batches of all devices, so that the hardware would show.

Numbers. Weights, gradients and optimizer state are float32; with `bfloat16` the forward and
backward passes run under autocast. An update of 1e-7 would vanish in a bfloat16 weight, whose
neighbours are a part in 256 apart. It is TRL's default, and what the authors' DeepSpeed does with
float32 master weights. The trained policy is saved in the profile's format,
as theirs.

Attention is the profile's: Gemma-2's soft-capping is there in the eager implementation.

Online. The rollouts of a step are cut into a share for each device. RLOO can cut a share into
micro-batches, all of which see the same rollouts and together take one optimiser step; online DPO
rolls out and learns in one pass, so a share of its mini-batch is taken whole. Rollouts come from
the trainer's own model, or from vLLM in the trainer's process, through TRL's integration: TRL hands
it the weights before each step, and decides how requests are put. That has not been executed so
far, as no machine with a GPU and vllm was at hand; TRL's configurations take the arguments.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from harness.errors import UserError
from harness.registry.training import Lora
from harness.strict import Strict

Row = TypeVar("Row")

FULL = (
    "a GPU's memory is full: lower `hardware.micro_batch`, switch on "
    "`hardware.gradient_checkpointing`, shard over more `hardware.devices` (`fsdp.yaml`), or, "
    "offline, train adapters (`hardware.lora`)"
)
"""What to say, and to do, where a training does not fit into memory."""

PATIENCE_S = 12 * 3600
"""Longest wait of a process for the others: the first one may be waiting for the creator. One that
ends is noticed at once, by who launched them."""


class Placement(Strict):
    """How a training is laid on devices: by default as the embedded world's, in this process."""

    device: str = "cpu"
    """`cpu`, or `cuda` for the first visible GPU, or one for each process."""
    devices: int = 1
    """Processes, one for each device."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the forward and backward passes, and of a policy trained on pairs."""
    attention: str | None = None
    """Implementation of attention, by transformers' name; None takes transformers' choice."""
    gradient_checkpointing: bool = False
    """Compute activations again instead of keeping them."""

    work: Path | None = None
    """On pairs: the folder of checkpoints, curves and prepared data, which outlives a crash; None
    keeps none, and leaves a last batch as small as it is."""
    checkpoint_every: int = 1
    """On pairs: updates between two checkpoints."""
    lora: Lora | None = None
    """On pairs: adapters, merged into the weights at the end; None trains all weights."""

    micro_batch: int | None = None
    """Pairs or rollouts for one forward pass on a device; None takes its whole share of a step."""
    shared: bool = False
    """Online: whether each rollout has random numbers of its own, as several processes need."""
    rollouts_gpu_memory: float | None = None
    """Online: share of a GPU's memory in which vLLM rolls out; None is the trainer's own model."""

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
            arguments |= {
                "output_dir": str(self.work),
                "save_strategy": "steps",
                "save_steps": self.checkpoint_every,
                "model_init_kwargs": self._loading(),
            }
        if self.shared:
            arguments["ddp_timeout"] = PATIENCE_S
        if self.rollouts_gpu_memory is not None:
            if find_spec("vllm") is None:
                raise UserError(
                    "`hardware.rollouts_gpu_memory` needs the library vllm in the environment of "
                    "the training: install it with `python -m pip install -e '.[vllm]'`, or leave "
                    "it out to let the trainer generate."
                )
            arguments |= {
                "use_vllm": True,
                "vllm_mode": "colocate",
                "vllm_gpu_memory_utilization": self.rollouts_gpu_memory,
            }
        return arguments

    def _loading(self) -> dict[str, Any]:
        """Return the arguments by which TRL loads the policy, once it knows all others.

        Sharded training must be set up before a model is loaded, so the trainer loads it.
        """
        return {
            "dtype": "float32",
            "attn_implementation": self.attention,
            "device_map": None,  # the experimental trainers would spread it over all GPUs
            "use_safetensors": True,
            "local_files_only": True,
        }

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
        """Return how RLOO cuts the rollouts of a step."""
        micro = self.micro_batch or self.share(rollouts)
        return {
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": accumulation(rollouts, micro, self.devices),
        }

    def share(self, rows: int) -> int:
        """Return how many of a step's rollouts or prompts each device has."""
        share, rest = divmod(rows, self.devices)
        if rest or not share:
            raise UserError(
                f"{rows} prompts or rollouts of a step cannot be shared by {self.devices} devices: "
                "set `hardware.devices` to a divisor."
            )
        return share


PLAIN = Placement()
"""The embedded world's: float32 on the processor, a step's rollouts at once."""


def accumulation(batch: int, micro_batch: int, devices: int = 1) -> int:
    """Return the forward passes of each device in an update over a batch of pairs."""
    passes, rest = divmod(batch, micro_batch * devices) if micro_batch > 0 else (0, 0)
    if rest or passes < 1:
        on, choice = "", "choose a divisor"
        if devices > 1:
            on = f" on each of {devices} devices"
            choice = "choose a micro-batch that divides a device's share, or fewer devices"
        raise UserError(
            f"a batch of {batch} pairs cannot be made of micro-batches of {micro_batch}{on}: "
            f"{choice}."
        )
    return passes


def padded(rows: Sequence[Row], batch: int, seed: int) -> list[Row]:
    """Return rows padded to whole batches; the seed decides which rows are there twice."""
    missing = -len(rows) % batch
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    again = [order[i % len(rows)] for i in range(missing)]
    return [*rows, *(rows[i] for i in again)]


def one_device() -> str:
    """Return the device of a training in one process: `cuda` if there is a GPU, else `cpu`."""
    import torch

    visible = torch.cuda.device_count()
    if visible > 1:
        raise UserError(
            f"`hardware.devices` is 1 and {visible} GPUs are visible: name one, as in "
            "`CUDA_VISIBLE_DEVICES=0 harness run ...`, or use more by `hardware.devices` and a "
            "configuration for several processes (`fsdp.yaml`)."
        )
    return "cuda" if visible else "cpu"
