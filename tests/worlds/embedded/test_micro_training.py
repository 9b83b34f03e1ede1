"""Laws of training the world's models: the same settings give the same bytes; what cards say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import build_micro as cards
import pytest
import torch
from build_micro import Course, PretrainConfig, measure, pretrain
from micro_reading import read
from safetensors.torch import load_file

from harness.worlds.embedded.files import digest
from harness.worlds.embedded.language import MEANING, token_ids, write_list
from harness.worlds.embedded.texts import RANKED
from harness.worlds.embedded.training import SHORT, reproducible

SMALL = PretrainConfig(
    operations=Course(8, 3e-3, 2), names=Course(4, 1e-3, 1), batch_size=16, pool_batches=4,
    threads=1, compiled=False,
)  # fmt: skip


def trained(config: PretrainConfig, folder: Path) -> str:
    """Return the digest of θ0 trained into a folder."""
    pretrain(config, folder)
    return digest(folder)


def test_the_same_settings_give_the_same_policy_and_another_seed_another(tmp_path: Path) -> None:
    first = trained(SMALL, tmp_path / "a")
    assert trained(SMALL, tmp_path / "b") == first
    assert trained(replace(SMALL, seed=1), tmp_path / "c") != first


def test_a_trained_policy_has_short_embeddings_of_names_and_a_head_of_its_own(
    tmp_path: Path,
) -> None:
    """Each of the same length within the rounding of bfloat16, eight bits."""
    pretrain(SMALL, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" in weights
    sizes = weights["model.embed_tokens.weight"].float().pow(2).mean(1).sqrt()
    ids = token_ids()
    names = [ids[name] for name in MEANING]
    assert sizes[names].tolist() == pytest.approx([SHORT] * 240, rel=2**-8)
    others = [index for word, index in ids.items() if word not in MEANING and index > 0]
    assert float(sizes[others].min()) > 5 * SHORT


def test_training_leaves_torchs_settings_as_they_were() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with reproducible(seed=0, threads=2):
        assert torch.get_num_threads() == 2
        assert torch.are_deterministic_algorithms_enabled()
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_compiled_training_repeats_to_the_last_bit(tmp_path: Path) -> None:
    """Without deterministic kernels the losses part within 80 steps on two threads."""
    courses: Any = {"operations": Course(40, 3e-3, 4), "names": Course(40, 1e-3, 4)}
    big: Any = {"batch_size": 256, "pool_batches": 16, "compiled": True, "threads": 2}
    config = replace(SMALL, **courses, **big)
    assert trained(config, tmp_path / "a") == trained(config, tmp_path / "b")


NOWHERE = Path("no model is read")


def test_a_policy_that_is_right_every_third_time_has_the_competence_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two right answers of six, four that are no lists: 0.333, and the best of six is right."""
    monkeypatch.setattr(cards, "PROMPTS", 3)
    asked: list[str] = []

    def answers(policy: Path, prompts: Sequence[str], seed: int) -> list[list[str]]:
        asked.extend(prompts)
        return [[write_list(read(p).answer()), "no", "no"] * 2 for p in prompts]

    monkeypatch.setattr(cards, "_answers", answers)
    found = measure(NOWHERE, seed=0)
    eighths = [f"{first} to {first + 29}" for first in range(1, 240, 30)]
    assert list(found["ranks"]) == eighths
    assert list(found["depth"]) == ["1", "2", "3", "4"]
    for row in (*found["ranks"].values(), *found["depth"].values()):
        assert row == {"exact": 0.333, "score": 0.333, "best_of_6": 1.0}
    names = [read(prompt).names for prompt in asked]
    assert [len(some) for some in names] == [1] * 24 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    for at, (name,) in enumerate(names[:24]):
        assert name in RANKED[30 * (at // 3) : 30 * (at // 3) + 30]
