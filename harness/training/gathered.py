"""Weights and moments that are spread over processes: gathered to be written, and given back.

What is written does not show how it was spread: weights as a checkpoint in float32, and moments as
`moments` writes them, by the number of the parameter. So a segment may go on on other devices.

- *Whole in each process* (processes alone): taken as they are.
- *FSDP*: each tensor is a `DTensor`, gathered one by one.
- *ZeRO-3*: DeepSpeed keeps float32 weights and moments in partitions, beside the bfloat16 weights
  that the model computes with. Its functions for each parameter read and set them. Were only the
  bfloat16 weights kept, most of what a segment learned would be lost to rounding at its end.

Gathering takes every process, and memory for one tensor at a time on each device.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase, TrainerCallback

from harness.models.loading import load_model
from harness.training import ranks
from harness.training.whole_model import filled, plain_loading

MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's, by the names of torch and DeepSpeed."""


def save_weights(
    trainer: Any, tokenizer: PreTrainedTokenizerBase, start: Path, folder: Path
) -> None:
    """Write the trained policy in float32; every process calls this, the first one writes.

    Args:
        trainer: the trainer, when it has trained.
        tokenizer: the policy's tokenizer.
        start: checkpoint that the training started from.
        folder: where to write.
    """
    if trainer.is_deepspeed_enabled:
        weights = _master_weights(trainer)
    else:
        weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if ranks.is_first():
        filled(start, weights).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def save_moments(trainer: Any, path: Path) -> None:
    """Write the optimiser's state; every process calls this, the first one writes."""
    kept = {
        name: value for name, value in _moments(trainer) if value is not None and ranks.is_first()
    }
    if ranks.is_first():
        save_file(kept, path)


class GivenMoments(TrainerCallback):  # type: ignore[misc]
    """Gives the optimiser the state that a segment left, once everything lies on its devices.

    Under ZeRO-3 also the weights in float32, of which the model took the nearest in bfloat16.
    """

    def __init__(self, trainer: Any, policy: Path, moments: Path | None) -> None:
        self._trainer = trainer
        self._policy = policy
        self._moments = moments

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the state; called in each process when weights and optimiser are in place."""
        if self._trainer.is_deepspeed_enabled:
            _set_master_weights(self._trainer, self._policy)
        if self._moments is not None:
            give_moments(self._trainer, self._moments)


def give_moments(trainer: Any, path: Path) -> None:
    """Set the optimiser's state to one that was written; every process calls this."""
    with safe_open(path, "pt") as file:
        if trainer.is_deepspeed_enabled:
            _set_partitioned_moments(trainer, file)
            return
        optimizer = trainer.optimizer
        parameters = _in_order(optimizer)
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key in file.keys():  # noqa: SIM118 (the file is no mapping)
            index, _, name = key.partition(".")
            value = _laid_like(file.get_tensor(key), parameters[int(index)])
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _moments(trainer: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield the whole moments one by one, on the processor; None in all processes but the first."""
    if trainer.is_deepspeed_enabled:
        yield from _partitioned_moments(trainer)
        return
    state = trainer.optimizer.state_dict()["state"]
    for index, kept in state.items():
        for name, value in kept.items():
            yield f"{index}.{name}", _on_first(_whole(value))


def _whole(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _on_first(value: torch.Tensor) -> torch.Tensor | None:
    return value.detach().cpu().contiguous() if ranks.is_first() else None


def _laid_like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a moment spread as its parameter is; a step's count is whole everywhere."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor) or value.ndim == 0:
        return value
    local = value.to(parameter.device)
    return distribute_tensor(local, parameter.device_mesh, parameter.placements)


def _in_order(optimizer: Any) -> list[torch.Tensor]:
    """Return the parameters in the order in which an optimiser numbers them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


# ZeRO-3.


def _numbered(trainer: Any) -> list[tuple[int, str, Any]]:
    """Return number, name and parameter as an optimiser of one process would number them."""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    decayed = set(trainer.get_decay_parameter_names(model))
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    ordered = [row for row in named if row[0] in decayed]
    ordered += [row for row in named if row[0] not in decayed]
    return [(i, name, parameter) for i, (name, parameter) in enumerate(ordered)]


def _master_weights(trainer: Any) -> dict[str, torch.Tensor]:
    from deepspeed.utils import safe_get_full_fp32_param

    weights = {}
    for _, name, parameter in _numbered(trainer):
        value = _on_first(safe_get_full_fp32_param(parameter))
        if value is not None:
            weights[name] = value
    return weights


def _set_master_weights(trainer: Any, policy: Path) -> None:
    from deepspeed.utils import safe_set_full_fp32_param

    with plain_loading():
        weights = dict(load_model(policy, "causal").named_parameters())
    for _, name, parameter in _numbered(trainer):
        value = weights[name].detach().to(parameter.device)
        safe_set_full_fp32_param(parameter, value)


def _partitioned_moments(trainer: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    from deepspeed.utils import safe_get_full_optimizer_state

    step = _steps_taken(trainer)
    for index, _, parameter in _numbered(trainer):
        for name in MOMENTS:
            value = safe_get_full_optimizer_state(parameter, name)
            yield f"{index}.{name}", _on_first(value)
        yield f"{index}.step", _on_first(torch.tensor(float(step)))


def _set_partitioned_moments(trainer: Any, file: Any) -> None:
    from deepspeed.utils import safe_set_full_optimizer_state

    step = float(file.get_tensor("0.step"))
    for flat in trainer.model_wrapped.optimizer.fp32_partitioned_groups_flat:
        # Before its first step the optimiser has no state.
        _inner(trainer).state[flat] = {
            "step": torch.tensor(step),
            **{name: torch.zeros_like(flat) for name in MOMENTS},
        }
    for index, _, parameter in _numbered(trainer):
        for name in MOMENTS:
            value = file.get_tensor(f"{index}.{name}").to(parameter.device)
            safe_set_full_optimizer_state(parameter, value, name)


def _steps_taken(trainer: Any) -> float:
    return max(float(kept["step"]) for kept in _inner(trainer).state.values())


def _inner(trainer: Any) -> Any:
    """Return the optimiser of torch that DeepSpeed runs on its partitions."""
    return trainer.model_wrapped.optimizer.optimizer
