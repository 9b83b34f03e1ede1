"""How online training is laid on a device, and who generates its rollouts.

On one device it is trained in this process, on several by a process for each under `accelerate`,
of which the first one draws the prompts of all (`shared_steps`). The rollouts of a step are cut
into as many shares; the number of devices divides them. Weights are float32, with bfloat16 under
autocast as offline (`placement`). RLOO can cut a share into micro-batches, all of which see the
same rollouts and together take one optimiser step; online DPO rolls out and learns in one pass, so
a share of its mini-batch is taken whole.

Rollouts come from the trainer's own model, or from a vLLM server (`rollout_server`) through TRL's
integration: TRL sends it the weights before each step. TRL decides how requests are put.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from harness.errors import UserError
from harness.training.placement import accumulation

FULL = (
    "a GPU's memory is full: lower `hardware.micro_batch` of `rloo`, switch on "
    "`hardware.gradient_checkpointing`, or shard over more `hardware.devices` (`fsdp.yaml`, "
    "`zero3.yaml`)"
)
"""What to say, and to do, where a training does not fit into memory."""

PATIENCE_S = 12 * 3600
"""Longest wait of a process for the others: the first one may be waiting for the creator. One that
ends is noticed at once, by who launched them."""

HOST = "127.0.0.1"
"""Servers of rollouts listen on this machine only."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where a running vLLM server is reached.

    Attributes:
        port: port of its requests.
        group_port: port over which the trainer sends it the weights.
        timeout_s: longest wait for it to answer at all.
    """

    port: int
    group_port: int
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class OnlinePlacement:
    """How online training is laid on a device.

    Attributes:
        device: `cpu`, or `cuda` for the first visible GPU, or one for each process.
        devices: processes, one for each device.
        dtype: number format of the forward and backward passes.
        attention: implementation of attention, by transformers' name; None takes transformers'
            choice.
        micro_batch: rollouts for one forward pass on a device; None takes its whole share.
        shared: whether the steps are those of several processes (`shared_steps`).
        gradient_checkpointing: compute activations again instead of keeping them.
        server: what generates rollouts; None is the trainer's own model.
    """

    device: str = "cpu"
    devices: int = 1
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: str | None = None
    micro_batch: int | None = None
    gradient_checkpointing: bool = False
    shared: bool = False
    server: Server | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that both of TRL's online trainers take."""
        return {
            "use_cpu": self.device == "cpu",
            "bf16": self.dtype == "bfloat16",
            "gradient_checkpointing": self.gradient_checkpointing,
            "dataloader_pin_memory": self.device != "cpu",
            **({"ddp_timeout": PATIENCE_S} if self.shared else {}),
            **({} if self.server is None else _served(self.server)),
        }

    def batches(self, rollouts: int) -> dict[str, int]:
        """Return how RLOO cuts the rollouts of a step.

        Raises:
            UserError: the devices or the micro-batch do not divide them.
        """
        micro = self.micro_batch or self.share(rollouts)
        return {
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": accumulation(rollouts, micro, self.devices),
        }

    def share(self, rows: int) -> int:
        """Return how many of a step's rollouts or prompts each device has.

        Raises:
            UserError: the devices do not divide them.
        """
        share, rest = divmod(rows, self.devices)
        if rest or not share:
            raise UserError(
                f"{rows} prompts or rollouts of a step cannot be shared by {self.devices} devices: "
                "set `hardware.devices` to a divisor."
            )
        return share


def one_device() -> str:
    """Return the device that a training in one process takes: `cuda` if there is a GPU, else `cpu`.

    Raises:
        UserError: several GPUs are visible, over which transformers would spread the training.
    """
    visible = torch.cuda.device_count()
    if visible > 1:
        raise UserError(
            f"`hardware.devices` is 1 and {visible} GPUs are visible: name one, as in "
            "`CUDA_VISIBLE_DEVICES=0 harness run ...`, or use more by `hardware.devices` and a "
            "configuration for several processes (`fsdp.yaml`, `zero3.yaml`)."
        )
    return "cuda" if visible else "cpu"


def _served(server: Server) -> dict[str, Any]:
    """Return the arguments by which TRL generates with a server."""
    return {
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_base_url": f"http://{HOST}:{server.port}",
        "vllm_server_timeout": server.timeout_s,
        "vllm_group_port": server.group_port,
    }
