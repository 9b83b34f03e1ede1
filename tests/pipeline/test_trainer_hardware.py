"""Laws of hardware: what changes a number is in a stage's identity, and nothing else is."""

from dataclasses import replace
from typing import Any

import pytest
from processors import on_processors

from harness.errors import UserError
from harness.extensions import LOSSES, Extension
from harness.pipeline.algorithm import Planner
from harness.pipeline.factory import KINDS, needs_of
from harness.pipeline.runs import plan_table
from harness.registry.profile import Profile, load_profiles
from harness.registry.recipe import Online, Recipe
from harness.registry.schema import Table
from harness.report.build import assumptions_of
from harness.runtime.crew import Need
from harness.training.placement import Placement
from harness.worlds.lookup import world_of

DPO = Recipe(algorithm="dpo", chain=("human",))
RLOO = Recipe(algorithm="rloo", online=Online(prompts="human"))
LORA = {"rank": 8, "alpha": 16, "targets": ["q_proj"]}


def on(micro: Profile, dtype: str = "float32", **changes: Any) -> Profile:
    return micro.model_copy(update={"hardware": on_processors(**changes), "dtype": dtype})


def training(profile: Profile, recipe: Recipe = DPO) -> Any:
    return Planner(world_of(profile)).run("run", recipe, 0).training[-1]


def test_large_models_compute_otherwise_and_only_their_training_is_another_stage(
    micro: Profile,
) -> None:
    """In float32 all that comes before the training is what it was."""
    plain, large = training(micro), training(on(micro))
    assert large.settings["numerics"] == {
        "dtype": "float32",
        "attention": "eager",
        "lora": None,
        "last_batch": "filled",
    }
    assert large.fingerprint != plain.fingerprint
    assert large.inputs["pairs"] == plain.inputs["pairs"]


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": 8},
        {"micro_batch": 4},
        {"micro_batch": {"dpo": 2, "rloo": 6}},
        {"accelerate": "fsdp.yaml"},
        {"gradient_checkpointing": True},
        {"checkpoint_every": 100},
    ],
)
@pytest.mark.parametrize("recipe", [DPO, RLOO])
def test_where_it_runs_is_no_identity(
    recipe: Recipe, changes: dict[str, Any], micro: Profile
) -> None:
    here, there = training(on(micro), recipe), training(on(micro, **changes), recipe)
    assert here.fingerprint == there.fingerprint


def test_several_devices_draw_rollouts_otherwise_than_one_and_alike_however_many(
    micro: Profile,
) -> None:
    single = on(micro, devices=1, accelerate="cpu-one-process.yaml")
    one, two, eight = (training(p, RLOO) for p in (single, on(micro), on(micro, devices=8)))
    assert "draws" not in one.settings["numerics"]
    assert two.settings["numerics"]["draws"] == "by rollout"
    assert one.fingerprint != two.fingerprint == eight.fingerprint


@pytest.mark.parametrize("changes", [{"dtype": "bfloat16"}, {"attention": "sdpa"}, {"lora": LORA}])
def test_what_changes_numbers_is(changes: dict[str, Any], micro: Profile) -> None:
    assert training(on(micro)).fingerprint != training(on(micro, **changes)).fingerprint


def test_online_adapters_are_the_users_error(micro: Profile) -> None:
    with pytest.raises(UserError, match="online training has no adapters"):
        training(on(micro, lora=LORA), RLOO)


def test_every_profile_of_real_models_names_a_configuration_and_divides_its_batches() -> None:
    """The batches of the paper's profile, 64 or 32 pairs over 8 devices."""
    named = [profile for profile in load_profiles().values() if profile.hardware is not None]
    assert {"paper", "single-gpu"} <= {profile.name for profile in named}
    for profile in named:
        hardware = profile.hardware
        assert hardware is not None
        assert hardware.configuration.is_file()
        for algorithm in profile.algorithms:
            micro_batch = hardware.micro_batch_of(algorithm)
            assert micro_batch is not None
            batch = getattr(profile.training.of(algorithm), "batch_size", None)
            if batch is not None:
                assert batch % (micro_batch * hardware.devices) == 0


def test_a_plug_in_s_loss_is_divided_as_the_one_it_is_like(
    paper: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipo = Extension(object(), "mine", "1", {"like": "dpo"})
    monkeypatch.setattr(LOSSES, "added", {"ipo": ipo}.get)
    assert paper.hardware is not None
    assert paper.hardware.micro_batch_of("ipo") == paper.hardware.micro_batch_of("dpo") is not None


def test_a_report_lists_the_settings_that_a_plug_in_s_loss_trains_with(
    tables: dict[str, Table], micro: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipo = Extension(object(), "mine", "1", {"like": "dpo"})
    monkeypatch.setattr(LOSSES, "added", {"ipo": ipo}.get)
    planned = plan_table(tables["table4"], micro, (0,), ["dpo-1"])
    mine = {
        key: replace(run, recipe=run.recipe.model_copy(update={"algorithm": "ipo"}))
        for key, run in planned.runs.items()
    }
    assert assumptions_of(replace(planned, runs=mine)) == assumptions_of(planned)


def test_the_papers_online_steps_are_shared_by_its_gpus(paper: Profile) -> None:
    """Eight GPUs have six of RLOO's 48 rollouts each, and a pair of OAIF's 16."""
    assert paper.hardware is not None
    for algorithm, share in (("rloo", 6), ("oaif", 2)):
        own: Any = paper.training.of(algorithm)
        rollouts = Online().minibatch * own.rollouts
        micro_batch = paper.hardware.micro_batch_of(algorithm)
        place = Placement(devices=paper.hardware.devices, micro_batch=micro_batch)
        assert place.share(rollouts) == share
        assert micro_batch is not None
        passes = place.batches(rollouts)["gradient_accumulation_steps"]
        assert passes * micro_batch == share


def test_a_profile_of_real_models_gives_each_kind_of_stage_what_it_needs(
    micro: Profile, paper: Profile
) -> None:
    """At `paper`: one GPU answers or scores, eight train, and what asks needs none."""
    needs = needs_of(paper)
    assert {needs.of(kind).gpus for kind in ("generate", "annotate", "answer")} == {1}
    assert {needs.of(kind).gpus for kind in ("train", "online")} == {8}
    asking = [kind for kind in KINDS if needs.of(kind).uses_endpoint]
    assert set(asking) == {"evolve", "rate", "judge", "topics"}
    assert {needs.of(kind).gpus for kind in asking} == {0}
    assert needs_of(micro).of("train") == Need(1)


def test_a_reward_model_that_judges_gets_a_gpu() -> None:
    """At `consumer-gpu` ArmoRM judges; it does not wait for an endpoint."""
    profile = load_profiles()["consumer-gpu"]
    need = needs_of(profile).of("judge")
    assert (need.gpus, need.uses_endpoint) == (1, False)
    name, first = next(iter(profile.benchmarks.items()))
    asked = {**profile.benchmarks, name: first.model_copy(update={"judge": "gpt-4"})}
    need = needs_of(profile.model_copy(update={"benchmarks": asked})).of("judge")
    assert (need.gpus, need.uses_endpoint) == (1, True)
