"""Online eva as stages: one continual run, cut into segments.

A run on human prompts sees the next x of them in each x, and after the last of them begins again
if it has several passes; a run of eva sees one x and grows the rest in its buffer. Each segment is
a stage that goes on where the one before ended, so the runs that are checkpoints of one continual
run (1x, 2x, 3x) share their first segments:

    prompts -> online (segment 1) -> online (segment 2) -> ...

Source: paper section 3.2, appendix A and table 1.
"""

from __future__ import annotations

from dataclasses import fields

from harness.errors import UserError
from harness.eva.stream import StreamSettings
from harness.extensions import METRICS
from harness.registry.profile import Profile
from harness.registry.recipe import Online, Recipe
from harness.registry.training import OnlineTraining
from harness.runtime.stage import Json, Stage
from harness.trainer.factory import StageFactory


def segments(
    planner: StageFactory, run_id: str, recipe: Recipe, seed: int
) -> list[tuple[Stage, Stage]]:
    """Return the stages of an online run: for each segment its human prompts and its training."""
    online, profile = recipe.online, planner.profile
    assert online is not None
    hyper = profile.training.of(str(recipe.algorithm))
    assert isinstance(hyper, OnlineTraining)
    steps = segment_steps(online, hyper, profile.x)
    stream_settings(online, profile.x, profile.creator.retries)
    settings = _settings(planner, recipe, seed, hyper)
    made: list[tuple[Stage, Stage]] = []
    for number in range(online.length * hyper.segments):
        which, part = divmod(number, hyper.segments)
        new = online.prompts != "eva"
        again, first = divmod(which, online.size) if new else (0, 0)
        label = f"seed {seed} · {run_id} · {which + 1}x"
        label += f" ({part + 1}/{hyper.segments})" if hyper.segments > 1 else ""
        cut = planner.new_prompts(online.prompts, seed, online.skip + first, 1)
        prompts = planner.stage("prompts", cut, {}, label)
        inputs = {"prompts": prompts} | ({"before": made[-1][1]} if made else {})
        stretch: dict[str, Json] = {
            "first_step": number * steps + 1,
            "last_step": (number + 1) * steps,
            "new_prompts": new and part == 0 and which > 0,
        }
        if again:
            stretch["pass"] = again
        made.append((prompts, planner.stage("online", settings | stretch, inputs, label)))
    return made


def segment_steps(online: Online, hyper: OnlineTraining, x: int) -> int:
    """Return the steps of a segment."""
    steps, rest = divmod(x, online.minibatch * hyper.segments)
    if rest or not steps:
        raise UserError(
            f"{x} prompts make no whole number of mini-batches of {online.minibatch} in each of "
            f"{hyper.segments} segments: choose an `online.minibatch` and `segments` that divide x."
        )
    return steps


def stream_settings(online: Online, x: int, retries: int) -> StreamSettings:
    """Return how mini-batches are made where an iteration has x prompts."""
    same = {f.name for f in fields(StreamSettings)} & Online.model_fields.keys()
    return StreamSettings(
        **online.model_dump(include=same),
        capacity=round(online.buffer * x),
        shape="tree" if online.method == "tree_bon" else "independent",
        warm_up_steps=(
            None if online.warm_up is None else round(online.warm_up * x / online.minibatch)
        ),
        retries=retries,
    )


def _settings(
    planner: StageFactory, recipe: Recipe, seed: int, hyper: OnlineTraining
) -> dict[str, Json]:
    """Return what all segments of a run have in common."""
    online, world, x = recipe.online, planner.world, planner.profile.x
    assert online is not None
    role = recipe.reward_model_at(1)
    ranked_by = recipe.informativeness_reward_model_at(1)
    evolves = online.prompts == "eva"
    other = evolves and online.metric != "uniform" and ranked_by != role
    # What is seen when is said by each segment, so that longer runs begin with shorter ones.
    kept = {k: v for k, v in online.canonical().items() if k not in ("size", "passes", "skip")}
    scheme = planner.profile.creator.online_method
    creator = planner.creator(scheme) if evolves else {"creator": None}
    return {
        "algorithm": str(recipe.algorithm),
        "policy": world.policy(),
        "reward_model": world.reward_model(role),
        "ranker": world.reward_model(ranked_by) if other else None,
        **creator,
        **planner.world.tree_scorer(online),
        "online": kept,
        **(METRICS.identity(online.metric) if evolves else {}),
        "x": x,
        "retries": planner.profile.creator.retries,
        "missing_eos_penalty": hyper.missing_eos_penalty,
        "training": training_settings(hyper, online, x),
        "seed": seed,
        **_numerics(planner.profile),
    }


def _numerics(profile: Profile) -> dict[str, Json]:
    """Return how large models compute; nothing where the embedded world's ways hold."""
    settings: dict[str, Json] = {}
    if profile.dtype != "float32":
        settings["dtype"] = profile.dtype  # the reward models'
    if profile.hardware is not None:
        settings["numerics"] = profile.hardware.online_numerics(profile.dtype)
    return settings


def training_settings(hyper: OnlineTraining, online: Online, x: int) -> dict[str, Json]:
    """Return the fields of `OnlineAlgorithm`: a profile's, in steps instead of multiples.

    A schedule that falls spans `schedule_size` x or, if the run is longer, the run; a constant one
    is the same for every length, so that a longer run begins with the shorter one's steps.
    """
    falls = hyper.lr_scheduler != "constant_with_warmup"
    size = max(hyper.schedule_size, online.length) if falls else hyper.schedule_size
    whole = size * x // online.minibatch
    stated = {"lr_scheduler", "warmup_ratio", "schedule_size", "segments", "missing_eos_penalty"}
    return {
        **hyper.model_dump(exclude=stated),
        "schedule": hyper.lr_scheduler,
        "warmup_steps": round(hyper.warmup_ratio * whole),
        "schedule_steps": whole,
        "minibatch": online.minibatch,
    }
