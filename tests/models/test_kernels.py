"""A large model on a processor takes other kernels, which compute the same to rounding."""

from pathlib import Path

import pytest
import torch
from tiny_gemma import build_tiny_gemma

from harness.models import loading
from harness.models.loading import fast_training, load_model, on_fast_kernels

IDS = torch.tensor([[2, 7, 8, 9, 10], [2, 11, 12, 13, 14]])


def test_answers_are_the_same_to_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_tiny_gemma(tmp_path, seed=1)
    with torch.inference_mode():
        plain = load_model(path).eval()(IDS).logits
        assert torch.equal(on_fast_kernels(load_model(path).eval())(IDS).logits, plain)
        monkeypatch.setattr(loading, "LARGE", 1)
        model = on_fast_kernels(load_model(path).eval())
        assert any("Mkldnn" in type(part).__name__ for part in model.modules())
        torch.testing.assert_close(model(IDS).logits, plain)


def test_gradients_are_the_same_to_rounding_and_the_setting_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build_tiny_gemma(tmp_path, seed=1)

    def gradients() -> list[torch.Tensor]:
        model = load_model(path).train()
        with fast_training(model):
            used = torch.get_float32_matmul_precision()
            model(IDS, labels=IDS).loss.backward()
        assert torch.get_float32_matmul_precision() == "highest"
        assert used == ("medium" if loading.LARGE == 1 else "highest")
        return [weight.grad for weight in model.parameters()]

    plain = gradients()
    monkeypatch.setattr(loading, "LARGE", 1)
    torch.testing.assert_close(gradients(), plain, rtol=1e-3, atol=1e-5)
