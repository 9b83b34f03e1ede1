"""Laws of training large models: how a batch is cut, where a training goes on, what is saved.

All of it in this process; `test_launched` has several.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from by_hand import PAIRS, SETTINGS, Logs, assert_same, digest
from safetensors.torch import load_file

from harness.errors import UserError
from harness.models.loading import load_model
from harness.registry.training import Lora
from harness.runtime.stage import append_point
from harness.training.launch import CURVES, last_checkpoint, read_curves, rewind_curves
from harness.training.offline import OfflineAlgorithm, train
from harness.training.offline_losses import DPO, SimPO
from harness.training.placement import Placement, accumulation, filled

TEN = [
    {**pair, "reward_chosen": 0.8, "reward_rejected": 0.3, "chosen": f"{pair['chosen']} {word}"}
    for word in "abc"
    for pair in PAIRS
][:10]
"""Ten pairs, so that batches of four leave two over."""


def of_tests(name: str, **changes: Any) -> OfflineAlgorithm:
    settings = {**SETTINGS, "epochs": 2, "schedule": "linear", **changes}
    return DPO(**settings, beta=0.5) if name == "dpo" else SimPO(**settings, beta=2.0, gamma=1.0)


def trained(
    start: Path,
    folder: Path,
    *,
    algorithm: str = "dpo",
    stop_at: int | None = None,
    pairs: list[dict[str, Any]] = TEN,
    place: dict[str, Any] | None = None,
    work: Path | None = None,
    **changes: Any,
) -> tuple[dict[str, float], Logs]:
    """Train in `folder`: `out/model` and `work`; stop as a crash would after some update."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    work = work or folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    rewind_curves(work)  # as who launches does

    def on_log(step: int, metrics: dict[str, float]) -> None:
        append_point(work / CURVES, step, metrics)
        if step == stop_at:
            raise InterruptedError

    laid: Any = {"work": work, "checkpoint_every": 2, "attention": "eager"}
    summary = train(
        of_tests(algorithm, **changes),
        start,
        pairs,
        folder / "out",
        seed=3,
        on_log=on_log,
        place=Placement(**laid | (place or {})),
    )
    return summary, [(step, metrics) for step, metrics in read_curves(work, until=10**6)]


def weights_in(folder: Path) -> Path:
    return folder / "out" / "model" / "model.safetensors"


