"""Laws of a league: real small trainings by every selector, whose ledgers add up."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from computing import compute, online_rows, rows, small, summary
from scipy.stats import entropy

from harness.errors import UserError
from harness.extensions import SELECTORS
from harness.pipeline.algorithm import Planner, Run, whole_budget
from harness.pipeline.estimate import Timings
from harness.registry.profile import Profile
from harness.registry.recipe import Online, Recipe
from harness.report.facts import _online
from harness.worlds.embedded.world import category_of_first_operation
from harness.worlds.lookup import world_of

pytestmark = pytest.mark.usefixtures("shipped_world")

NAMES = list(SELECTORS.shipped)
N, B = 6, 4


def planned(
    profile: Profile, name: str, *, algorithm: str = "rloo", online: Any = None, **league: Any
) -> Run:
    base = {"prompts": "pool", "minibatch": B, "n_new": 2} | (online or {})
    chosen = {"selector": name, "visits": 1, "marks": 1} | league
    settings = Online.model_validate(base | {"league": chosen})
    recipe = Recipe(algorithm=algorithm, online=settings)
    return Planner(world_of(small(profile))).run(f"run-{name}", recipe, 0)


@pytest.fixture(scope="module")
def trained(micro: Profile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of every selector in both leagues, and of some controls, computed once."""
    cut = {"uniform": 2, "mopps": 2}
    runs = {name: planned(micro, name, budget="rollouts", marks=cut.get(name, 1)) for name in NAMES}
    runs |= {f"{name}+": planned(micro, name, grows=True) for name in ("eva", "accel", "mopps")}
    runs["oracle"] = planned(micro, "uniform", online={"oracle": "best"})
    runs["ignored"] = planned(micro, "lilo", online={"shuffled": True})
    runs["steps"] = planned(micro, "dapo", budget="steps")
    runs["whole"] = planned(micro, "mopps", budget="rollouts", marks=1)
    runs["oaif"] = planned(micro, "lilo", algorithm="oaif", budget="steps")
    targets = [stage for run in runs.values() for stage in run.training]
    store = compute(tmp_path_factory.mktemp("league"), *targets)
    return {"store": store, "runs": runs}


@pytest.mark.parametrize("name", [*NAMES, "eva+", "accel+", "mopps+", "oracle", "ignored", "steps"])
def test_every_rollout_is_charged_once(name: str, trained: dict[str, Any]) -> None:
    """Trained on are N rollouts of B prompts a step, what the trainer itself has counted."""
    store, run = trained["store"], trained["runs"][name]
    trained_on = last = 0
    for stage in run.training:
        said = summary(store, stage)
        points = store.progress(stage.fingerprint)
        steps = [point.step for point in points]
        assert steps == list(range(last + 1, last + 1 + len(steps)))
        last = steps[-1]
        assert said["gradient_steps"] == last
        assert said["trained"] == last * B * N
        assert points[-1].metrics["rollouts"] == said["rollouts"]
        trained_on += len(rows(store, stage, "trained"))
        assert trained_on == last * B
    assert said["rollouts"] >= said["trained"] + said["insertion"]
    assert said["scored_tokens"] == said["tokens"] >= said["rollouts"]
    screens = name in ("dapo", "band", "speed", "lilo", "greso", "sfl", "cures", "adarft", "steps")
    made_to_choose = said["rollouts"] - said["trained"] - said["insertion"]
    assert (made_to_choose > 0) == (screens or name == "ignored")
    assert (said["insertion"] > 0) == (name in ("eva+", "accel+"))
    assert (said["creator_tokens"] > 0) == name.endswith("+")
    assert (said["read_prompts"] > 0) == (name == "pcl")


@pytest.mark.parametrize("name", NAMES)
def test_a_row_ends_with_the_step_that_uses_its_budget_up(
    name: str, trained: dict[str, Any]
) -> None:
    """16 prompts of 6 rollouts are 96, and 48 at the first of two marks."""
    store, run = trained["store"], trained["runs"][name]
    for part, stage in enumerate(run.training, start=1):
        points = store.progress(stage.fingerprint)
        before = points[-2].metrics["rollouts"] if len(points) > 1 else 0
        assert before < 96 * part // len(run.training) <= summary(store, stage)["rollouts"]


