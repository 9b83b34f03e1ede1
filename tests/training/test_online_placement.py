"""Laws of online training of large models: micro-batches and bfloat16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_online import Source, of_tests
from tiny_gemma import build_tiny_gemma

from harness.errors import UserError
from harness.training.online import OnlineAlgorithm, Segment, train_segment
from harness.training.online_losses import OAIF, RLOO
from harness.training.placement import Placement


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
    with pytest.raises(UserError, match="micro-batches of 3 on 2 device"):
        Placement(devices=2, micro_batch=3).batches(8)
