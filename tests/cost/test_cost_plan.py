"""Laws of a plan's price: a sum over distinct stages that are left, and how it meets limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from toy_identities import NamedWorld

from harness.cost.assumptions import Gpus, assumed, assumptions, priced_gpus, speeds
from harness.cost.price import Limits, PlanPrice, over_limits
from harness.cost.pricing import price
from harness.cost.work import Costing
from harness.errors import UserError
from harness.pipeline.algorithm import Planner
from harness.pipeline.runs import plan_table
from harness.registry.declared import named_table
from harness.registry.profile import PricedFor, Profile, supported_rows
from harness.registry.recipe import Recipe
from harness.runtime import Plan
from harness.runtime.stage import Stage

Priced = Callable[..., PlanPrice]
EVA = {"algorithm": "dpo", "chain": ("human", "eva")}


def stages(planner: Planner, seeds: Iterable[int] = (0,), **recipe: object) -> list[Stage]:
    declared = Recipe.model_validate({**EVA, **recipe})
    runs = [planner.run("a", declared, seed) for seed in seeds]
    return list(Plan([stage for run in runs for stage in run.targets]))


def gpus(name: str, count: int) -> Gpus:
    return Gpus(name, speeds().gpus[name], count)


def totals(price: PlanPrice) -> tuple[float, float, float]:
    return price.gpu_hours.known, price.usd.known, price.disk_gb.kept


def test_a_price_is_the_sum_over_distinct_stages(
    planner: Planner, priced: Priced, costing: Costing
) -> None:
    plan = stages(planner)
    costs = [costing.cost(stage) for stage in plan]
    found = priced(plan + plan[:5])
    assert found.usd.known == pytest.approx(
        sum(k.usd or 0.0 for c in costs for k in c.calls), abs=1e-3
    )
    assert sum(kind.stages for kind in found.gpu_hours.by_kind.values()) == len(plan)


def test_gpu_hours_are_tokens_over_tokens_a_second(planner: Planner, priced: Priced) -> None:
    """60,000 answers of 450 tokens at 8.4e13 over 9.24e9 parameters, after 195 at 2e14 each.

    One GPU holds the model, and waits 180 s for its start.
    """
    plan = [stage for stage in stages(planner) if stage.kind == "generate"][:1]
    found = priced(plan).gpu_hours
    held = found.by_kind["generate"]
    size = speeds().models["google/gemma-2-9b-it"]
    work = 60_000 * (450 * size / 8.4e13 + 195 * size / 2.0e14)
    assert held.gpu_hours * 3600 == pytest.approx(work + assumed("start_s"))
    assert not held.measured


def test_stages_that_are_done_tell_the_speed_of_their_kind(
    planner: Planner, priced: Priced
) -> None:
    """The first of two equal seeds took a thousand seconds to train, so the other will."""
    plan = stages(planner, (0, 1))
    first, second = ([s for s in stages(planner, (seed,)) if s.kind == "train"] for seed in (0, 1))
    done = {stage.fingerprint: 1000.0 for stage in first}
    found = priced(plan, done).gpu_hours.by_kind["train"]
    assert found.measured
    assert found.stages == len(second)
    assert found.gpu_hours == pytest.approx(len(second) * 1000 * 8 / 3600)
    unknown = priced(plan, dict.fromkeys(done)).gpu_hours.by_kind["train"]
    assert not unknown.measured


@pytest.mark.parametrize("cut", [0, 1, 13, 100])
def test_what_is_done_costs_nothing_and_the_rest_its_own(
    planner: Planner, priced: Priced, cut: int
) -> None:
    """However a plan is cut, the two parts cost together what the whole does."""
    plan = stages(planner)
    ids = [stage.fingerprint for stage in plan]
    whole = totals(priced(plan))
    first = totals(priced(plan, done=dict.fromkeys(ids[cut:])))
    rest = totals(priced(plan, done=dict.fromkeys(ids[:cut])))
    assert [a + b for a, b in zip(first, rest, strict=True)] == pytest.approx(whole, abs=1e-3)
    nothing = priced(plan, done=dict.fromkeys(ids, 9.0))
    assert totals(nothing) == (0.0, 0.0, 0.0)
    assert over_limits(nothing, Limits(0.0, 0.0)) is None


def test_segments_that_a_run_goes_on_from_can_be_given_back(paper: Profile, priced: Priced) -> None:
    """All of a run's segments but its last: weights and moments, for table 1's online rows."""
    table, _ = named_table("table1")
    plan = list(Plan(plan_table(table, paper, [0], supported_rows(table, paper)).targets))
    online = [stage for stage in plan if stage.kind == "online"]
    last = {s.fingerprint for s in online} - {
        needed.fingerprint for s in online for needed in s.inputs.values()
    }
    assert 0 < len(last) < len(online)
    disk = priced(plan).disk_gb
    ended = priced(plan, done={s.fingerprint: 9.0 for s in online}).disk_gb
    share = (len(online) - len(last)) / len(online)
    assert disk.spent == pytest.approx((disk.kept - ended.kept) * share, rel=0.02)
    assert ended.spent == 0.0


def test_rows_that_share_stages_cost_less_than_each_by_itself(
    planner: Planner, priced: Priced
) -> None:
    """Two metrics share the first iteration, and so its GPU hours."""
    one = stages(planner)
    other = stages(planner, creator={"metric": "a_avg"})
    together = priced([*one, *other])
    alone = [priced(plan) for plan in (one, other)]
    shared = priced([s for s in one if s.fingerprint in {o.fingerprint for o in other}])
    assert shared.gpu_hours.known > 0
    assert together.gpu_hours.known == pytest.approx(
        sum(p.gpu_hours.known for p in alone) - shared.gpu_hours.known
    )


def test_more_gpus_take_less_time_and_more_gpu_hours(planner: Planner, paper: Profile) -> None:
    """Work is split evenly, while all GPUs wait for a stage's start."""
    plan = stages(planner)
    one, eight = (price(plan, paper, gpus("h100-80gb", n)) for n in (1, 8))
    assert one.gpu_hours.wall_hours is not None
    assert eight.gpu_hours.wall_hours is not None
    assert eight.gpu_hours.wall_hours < one.gpu_hours.wall_hours
    assert eight.gpu_hours.known > one.gpu_hours.known


