"""What the rest of a plan takes: requests counted by hand, and time scaled from finished stages."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from toy_identities import NamedWorld

from harness.pipeline.algorithm import Planner, Run
from harness.pipeline.estimate import Timings, finished_stages, prompts_of, requests_of
from harness.registry.profile import Profile, load_profiles
from harness.registry.recipe import Recipe
from harness.runtime import Plan, Store
from harness.runtime.stage import Stage
from harness.worlds.lookup import world_of
from harness.worlds.real.scoring import topic_settings

pytestmark = pytest.mark.usefixtures("list_prices")


@pytest.fixture
def planner(paper: Profile) -> Planner:
    return Planner(NamedWorld(paper))


def chain(planner: Planner, *arms: str, kind: Any = "policy", seed: int = 0, **more: Any) -> Run:
    recipe = Recipe.model_validate({"algorithm": "dpo", "chain": arms, **more})
    return planner.run("-".join(arms), recipe, seed, kind)


def of_kind(stages: Iterable[Stage], kind: str) -> list[Stage]:
    return [stage for stage in stages if stage.kind == kind]


def counted(profile: Profile, *stages: Stage) -> dict[tuple[str, str], int]:
    return {(it.role, it.model): it.requests for it in requests_of(profile, stages)}


def test_the_creator_is_asked_for_each_rewrite_and_again_for_a_tenth(
    planner: Planner, paper: Profile
) -> None:
    """A quarter of 10,000, four rewrites each, a tenth again, at $1.25 and $5 for a million.

    11,000 x (495 x 1.25 + 235 x 5) / 1e6 = $19.73.
    """
    (evolve,) = of_kind(Plan(chain(planner, "human", "eva").targets), "evolve")
    (found,) = requests_of(paper, [evolve])
    assert (found.role, found.model, found.requests) == ("creator", "gemini-1.5-pro", 11_000)
    assert found.usd_per_million == (1.25, 5)
    assert found.usd == pytest.approx(19.73, abs=0.01)


def test_the_judge_reads_every_item_and_the_scorer_every_prompt(
    planner: Planner, paper: Profile
) -> None:
    """Arena-Hard in two orders, MT-Bench in two turns, complexity and quality of 10,000 prompts."""
    judges = chain(planner, "human").judges
    for name, requests in {"arena_hard": 1000, "alpaca_eval": 805, "mt_bench": 160}.items():
        assert list(counted(paper, judges[name]).values()) == [requests]
    assert counted(paper, judges["downstream"]) == {}
    rated = chain(planner, "human", "eva", kind="prompts").judges["prompt_judge"]
    scorer = ("scorer", "gemini-1.5-flash")
    assert counted(paper, rated) == {scorer: 20_000}
    (prompts, *_) = of_kind(Plan(rated.inputs.values()), "prompts")
    topics = Stage("topics", 1, topic_settings(scorer[1]), {"prompts": prompts})
    assert counted(paper, rated, topics) == {scorer: 30_000}


@pytest.mark.parametrize(
    ("name", "requests"),
    [("micro", {"arena_hard": 2000, "downstream": 945}), ("laptop", {"held_out": 600})],
)
def test_an_endpoint_answers_the_benchmarks_of_our_own_worlds(
    name: str, requests: dict[str, int]
) -> None:
    """Downstream tasks have questions of their own; a guard reads 100 of `held_out`'s 600."""
    profile = load_profiles()[name].model_copy(update={"engine": "endpoint"})
    judges = chain(Planner(world_of(profile)), "human").judges
    for benchmark, number in requests.items():
        answers = judges[benchmark].inputs["answers"]
        assert list(counted(profile, answers).values()) == [number]


def test_a_judge_reads_as_many_items_as_the_score_that_has_most(paper: Profile) -> None:
    declared = paper.benchmarks["arena_hard"]
    items = dict.fromkeys(declared.columns, 500)
    benchmarks = {
        **paper.benchmarks,
        "arena_hard": declared.model_copy(update={"items": items | {declared.columns[-1]: 100}}),
    }
    profile = paper.model_copy(update={"benchmarks": benchmarks})
    judge = chain(Planner(NamedWorld(profile)), "human").judges["arena_hard"]
    assert list(counted(profile, judge).values()) == [1000]


