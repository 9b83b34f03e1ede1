"""How online training is laid on a device, and who generates its rollouts.

Online training has one process: the prompts of a step depend on the rewards of the one before, so
there is one stream of them. Its weights are float32, with bfloat16 under autocast as offline
(`placement`). RLOO can cut the rollouts of a step into micro-batches, all of which see the same
rollouts and together take one optimiser step; online DPO rolls out and learns in one pass, so its
mini-batch is taken whole.

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
    "`hardware.gradient_checkpointing`, or train a smaller policy: online training has one GPU"
)
"""What to say, and to do, where a training does not fit into memory."""

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
        device: `cpu`, or `cuda` for the first visible GPU.
        dtype: number format of the forward and backward passes.
        attention: implementation of attention, by transformers' name; None takes transformers'
            choice.
        micro_batch: rollouts for one forward pass; None takes all of a step.
        gradient_checkpointing: compute activations again instead of keeping them.
        server: what generates rollouts; None is the trainer's own model.
    """

    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] = "float32"
    attention: str | None = None
    micro_batch: int | None = None
    gradient_checkpointing: bool = False
    server: Server | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that both of TRL's online trainers take."""
        return {
            "use_cpu": self.device == "cpu",
            "bf16": self.dtype == "bfloat16",
            "gradient_checkpointing": self.gradient_checkpointing,
            "dataloader_pin_memory": self.device != "cpu",
            **({} if self.server is None else _served(self.server)),
        }

    def batches(self, rollouts: int) -> dict[str, int]:
        """Return how RLOO cuts the rollouts of a step.

        Raises:
            UserError: the micro-batch does not divide them.
        """
        micro = self.micro_batch or rollouts
        return {
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": accumulation(rollouts, micro),
        }


def one_device() -> str:
    """Return the device that a process trains on: `cuda` if there is a GPU, else `cpu`.

    Raises:
        UserError: several GPUs are visible, over which transformers would spread the training.
    """
    visible = torch.cuda.device_count()
    if visible > 1:
        raise UserError(
            f"online training uses one GPU and {visible} are visible: name one, as in "
            "`CUDA_VISIBLE_DEVICES=0 harness run ...`."
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
