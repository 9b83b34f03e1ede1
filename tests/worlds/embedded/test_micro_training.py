"""Laws of training the world's models: the same settings give the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.worlds.embedded.files import digest
from harness.worlds.embedded.pretrain import PretrainConfig, pretrain, reproducible
from harness.worlds.embedded.reward import RewardConfig, train_reward_model

SHORT = PretrainConfig(steps=12, batch_size=16, warmup_steps=2, pool_batches=4, compiled=False)


def trained(config: PretrainConfig, folder: Path) -> str:
    """Return the digest of θ0 trained into a folder."""
    pretrain(config, folder)
    return digest(folder)


def test_the_same_settings_give_the_same_policy_and_another_seed_another(tmp_path: Path) -> None:
    first = trained(SHORT, tmp_path / "a")
    assert trained(SHORT, tmp_path / "b") == first
    assert trained(replace(SHORT, seed=1), tmp_path / "c") != first


def test_the_same_settings_give_the_same_reward_model(tmp_path: Path) -> None:
    pretrain(SHORT, tmp_path / "policy")
    config = RewardConfig(steps=6, batch_size=8, warmup_steps=1, held_out=8)
    accuracies = {train_reward_model(config, tmp_path / "policy", tmp_path / n) for n in "ab"}
    assert len(accuracies) == 1
    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_training_leaves_torchs_settings_as_they_were() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with reproducible(seed=0, threads=2):
        assert torch.get_num_threads() == 2
        assert torch.are_deterministic_algorithms_enabled()
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


@pytest.mark.slow
def test_a_compiled_training_repeats_to_the_last_bit(tmp_path: Path) -> None:
    """Without deterministic kernels the losses part within 80 steps on two threads."""
    config = replace(SHORT, steps=80, batch_size=256, pool_batches=16, compiled=True)
    assert trained(config, tmp_path / "a") == trained(config, tmp_path / "b")
