"""Laws of online training of large models: micro-batches, bfloat16, and vLLM's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_online import Source, of_tests
from tiny_gemma import build_tiny_gemma
from trl.trainer.rloo_config import RLOOConfig

from harness.errors import HarnessError, UserError
from harness.training.experimental import OnlineDPOConfig
from harness.training.oaif import OAIF
from harness.training.online import OnlineAlgorithm, Segment, train_segment
from harness.training.placement import Placement, one_device
from harness.training.rloo import RLOO


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_gemma(tmp_path_factory.mktemp("policy"), seed=1)


def train(
    algorithm: type[OnlineAlgorithm], start: Path, out: Path, place: Placement
) -> tuple[Source, list[dict[str, float]]]:
    """Take three steps of two prompts with two rollouts each."""
    out.mkdir()
    source = Source()
    logs: list[dict[str, float]] = []
    train_segment(
        of_tests(algorithm, rollouts=2),
        policy=start,
        reference=start,
        optimizer_state=None,
        out_dir=out,
        segment=Segment(1, 3),
        source=source,
        seed=7,
        on_log=lambda step, metrics: logs.append(metrics),
        place=place,
    )
    return source, logs


def test_micro_batches_see_the_same_rollouts_and_take_one_step_together(
    start: Path, tmp_path: Path
) -> None:
    """Four rollouts a step at once or one by one, with activations kept or computed again."""
    whole, logs = train(RLOO, start, tmp_path / "whole", Placement())
    place = Placement(micro_batch=1, gradient_checkpointing=True, attention="eager")
    parts, cut = train(RLOO, start, tmp_path / "parts", place)
    assert len(logs) == len(cut) == 3
    assert whole.seen[0] == parts.seen[0]
    expected = load_file(tmp_path / "whole" / "model" / "model.safetensors")
    for name, weight in load_file(tmp_path / "parts" / "model" / "model.safetensors").items():
        torch.testing.assert_close(weight, expected[name], atol=2e-5, rtol=0)


@pytest.mark.parametrize("algorithm", [RLOO, OAIF])
def test_bfloat16_trains_float32_weights(
    algorithm: type[OnlineAlgorithm], start: Path, tmp_path: Path
) -> None:
    _, logs = train(algorithm, start, tmp_path / "out", Placement(dtype="bfloat16"))
    assert all(torch.isfinite(torch.tensor(metrics["loss"])) for metrics in logs)
    before = load_file(start / "model.safetensors")
    after = load_file(tmp_path / "out" / "model" / "model.safetensors")
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    assert any(not torch.equal(weight, before[name]) for name, weight in after.items())


def test_a_micro_batch_that_cannot_be_is_the_users_error(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="4 pairs cannot be made of micro-batches of 3"):
        Placement(micro_batch=3).batches(4)
    with pytest.raises(UserError, match=r"set `hardware.micro_batch` to 4 for `oaif`"):
        train(OAIF, start, tmp_path / "out", Placement(micro_batch=2))


def test_devices_that_do_not_divide_a_step_are_the_users_error(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 prompts or rollouts of a step cannot be shared by 3"):
        train(OAIF, start, tmp_path / "out", Placement(devices=3))
    with pytest.raises(UserError, match="micro-batches of 3 on each of 2 devices"):
        Placement(devices=2, micro_batch=3).batches(8)


def test_a_full_gpu_says_what_helps(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, *args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("harness.training.rloo._Trainer.train", full, raising=False)
    with pytest.raises(HarnessError, match=r"memory is full: lower `hardware\.micro_batch`"):
        train(RLOO, start, tmp_path / "out", Placement())


@pytest.mark.parametrize(("gpus", "device"), [(0, "cpu"), (1, "cuda")])
def test_one_gpu_is_used_if_there_is_one(
    gpus: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert one_device() == device


def test_several_visible_gpus_are_the_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=0"):
        one_device()


# vLLM in the trainer. It is not started here: what is checked is what the installed TRL takes.


@pytest.mark.parametrize("kind", [RLOOConfig, OnlineDPOConfig])
def test_trls_configurations_take_what_vllm_is_to_do(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.training.placement.find_spec", lambda name: name)
    arguments = of_tests(RLOO).arguments(
        Segment(1, 2), str(tmp_path), Placement(rollouts_gpu_memory=0.3)
    )
    sizes = {"per_device_train_batch_size": 4}
    if kind is RLOOConfig:
        sizes["num_generations"] = 2
    config = kind(**arguments, **sizes)
    assert (config.use_vllm, config.vllm_mode) == (True, "colocate")
    assert config.vllm_gpu_memory_utilization == 0.3
    assert config.top_k == 0  # nothing is cut off by rank
    plain = of_tests(RLOO).arguments(Segment(1, 2), str(tmp_path), Placement())
    assert not kind(**plain, **sizes).use_vllm


def test_rollouts_by_vllm_without_it_are_the_users_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.training.placement.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the library vllm .*-e '\.\[vllm\]'"):
        Placement(rollouts_gpu_memory=0.3).arguments("scratch")