@pytest.fixture(scope="module")
def whole(
    policy_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, float], Logs]:
    """A training without disturbance: its folder, summary and curves."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, *trained(policy_path, folder)


def test_a_batch_is_shared_by_devices_and_micro_batches() -> None:
    """64 pairs are 1 x 8 x 8 devices, 2 x 4 x 8 devices or 1 x 64 on one."""
    assert accumulation(64, 1, 8) == 8
    assert accumulation(64, 2, 8) == 4
    assert accumulation(64, 1) == 64


@pytest.mark.parametrize(("micro", "devices"), [(3, 1), (16, 8), (1, 5)])
def test_a_batch_that_cannot_be_divided_is_the_users_error(micro: int, devices: int) -> None:
    with pytest.raises(UserError, match=f"64 pairs cannot be made of micro-batches of {micro}"):
        accumulation(64, micro, devices)


@pytest.mark.parametrize(("n", "batch", "again"), [(10, 4, 2), (8, 4, 0), (3, 8, 5), (1, 4, 3)])
def test_pairs_are_filled_up_to_whole_batches_as_evenly_as_can_be(
    n: int, batch: int, again: int
) -> None:
    """Three pairs in a batch of eight: two are there three times, one twice."""
    rows = filled(range(n), batch, seed=1)
    times = Counter(rows)
    assert len(rows) == n + again
    assert set(times) == set(range(n))
    assert max(times.values()) - min(times.values()) <= 1
    assert rows == filled(range(n), batch, seed=1)


def test_a_placement_changes_no_weight_where_batches_are_full(
    policy_path: Path, tmp_path: Path
) -> None:
    trained(policy_path, tmp_path / "laid", pairs=TEN[:8])
    (tmp_path / "plain").mkdir()
    train(of_tests("dpo"), policy_path, TEN[:8], tmp_path / "plain", seed=3, on_log=print)
    assert digest(tmp_path / "laid" / "out" / "model") == digest(tmp_path / "plain" / "model")


def test_how_a_batch_is_cut_changes_nothing(policy_path: Path, tmp_path: Path) -> None:
    """Ten pairs in batches of four: the last batch too is the same, whatever the micro-batch."""
    changes: Any = {"learning_rate": 1e-4, "epochs": 1}
    summary, logs = trained(policy_path, tmp_path / "4", micro_batch_size=4, **changes)
    _, cut = trained(policy_path, tmp_path / "1", micro_batch_size=1, **changes)
    assert (summary["trained_pairs"], summary["repeated"], summary["steps"]) == (10, 2, 3)
    for (_, one), (_, other) in zip(logs, cut, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert_same(weights_in(tmp_path / "4"), weights_in(tmp_path / "1"), atol=2e-5)


def test_a_training_that_crashed_twice_ends_as_if_it_had_not(
    whole: tuple[Path, dict[str, float], Logs], policy_path: Path, tmp_path: Path
) -> None:
    """Checkpoints after updates 2, 4 and 6: it starts, goes on from 2, and then from 4.

    The second crash follows a replay of the first two updates, so it is at the fifth.
    """
    folder, summary, logs = whole
    for stop_at, kept in ((3, 2), (5, 4)):
        with pytest.raises(InterruptedError):
            trained(policy_path, tmp_path, stop_at=stop_at)
        assert last_checkpoint(tmp_path / "work") == (tmp_path / f"work/checkpoint-{kept}", kept)
    assert trained(policy_path, tmp_path) == (summary, logs)
    assert_same(weights_in(tmp_path), weights_in(folder), atol=0.0)


def test_one_checkpoint_is_kept_and_a_part_of_one_does_not_count(
    whole: tuple[Path, dict[str, float], Logs], tmp_path: Path
) -> None:
    work = whole[0] / "work"
    assert [path.name for path in work.glob("checkpoint-*")] == ["checkpoint-6"]
    (tmp_path / "checkpoint-8").mkdir()
    assert last_checkpoint(tmp_path) == (None, 0)
    (tmp_path / "checkpoint-8" / "whole").touch()
    (tmp_path / "checkpoint-10").mkdir()
    assert last_checkpoint(tmp_path) == (tmp_path / "checkpoint-8", 8)


def test_a_line_that_a_crash_cut_off_ends_the_curves(tmp_path: Path) -> None:
    text = '{"step": 1, "metrics": {"loss": 0.7}}\n{"step": 2, "metr'
    (tmp_path / "curves.jsonl").write_text(text, encoding="utf-8")
    assert read_curves(tmp_path, until=5) == [(1, {"loss": 0.7})]


def test_gradient_checkpointing_changes_nothing(
    whole: tuple[Path, dict[str, float], Logs], policy_path: Path, tmp_path: Path
) -> None:
    """But each of two layers is computed in each of six updates, and again for its gradient."""
    entered: Counter[str] = Counter()

    def note(module: torch.nn.Module, _: Any) -> None:
        entered[type(module).__name__] += torch.is_grad_enabled()

    with torch.nn.modules.module.register_module_forward_pre_hook(note):
        trained(policy_path, tmp_path, place={"gradient_checkpointing": True})
    assert_same(weights_in(tmp_path), weights_in(whole[0]), atol=1e-6)
    assert entered["Gemma2Attention"] == 2 * 6 * 2


def test_bfloat16_trains_float32_weights_and_saves_the_profiles_format(
    policy_path: Path, tmp_path: Path
) -> None:
    """Updates of 1e-5 would vanish in bfloat16 weights of size 0.3, which are 1e-3 apart.

    The checkpoint's weights are float32 and have moved; the saved policy is bfloat16.
    """
    summary, logs = trained(policy_path, tmp_path, learning_rate=1e-5, place={"dtype": "bfloat16"})
    assert summary["steps"] == 6
    assert summary["loss_first"] == pytest.approx(0.6931, abs=5e-2)
    assert all(torch.isfinite(torch.tensor(metrics["loss"])) for _, metrics in logs)
    saved = load_file(weights_in(tmp_path))
    assert {weight.dtype for weight in saved.values()} == {torch.bfloat16}
    assert load_model(tmp_path / "out" / "model").config.dtype == torch.float32
    kept = load_file(tmp_path / "work" / "checkpoint-6" / "model.safetensors")
    start = load_file(policy_path / "model.safetensors")
    assert {weight.dtype for weight in kept.values()} == {torch.float32}
    moved = [name for name, weight in kept.items() if not torch.equal(weight, start[name])]
    assert len(moved) == len(kept)


@pytest.mark.parametrize("algorithm", ["dpo", "simpo"])
def test_adapters_end_as_an_ordinary_checkpoint(
    algorithm: str, policy_path: Path, tmp_path: Path
) -> None:
    """Only the layers with adapters differ from the start, by a product of the adapters' rank."""
    pytest.importorskip("peft")
    lora = Lora(rank=2, alpha=4, targets=("q_proj", "v_proj"))
    assert Placement(lora=lora).adapters().lora_alpha == 4
    trained(policy_path, tmp_path, algorithm=algorithm, learning_rate=1e-2, place={"lora": lora})
    start = load_file(policy_path / "model.safetensors")
    merged = load_file(weights_in(tmp_path))
    assert merged.keys() == start.keys()
    for name, weight in merged.items():
        if "q_proj" in name or "v_proj" in name:
            change = weight - start[name]
            assert change.abs().max() > 1e-5
            assert torch.linalg.matrix_rank(change, rtol=1e-3) <= 2
        else:
            assert torch.equal(weight, start[name])
    assert not list((tmp_path / "out" / "model").glob("adapter*"))
    summary, _ = trained(tmp_path / "out" / "model", tmp_path / "next")
    assert summary["loss_first"] == pytest.approx(0.6931, abs=1e-3)


def test_adapters_without_peft_are_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    place = Placement(
        work=tmp_path, checkpoint_every=1, lora=Lora(rank=1, alpha=1, targets="all-linear")
    )
    with pytest.raises(UserError, match=r"pip install -e '\.\[lora\]'"):
        place.adapters()
