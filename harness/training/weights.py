"""What a training leaves behind, whole and as safetensors: the policy and the optimizer's state.

The trainers' own checkpoints are pickles, which are not to be read from anybody. What is written
here is what every later stage loads, and it does not show how it was spread over processes:
weights as a checkpoint like any other (adapters merged into it), the optimizer's state as one
tensor for each parameter and moment (AdamW's running means), by the number of the parameter. So a
segment may go on on other devices.

- *Whole in each process*: taken as it is.
- *FSDP*: each tensor is a `DTensor`, gathered one by one.
- *ZeRO-3*: DeepSpeed keeps float32 weights and moments in partitions, beside the bfloat16 weights
  that the model computes with. Its functions for each parameter read and set them. Were only the
  bfloat16 weights kept, most of what a segment learned would be lost to rounding at its end.

Gathering takes every process, and memory for one tensor at a time on each device.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase, TrainerCallback

from harness.errors import HarnessError
from harness.models.loading import DTYPES, load_model
from harness.training import distributed
from harness.training.placement import Placement

MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's, by the names of torch and DeepSpeed."""


def save_policy(
    trainer: Any,
    tokenizer: PreTrainedTokenizerBase,
    start: Path,
    folder: Path,
    place: Placement,
    *,
    to_go_on: bool = False,
) -> None:
    """Write the policy that was trained from a checkpoint; every process calls this.

    The first process writes. `to_go_on` writes float32 with all that was learned, whatever the
    placement's number format.
    """
    accelerator = trainer.accelerator
    if to_go_on and trainer.is_deepspeed_enabled:
        weights = _master_weights(trainer)
    else:
        weights = accelerator.get_state_dict(trainer.model_wrapped)
    if distributed.is_first():
        if place.lora is None:
            policy = whole_model(start, weights)
        else:
            with plain_loading():
                policy = load_model(start)
            policy = _merged(policy, accelerator.unwrap_model(trainer.model), weights)
        policy.to(DTYPES["float32" if to_go_on else place.dtype]).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    accelerator.wait_for_everyone()


def _merged(policy: Any, adapted: Any, weights: dict[str, Any]) -> Any:
    """Return a policy with the adapters of its adapted twin merged into it."""
    from peft import PeftModel

    with tempfile.TemporaryDirectory() as scratch:
        adapted.save_pretrained(scratch, state_dict=weights)
        return PeftModel.from_pretrained(policy, scratch).merge_and_unload()


def save_optimizer(trainer: Any, path: Path) -> None:
    """Write the optimizer's state as safetensors, `<parameter>.<name>` each.

    Every process calls this, the first one writes.
    """
    kept = {name: value for name, value in _optimizer_state(trainer) if value is not None}
    if distributed.is_first():
        save_file(kept, path)


class GivenOptimizer(TrainerCallback):  # type: ignore[misc]
    """Gives the optimiser the state that a segment left, once everything lies on its devices.

    Under ZeRO-3 also the weights in float32, of which the model took the nearest in bfloat16.
    """

    def __init__(self, trainer: Any, policy: Path, state: Path | None) -> None:
        self._trainer = trainer
        self._policy = policy
        self._state = state

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the state; called in each process when weights and optimiser are in place."""
        if self._trainer.is_deepspeed_enabled:
            _set_master_weights(self._trainer, self._policy)
        if self._state is not None:
            _give_optimizer(self._trainer, self._state)


def _give_optimizer(trainer: Any, path: Path) -> None:
    """Set the optimiser's state to one that was written; every process calls this."""
    with safe_open(path, "pt") as file:
        if trainer.is_deepspeed_enabled:
            _set_partitioned_state(trainer, file)
            return
        optimizer = trainer.optimizer
        parameters = _in_order(optimizer)
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key in file.keys():  # noqa: SIM118 (the file is no mapping)
            index, _, name = key.partition(".")
            value = _laid_like(file.get_tensor(key), parameters[int(index)])
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _optimizer_state(trainer: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Yield the whole state one by one, on the processor; None in all processes but the first."""
    if trainer.is_deepspeed_enabled:
        yield from _partitioned_state(trainer)
        return
    state = trainer.optimizer.state_dict()["state"]
    for index, kept in state.items():
        for name, value in kept.items():
            yield f"{index}.{name}", _on_first(_whole(value))


def _whole(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _on_first(value: torch.Tensor) -> torch.Tensor | None:
    return value.detach().cpu().contiguous() if distributed.is_first() else None


def _laid_like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a part of the state spread as its parameter is; a step's count is whole everywhere."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor) or value.ndim == 0:
        return value
    local = value.to(parameter.device)
    return distribute_tensor(local, parameter.device_mesh, parameter.placements)


def _in_order(optimizer: Any) -> list[torch.Tensor]:
    """Return the parameters in the order in which an optimiser numbers them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def whole_model(start: Path, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return the model of a checkpoint with other weights, on the processor, in float32."""
    with plain_loading():
        model = load_model(start)
    model.load_state_dict(weights, strict=False)
    missing = model.state_dict().keys() - weights.keys() - _second_names(model)
    if missing:
        raise HarnessError(f"the processes gave no weights for {sorted(missing)[0]}; report this.")
    return model


@contextmanager
def plain_loading() -> Iterator[None]:
    """Load a model whole in this process, where under ZeRO-3 it would be spread over all of them.

    Without it the first process, loading alone, would wait for the others for ever.
    """
    from transformers.integrations import deepspeed as integration

    found = integration._hf_deepspeed_config_weak_ref
    integration.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        integration._hf_deepspeed_config_weak_ref = found


def _second_names(model: Any) -> set[str]:
    """Return the names of weights that are other weights under a second name."""
    named = dict(model.named_parameters(remove_duplicate=False))
    return set(named) - {name for name, _ in model.named_parameters()}


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
        weights = dict(load_model(policy).named_parameters())
    for _, name, parameter in _numbered(trainer):
        value = weights[name].detach().to(parameter.device)
        safe_set_full_fp32_param(parameter, value)


def _partitioned_state(trainer: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    from deepspeed.utils import safe_get_full_optimizer_state

    step = _steps_taken(trainer)
    for index, _, parameter in _numbered(trainer):
        for name in MOMENTS:
            value = safe_get_full_optimizer_state(parameter, name)
            yield f"{index}.{name}", _on_first(value)
        yield f"{index}.step", _on_first(torch.tensor(float(step)))


def _set_partitioned_state(trainer: Any, file: Any) -> None:
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
