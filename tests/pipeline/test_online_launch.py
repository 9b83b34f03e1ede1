"""Laws of online segments in several processes: one stream, and the numbers of one process."""

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from computing import read_json, small
from processors import on_processors
from safetensors.torch import load_file

from harness.errors import HarnessError
from harness.pipeline.algorithm import Planner
from harness.pipeline.factory import stage_hardware
from harness.pipeline.online_steps import online_stage, train_here
from harness.pipeline.steps import prompts_stage
from harness.registry.profile import Profile, load_profiles
from harness.registry.recipe import Online, Recipe
from harness.runtime import Stage, StageContext
from harness.training.online import OPTIMIZER
from harness.training.placement import Placement
from harness.worlds.lookup import world_of
from harness.worlds.real.models import resolve
from harness.worlds.stage_io import read_rows

MODEL = "model.safetensors"
WEIGHTS = f"model/{MODEL}"
EVA = {"buffer": 0.5, "n_new": 2, "n_new_bootstrap": 2, "minibatch": 4, "warm_up": 0.25}

pytestmark = pytest.mark.usefixtures("shipped_world")


def profile_on(devices: int, micro_batch: int, parts: int = 2) -> Profile:
    """The embedded profile with 16 prompts an iteration, in so many segments, and hardware."""
    hardware = on_processors(devices=devices, micro_batch=micro_batch, checkpoint_every=1)
    return small(load_profiles()["micro"], segments=parts, hardware=hardware)


def segments(profile: Profile, algorithm: str) -> list[Stage]:
    recipe = Recipe(algorithm=algorithm, online=Online(**EVA))  # type: ignore[arg-type]
    run = Planner(world_of(profile)).run("run", recipe, 0)
    return [stage for stage in run.training if stage.kind == "online"]


def context(stage: Stage, inputs: dict[str, Path], folder: Path, profile: Profile) -> StageContext:
    folder.mkdir(parents=True)
    return StageContext(
        stage.settings,
        inputs,
        folder,
        stage.seed,
        unfinished=folder.parent / f"{folder.name}-work",
        hardware=stage_hardware(profile),
    )


def run_in(folder: Path, profile: Profile, algorithm: str, train: Any) -> list[dict[str, Any]]:
    """Train all segments in `folder`; return the curves."""
    curves: list[dict[str, Any]] = []
    before: dict[str, Path] = {}
    for number, stage in enumerate(segments(profile, algorithm), start=1):
        prompts = stage.inputs["prompts"]
        drawn = context(prompts, {}, folder / f"prompts-{number}", profile)
        prompts_stage(drawn)
        ctx = context(stage, {"prompts": drawn.output, **before}, folder / str(number), profile)
        ctx.report = lambda step, metrics: curves.append({"step": step, **metrics})
        train(ctx)
        before = {"before": ctx.output}
    return curves


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the distance of two sets of tensors.

    Single weights may differ more than rounding does: Adam turns a gradient of nearly zero, whose
    sign is a matter of rounding, into a step as large as any.
    """
    assert one.keys() == other.keys()
    return float(sum(float((one[name] - other[name]).square().sum()) for name in one) ** 0.5)


@pytest.mark.parametrize(
    ("algorithm", "micro_batch", "parts"),
    [
        ("rloo", 2, 1),
        pytest.param("rloo", 2, 2, marks=pytest.mark.slow),
        pytest.param("oaif", 4, 2, marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_as_one_does(
    algorithm: str, micro_batch: int, parts: int, tmp_path: Path
) -> None:
    """Four steps in all: prompts, buffer and costs are equal, weights up to rounding.

    The last steps draw from the buffer, so what is trained on depends on the rollouts before.
    """
    profile = profile_on(2, micro_batch, parts)
    one = Placement(attention="eager", shared=True)
    expected = run_in(tmp_path / "one", profile, algorithm, lambda ctx: train_here(ctx, one))
    curves = run_in(tmp_path / "two", profile, algorithm, online_stage)
    assert not psutil.Process().children(recursive=True)
    assert [point["step"] for point in curves] == [1, 2, 3, 4]
    for ours, theirs in zip(curves, expected, strict=True):
        if algorithm == "rloo":  # a mean over micro-batches of their means over tokens
            assert ours.pop("entropy") == pytest.approx(theirs.pop("entropy"), rel=0.1)
        else:  # a count of signs, which rounding turns where two implicit rewards are almost equal
            assert abs(ours.pop("accuracy") - theirs.pop("accuracy")) <= 0.25
        assert ours == pytest.approx(theirs, rel=1e-3, abs=2e-4)
    start = load_file(resolve(str(segments(profile, algorithm)[0].settings["policy"])) / MODEL)
    for number in map(str, range(1, parts + 1)):
        first, second = tmp_path / "one" / number, tmp_path / "two" / number
        assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}
        for name in ("stream.json", "summary.json"):
            assert read_json(first / name) == read_json(second / name)
        assert read_rows(first / "trained.parquet") == read_rows(second / "trained.parquet")
        ours, theirs = load_file(second / WEIGHTS), load_file(first / WEIGHTS)
        assert apart(ours, theirs) < 0.01 * apart(theirs, start)
        ours, theirs = load_file(second / OPTIMIZER), load_file(first / OPTIMIZER)
        assert apart(ours, theirs) < 0.01 * apart(theirs, dict.fromkeys(theirs, torch.tensor(0.0)))
    rows = read_rows(tmp_path / "two" / str(parts) / "trained.parquet")
    assert any(row["generation"] > 0 for row in rows)


def first_segment(folder: Path, profile: Profile, name: str) -> StageContext:
    """Return the first segment of RLOO, its prompts drawn."""
    [stage, _] = segments(profile, "rloo")
    if not (folder / "prompts").exists():
        prompts_stage(context(stage.inputs["prompts"], {}, folder / "prompts", profile))
    ctx = context(stage, {"prompts": folder / "prompts"}, folder / name, profile)
    ctx.unfinished = folder / "work"
    return ctx


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
def test_a_segment_that_was_killed_starts_again(first: bool, tmp_path: Path) -> None:
    """One of the two processes is killed after the first step; the second launch ends as one."""
    profile = profile_on(2, 2)
    ctx = first_segment(tmp_path, profile, "killed")

    def kill(step: int, metrics: Any) -> None:
        leaves = [p for p in psutil.Process().children(recursive=True) if not p.children()]
        [chosen] = [p for p in leaves if (p.environ().get("RANK") == "0") is first]
        os.kill(chosen.pid, signal.SIGKILL)

    ctx.report = kill
    with pytest.raises(HarnessError, match="training under accelerate died before it was done"):
        online_stage(ctx)
    assert not psutil.Process().children(recursive=True)
    again = first_segment(tmp_path, profile, "again")
    steps: list[int] = []
    again.report = lambda step, metrics: steps.append(step)
    online_stage(again)
    assert steps == [1, 2]
    whole = first_segment(tmp_path, profile, "whole")
    train_here(whole, Placement(attention="eager", shared=True))
    for name in ("stream.json", "summary.json"):
        assert (again.output / name).read_text() == (whole.output / name).read_text()