def test_what_a_row_cost_is_read_off_its_stages(trained: dict[str, Any], micro: Profile) -> None:
    """Four steps of four prompts in two parts; e to the entropy of their categories."""
    store, run = trained["store"], trained["runs"]["mopps"]
    table: Any = SimpleNamespace(profile=small(micro))
    found = _online(run, table, store)
    seen = online_rows(store, run)
    told = Counter(category_of_first_operation(row["prompt"]) for row in seen)
    assert found["size"] == len(seen) == 16
    assert found["topics"] == pytest.approx(np.exp(entropy(list(told.values()))))
    assert found["distinct"] == len({row["prompt"] for row in seen})
    assert found["signal"] == np.mean([row["spread"] > 0 for row in seen])
    assert (found["trained"], found["screened"], found["insertion"]) == (96, 0, 0)


def test_where_a_run_is_judged_changes_nothing(trained: dict[str, Any]) -> None:
    """MoPPS in two parts and in one: the same weights, to the last bit."""
    store, runs = trained["store"], trained["runs"]
    ends = [runs[name].training[-1].fingerprint for name in ("mopps", "whole")]
    weights = [(store.open(end) / "model/model.safetensors").read_bytes() for end in ends]
    assert weights[0] == weights[1]


def test_what_was_screened_is_what_is_trained_on(trained: dict[str, Any]) -> None:
    """The rewards of LILO's prompts are those they were chosen by: none is flatter than dropped."""
    store, runs = trained["store"], trained["runs"]
    lilo, ignored = (
        np.mean([row["spread"] for row in online_rows(store, runs[name])])
        for name in ("lilo", "ignored")
    )
    assert lilo > ignored
    assert summary(store, runs["oaif"].training[0])["gradient_steps"] == 4


def test_a_budget_is_what_even_draws_take(micro: Profile) -> None:
    """400 prompts, 8 a step: 50 steps, 2,400 rollouts, each half of 14 tokens."""
    hyper = micro.training.rloo
    assert hyper is not None
    online = Online(prompts="pool", league={})  # type: ignore[arg-type]
    found = [whole_budget(online, hyper, 400, unit) for unit in ("steps", "rollouts", "tokens")]
    assert found == [50, 2400, 16800]


def test_a_pass_takes_as_long_in_whatever_unit_its_budget_is(micro: Profile) -> None:
    steps, *others = (
        planned(micro, "mopps", budget=unit).training[0] for unit in ("steps", "rollouts", "tokens")
    )
    timings = Timings([(steps, 8.0)], shipped=False)
    assert [timings.seconds(stage) for stage in others] == [8.0, 8.0]


def test_marks_are_parts_of_one_run_and_visits_set_the_pool(micro: Profile) -> None:
    early = planned(micro, "mopps", marks=2, mark=1)
    late = planned(micro, "mopps", marks=2)
    assert [s.fingerprint for s in early.training] == [late.training[0].fingerprint]
    counts = [
        planned(micro, "mopps", visits=visits).iterations[0].prompts.settings["count"]
        for visits in (1, 3)
    ]
    assert counts == [16, 6]


@pytest.mark.parametrize(
    ("league", "words"),
    [
        ({"options": {"candidate": 3}}, "does not take these `options`"),
        ({"visits": 16}, "lower `visits`"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    micro: Profile, league: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        planned(micro, "mopps", **league)


@pytest.mark.parametrize("name", ["buffer", "minibatch", "n_new", "n_new_bootstrap"])
def test_eva_has_the_sizes_of_the_league(micro: Profile, name: str) -> None:
    with pytest.raises(UserError, match=f"`{name}` is the league's"):
        planned(micro, "eva", options={name: 1})
