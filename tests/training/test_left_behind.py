"""What a training leaves behind: the same state, however it lay on devices."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_gemma import build_tiny_gemma, tiny_tokenizer

from harness.errors import HarnessError
from harness.models.loading import load_model
from harness.training.distributed import GivenOptimizer, save_optimizer, save_policy, whole_model
from harness.training.placement import Placement


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_gemma(tmp_path_factory.mktemp("policy"), seed=3)


def decayed(model: Any) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.ndim > 1]


def trainer_of(model: Any, optimizer: Any, *, deepspeed: bool) -> Any:
    """Return what is read of a trainer whose optimizer numbers decayed parameters first."""
    return SimpleNamespace(
        model=model,
        model_wrapped=SimpleNamespace(optimizer=optimizer) if deepspeed else model,
        optimizer=optimizer,
        is_deepspeed_enabled=deepspeed,
        get_decay_parameter_names=decayed,
        accelerator=SimpleNamespace(
            unwrap_model=lambda wrapped: model,
            get_state_dict=lambda wrapped: model.state_dict(),
            wait_for_everyone=lambda: None,
        ),
    )


def plain(start: Path) -> Any:
    """Return a trainer of one process, whose optimizer has taken no step."""
    model = load_model(start)
    named = dict(model.named_parameters())
    first = decayed(model)
    groups = [
        {"params": [named[name] for name in first]},
        {"params": [p for name, p in named.items() if name not in first], "weight_decay": 0.0},
    ]
    return trainer_of(model, torch.optim.AdamW(groups, lr=1e-3), deepspeed=False)


class ZeRO:
    """DeepSpeed's functions for each parameter, over whole float32 weights beside the model's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.weights: dict[Any, torch.Tensor] = {}
        self.moments: dict[Any, dict[str, torch.Tensor]] = {}
        module = ModuleType("deepspeed.utils")
        vars(module).update(
            safe_get_full_fp32_param=self.weights.get,
            safe_set_full_fp32_param=self.weights.__setitem__,
            safe_get_full_optimizer_state=lambda p, name: self.moments[p][name],
            safe_set_full_optimizer_state=lambda p, value, name: self.moments.setdefault(
                p, {}
            ).update({name: value}),
        )
        monkeypatch.setitem(sys.modules, "deepspeed.utils", module)

    def trainer(self, start: Path) -> Any:
        """Return a trainer whose model computes in bfloat16."""
        inner = SimpleNamespace(state={})
        flat = torch.zeros(4)
        optimizer = SimpleNamespace(fp32_partitioned_groups_flat=[flat], optimizer=inner)
        return trainer_of(load_model(start).to(torch.bfloat16), optimizer, deepspeed=True)


def begin(trainer: Any, policy: Path, state: Path | None) -> None:
    GivenOptimizer(trainer, policy, state).on_train_begin(None, None, None)


def same(one: Path, other: Path) -> None:
    left, right = load_file(one), load_file(other)
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(right[name], value, rtol=0, atol=0)


def test_a_state_goes_from_one_process_to_zero3_and_back(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, files = plain(start), [tmp_path / f"{i}.safetensors" for i in range(3)]
    for _ in range(2):
        one.model(input_ids=torch.tensor([[2, 7, 8, 9]])).logits.square().mean().backward()
        one.optimizer.step()
    save_optimizer(one, files[0])
    assert set(load_file(files[0])) >= {"0.exp_avg", "0.exp_avg_sq", "0.step"}

    spread = ZeRO(monkeypatch).trainer(start)
    begin(spread, start, files[0])
    save_optimizer(spread, files[1])
    same(files[0], files[1])

    again = plain(start)
    begin(again, start, files[1])
    save_optimizer(again, files[2])
    same(files[0], files[2])


def test_under_zero3_what_was_learned_is_kept_in_float32(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own weights are bfloat16, of which 1e-5 beside 0.3 would be rounded away."""
    zero = ZeRO(monkeypatch)
    trainer = zero.trainer(start)
    begin(trainer, start, None)
    for parameter in zero.weights:
        zero.weights[parameter] = zero.weights[parameter] + 1e-5
    place = Placement(dtype="bfloat16")
    save_policy(trainer, tiny_tokenizer(), start, tmp_path / "on", place, to_go_on=True)
    saved = dict(load_model(tmp_path / "on").named_parameters())
    for name, parameter in load_model(start).named_parameters():
        torch.testing.assert_close(saved[name], parameter + 1e-5, rtol=0, atol=0)
    save_policy(trainer, tiny_tokenizer(), start, tmp_path / "end", place)
    weights = load_file(tmp_path / "end" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}


def test_weights_that_the_processes_did_not_give_are_named(start: Path) -> None:
    given = load_model(start).state_dict()
    name = next(iter(given))
    with pytest.raises(HarnessError, match=f"no weights for {name}"):
        whole_model(start, {key: value for key, value in given.items() if key != name})