def test_online_the_creator_is_asked_at_most_as_during_mix_up(
    planner: Planner, paper: Profile
) -> None:
    """3x are 3,750 steps of 8; half of each has 4 rewrites, 16 a step, and a tenth again."""
    online = {"prompts": "eva", "size": 3}
    run = chain(planner, algorithm="rloo", online=online)
    segments = of_kind(Plan(run.targets), "online")
    assert counted(paper, *segments) == {("creator", "gemini-1.5-pro"): round(3750 * 16 * 1.1)}
    human = chain(planner, algorithm="rloo", online={**online, "prompts": "human"})
    assert counted(paper, *of_kind(Plan(human.targets), "online")) == {}


def test_models_that_the_harness_serves_are_free_and_others_have_the_users_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = load_profiles()["single-gpu"]
    stages = list(Plan(chain(Planner(NamedWorld(profile)), "human", "eva").targets))
    assert requests_of(profile, stages) == []
    monkeypatch.setenv("HARNESS_CREATOR_URL", "http://127.0.0.1:8000/v1")
    (found,) = requests_of(profile, stages)
    assert (found.role, found.usd) == ("creator", None)
    monkeypatch.setenv("HARNESS_CREATOR_PRICE", "0,0")
    assert [it.usd for it in requests_of(profile, stages)] == [0.0]


def test_time_is_proportional_to_size_within_a_kind_and_a_policy(planner: Planner) -> None:
    """One iteration on 10,000 prompts took 100 s, so one on 30,000 takes 300 s."""
    small, large = (Plan(chain(planner, "human", size=size, seed=size).targets) for size in (1, 3))
    took = [(stage, 100.0) for stage in small]
    timings = Timings(took, shipped=False)
    for kind, factor in (("generate", 3), ("train", 3), ("prompts", 3), ("answer", 1)):
        (stage, *_) = of_kind(large, kind)
        assert timings.seconds(stage) == pytest.approx(100.0 * factor)
    other = planner.profile.model_copy(update={"policy": "owner/other"})
    elsewhere = Plan(chain(Planner(NamedWorld(other)), "human").targets)
    assert timings.seconds(of_kind(elsewhere, "train")[0]) is None


def test_half_an_epoch_takes_half_as_long(planner: Planner) -> None:
    (train,) = of_kind(Plan(chain(planner, "human").targets), "train")
    half = Stage("train", train.version, {**train.settings, "epochs": 0.5}, train.inputs)
    epochs = float(train.settings["epochs"])  # type: ignore[arg-type]
    timings = Timings([(half, 10.0)], shipped=False)
    assert timings.seconds(train) == pytest.approx(20.0 * epochs)


def test_training_on_those_chosen_of_a_pool_takes_as_long_as_on_so_many(planner: Planner) -> None:
    """60,000 prompts are answered, and 10,000 of them trained on."""
    by_the_oracle: dict[str, Any] = {"metric": "uniform", "oracle": "best"}
    for creator in ({"metric": "a_min"}, by_the_oracle):
        stages = Plan(chain(planner, "human", pool=6, creator=creator).targets)
        sizes = {kind: prompts_of(of_kind(stages, kind)[0]) for kind in ("generate", "train")}
        assert sizes == {"generate": 60_000, "train": 10_000}


def test_what_was_never_timed_has_no_time_unless_it_runs_no_model(planner: Planner) -> None:
    stages = Plan(chain(planner, "human", "eva").targets)
    nothing, shipped = Timings([], shipped=False), Timings([], shipped=True)
    untimed = {stage.kind for stage in stages if nothing.seconds(stage) is None}
    assert untimed == {"generate", "annotate", "evolve", "train", "answer", "judge"}
    assert all(shipped.seconds(stage) for stage in stages)


def test_the_stages_of_a_store_are_read_with_their_inputs(planner: Planner, tmp_path: Path) -> None:
    """One whose record is damaged is left out, with all that follow from it."""
    store, stages = Store(tmp_path / "store"), list(Plan(chain(planner, "human").targets))[:3]
    for stage in stages:
        with store.writing(stage):
            pass
    found = dict(finished_stages(store))
    assert {stage.fingerprint for stage in found} == {stage.fingerprint for stage in stages}
    assert min(found.values()) >= 0.0
    record = store.path(stages[1].fingerprint) / "stage.json"
    record.chmod(0o644)
    record.write_text("{}")
    assert [stage.kind for stage, _ in finished_stages(Store(store.root))] == [stages[0].kind]
