"""Laws of online segments in several processes: one stream, and the numbers of one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from harness.catalogue.hardware import Hardware
from harness.catalogue.profile import Profile, find_profile, load_profiles
from harness.catalogue.recipe import Online, Recipe
from harness.cli.run_command import hardware_of
from harness.errors import HarnessError, UserError
from harness.store import Stage, StageContext
from harness.trainer import online_launch
from harness.trainer.assets import assets_of
from harness.trainer.files import read_rows
from harness.trainer.online_launch import launch_segment
from harness.trainer.online_steps import online_stage, train_here
from harness.trainer.plan import Planner
from harness.trainer.steps import prompts_stage
from harness.training.online_placement import OnlinePlacement

EVA = {"buffer": 0.5, "n_new": 2, "n_new_bootstrap": 2, "minibatch": 4, "warm_up": 0.25}


@pytest.fixture(scope="module", autouse=True)
def shipped_world() -> Iterator[None]:
    """The world that ships with the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HARNESS_WORLD", raising=False)
        yield


def profile_on(devices: int, micro_batch: int) -> Profile:
    """The embedded profile with 16 prompts an iteration, two segments, and hardware."""
    micro = find_profile(load_profiles(), "micro")
    training = micro.training.model_copy(
        update={
            name: getattr(micro.training, name).model_copy(update={"segments": 2})
            for name in ("rloo", "oaif")
        }
    )
    hardware = Hardware(
        accelerate="cpu-two-processes.yaml",
        devices=devices,
        micro_batch=micro_batch,
        gradient_checkpointing=False,
        checkpoint_every=1,
        attention="eager",
    )
    return micro.model_copy(
        update={"x": 16, "benchmarks": {}, "training": training, "hardware": hardware}
    )


def segments(profile: Profile, algorithm: str) -> list[Stage]:
    recipe = Recipe(algorithm=algorithm, online=Online(**EVA))  # type: ignore[arg-type]
    run = Planner(profile, assets_of(profile)).run("run", recipe, 0)
    return [stage for stage in run.training if stage.kind == "online"]


def context(stage: Stage, inputs: dict[str, Path], folder: Path, profile: Profile) -> StageContext:
    folder.mkdir(parents=True)
    return StageContext(
        stage.settings,
        inputs,
        folder,
        stage.seed,
        unfinished=folder.parent / f"{folder.name}-work",
        hardware=hardware_of(profile),
    )


def run_in(folder: Path, profile: Profile, algorithm: str, train: Any) -> list[dict[str, Any]]:
    """Train both segments in `folder`; return the curves."""
    curves: list[dict[str, Any]] = []
    before: dict[str, Path] = {}
    for number, stage in enumerate(segments(profile, algorithm), start=1):
        prompts = stage.inputs["prompts"]
        drawn = context(prompts, {}, folder / f"prompts-{number}", profile)
        prompts_stage(drawn)
        ctx = context(stage, {"prompts": drawn.output, **before}, folder / str(number), profile)
        ctx.on_report = lambda step, metrics: curves.append({"step": step, **metrics})
        train(ctx)
        before = {"before": ctx.output}
    return curves


@pytest.mark.parametrize(("algorithm", "micro_batch"), [("rloo", 2), ("oaif", 4)])
def test_two_processes_train_as_one_does(algorithm: str, micro_batch: int, tmp_path: Path) -> None:
    """Two segments of two steps: prompts, buffer and costs are equal, weights up to rounding.

    The last steps draw from the buffer, so what is trained on depends on the rollouts before.
    """
    profile = profile_on(2, micro_batch)
    one = OnlinePlacement(attention="eager", shared=True)
    expected = run_in(tmp_path / "one", profile, algorithm, lambda ctx: train_here(ctx, one))
    curves = run_in(tmp_path / "two", profile, algorithm, online_stage)
    assert not psutil.Process().children(recursive=True)
    assert [point["step"] for point in curves] == [1, 2, 3, 4]
    for ours, theirs in zip(curves, expected, strict=True):
        if algorithm == "rloo":  # a mean over micro-batches of their means over tokens
            assert ours.pop("entropy") == pytest.approx(theirs.pop("entropy"), rel=0.1)
        assert ours == pytest.approx(theirs, rel=1e-3, abs=2e-4)
    for number in ("1", "2"):
        first, second = tmp_path / "one" / number, tmp_path / "two" / number
        assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}
        for name in ("stream.json", "summary.json"):
            assert json.loads((first / name).read_text()) == json.loads((second / name).read_text())
        assert read_rows(first / "trained.parquet") == read_rows(second / "trained.parquet")
        for name, atol in (("model/model.safetensors", 1e-4), ("optimizer.safetensors", 1e-4)):
            theirs = load_file(first / name)
            ours = load_file(second / name)
            assert theirs.keys() == ours.keys()
            for key, value in ours.items():
                torch.testing.assert_close(value, theirs[key], atol=atol, rtol=1e-3)
    rows = read_rows(tmp_path / "two" / "2" / "trained.parquet")
    assert any(row["generation"] > 0 for row in rows)
    start = load_file(tmp_path / "two" / "1" / "model" / "model.safetensors")
    end = load_file(tmp_path / "two" / "2" / "model" / "model.safetensors")
    assert max(float((value - start[key]).abs().max()) for key, value in end.items()) > 1e-3