def test_the_least_time_is_that_of_the_longest_chain_or_of_gpus_that_are_always_busy(
    planner: Planner, priced: Priced
) -> None:
    """One run leaves GPUs idle while one GPU answers; of many runs, stages fill them."""
    one, many = (priced(stages(planner, range(n))).gpu_hours for n in (1, 40))
    assert one.wall_hours is not None
    assert many.wall_hours is not None
    assert one.wall_hours > one.known / 8
    assert many.wall_hours == pytest.approx(many.known / 8)


def test_a_model_of_unknown_shape_is_unknown_and_not_zero(paper: Profile) -> None:
    own = paper.model_copy(update={"policy": "somebody/own-model"})
    plan = stages(Planner(NamedWorld(own)))
    found = price(plan, own, priced_gpus(own))
    assert found.gpu_hours.unknown == ["the size of somebody/own-model is not known"]
    unknown = {name for name, kind in found.gpu_hours.by_kind.items() if kind.unknown}
    assert unknown == {"generate", "train", "answer"}
    assert found.disk_gb.models["somebody/own-model"] is None
    assert not found.gpu_hours.complete
    assert "cannot be held" in str(over_limits(found, Limits(gpu_hours=1e9)))


def test_what_a_gpu_cannot_hold_or_nobody_timed_is_unknown(
    planner: Planner, paper: Profile
) -> None:
    large = stages(planner, reward_model="pointwise_large")
    assert price(large, paper, gpus("l40s-48gb", 8)).gpu_hours.unknown == [
        "Skywork/Skywork-Reward-Gemma-2-27B does not fit on 1 l40s-48gb"
    ]
    plan = [stage for stage in stages(planner) if stage.kind == "train"]
    known = gpus("rtx4090-24gb", 8)
    untimed = replace(known, gpu=known.gpu.model_copy(update={"training": None}))
    found = price(plan, paper, untimed).gpu_hours
    assert found.unknown == ["the speed of a rtx4090-24gb in training is not known"]


def test_without_a_price_dollars_are_unknown_and_not_zero(paper: Profile) -> None:
    creator = paper.creator.model_copy(update={"source": "my-own-creator"})
    own = paper.model_copy(update={"creator": creator})
    found = price(stages(Planner(NamedWorld(own))), own, priced_gpus(own))
    (call,) = (call for call in found.usd.calls if call.usd is None)
    assert call.model == "my-own-creator"
    assert call.usd is None
    assert found.usd.known > 0  # the judges'
    assert "HARNESS_CREATOR_PRICE" in str(over_limits(found, Limits(usd=1e9)))


def test_a_users_price_goes_before_the_lists(
    planner: Planner, priced: Priced, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = [stage for stage in stages(planner) if stage.kind == "evolve"]
    monkeypatch.setenv("HARNESS_CREATOR_PRICE", "0,0")
    assert priced(plan).usd.known == 0.0
    monkeypatch.setenv("HARNESS_CREATOR_PRICE", "much")
    with pytest.raises(UserError, match="HARNESS_CREATOR_PRICE"):
        priced(plan)


def test_a_limit_is_kept_by_its_own_price_and_passed_by_less(
    planner: Planner, priced: Priced
) -> None:
    found = priced(stages(planner))
    hours, usd = found.gpu_hours.known, found.usd.known
    assert over_limits(found, Limits(hours, usd)) is None
    assert "GPU hours" in str(over_limits(found, Limits(gpu_hours=hours * (1 - 1e-9))))
    assert "--budget-usd" in str(over_limits(found, Limits(usd=usd * (1 - 1e-9))))
    assert str(over_limits(found, Limits(0.0, 0.0))).count(";") >= 2
    with pytest.raises(UserError, match="--budget-usd -1"):
        Limits(usd=-1.0)


def test_without_gpus_there_are_no_gpu_hours(planner: Planner, paper: Profile) -> None:
    bare = paper.model_copy(update={"priced_for": None})
    found = price(stages(planner), bare, priced_gpus(bare))
    assert found.gpu_hours.known == 0.0
    assert found.hardware is None
    assert found.usd.known > 0
    slip = paper.model_copy(update={"priced_for": PricedFor(gpu="h100-80g", gpus=8)})
    with pytest.raises(UserError, match="h100-80gb"):
        priced_gpus(slip)


def test_every_assumption_has_its_source() -> None:
    assert assumptions()
    assert [name for name, one in assumptions().items() if not one.source] == []
