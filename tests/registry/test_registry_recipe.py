"""Recipes: what is consistent, what is the same run, and what a prefix is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.registry.recipe import Recipe, in_short, layered, merge


def dpo(*chain: str, **settings: Any) -> dict[str, Any]:
    return {"algorithm": "dpo", "chain": list(chain), **settings}


def rloo(**online: Any) -> dict[str, Any]:
    return {"algorithm": "rloo", "online": online}


def canonical(settings: dict[str, Any]) -> dict[str, Any]:
    return Recipe.model_validate(settings).canonical()


METRICS = ["a_min", "a_avg", "a_dis", "var", "mean", "mean_inv", "a_min_inv", "uniform"]
ARMS = ["human", "eva", "select", "same"]

creators = st.fixed_dictionaries(
    {},
    optional={
        "metric": st.sampled_from(METRICS),
        "sampling": st.sampled_from(["weighted", "greedy"]),
        "fraction": st.sampled_from([0.25, 0.5]),
        "evolutions": st.integers(1, 5),
        "evolved_share": st.sampled_from([0.5, 0.8]),
        "shuffled": st.booleans(),
        "parents": st.sampled_from([None, 6]),
        "reach": st.sampled_from([None, "parent", "even"]),
    },
).filter(lambda creator: not (creator.get("shuffled") and creator.get("metric") == "uniform"))
oracles = st.fixed_dictionaries(
    {"metric": st.just("uniform"), "oracle": st.sampled_from(["best", "worst"])},
    optional={"shuffled": st.booleans(), "parents": st.just(6), "reach": st.just("topic")},
)
chains = st.lists(st.sampled_from(ARMS), max_size=3).map(lambda rest: ["human", *rest])
recipes: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"algorithm": st.sampled_from(["dpo", "simpo", "orpo"]), "chain": chains},
    optional={
        "size": st.sampled_from([1, 2, 6]),
        "reward_model": st.sampled_from(["pointwise", "pointwise_large", "pairwise"]),
        "creator": creators | oracles,
    },
)
offline = recipes.filter(lambda r: "eva" in r["chain"] or not r.get("creator", {}).get("parents"))


@given(offline)
def test_a_canonical_recipe_validates_to_itself(settings: dict[str, Any]) -> None:
    canonical = Recipe.model_validate(settings).canonical()
    # The roles behind the informativeness are output only: one for each scored iteration.
    again = {k: it for k, it in canonical.items() if k != "informativeness_reward_model"}
    assert Recipe.model_validate(again).canonical() == canonical


@given(offline, creators.filter(lambda creator: not creator.get("parents")))
def test_a_chain_of_human_prompts_is_the_same_run_whatever_the_creator(
    settings: dict[str, Any], creator: dict[str, Any]
) -> None:
    human = settings | {"chain": ["human"] * len(settings["chain"]), "creator": {}}
    assert canonical(human) == canonical(human | {"creator": creator})


def test_selecting_ignores_how_prompts_would_evolve() -> None:
    evolving = {"method": "self_instruct", "evolutions": 9, "evolved_share": 0.1}
    plain = canonical(dpo("human", "select"))
    assert plain == canonical(dpo("human", "select", creator=evolving))
    assert plain != canonical(dpo("human", "select", creator={"metric": "var"}))


ORACLES = ({"oracle": "best"}, {"oracle": "worst", "shuffled": True})


@pytest.mark.parametrize("creator", [*ORACLES, {"parents": 6}, {"reach": "even"}])
def test_what_controls_set_is_named_only_where_it_is_said(creator: dict[str, Any]) -> None:
    """So that no other run is another one by their being there."""
    plain = canonical(dpo("human", "eva", creator={"metric": "uniform"}))
    other = canonical(dpo("human", "eva", creator={"metric": "uniform"} | creator))
    assert not {"oracle", "shuffled", "parents", "reach"} & set(plain["creator"])
    assert other == plain | {"creator": plain["creator"] | creator}
    selects = canonical(dpo("human", "select"))
    control = canonical(dpo("human", "select", step_matched=True, creator={"shuffled": True}))
    shuffled = selects["creator"] | {"shuffled": True}
    assert control == selects | {"step_matched": True, "creator": shuffled}


def test_selecting_ignores_what_is_said_of_parents_and_not_who_chooses() -> None:
    def of(**creator: Any) -> dict[str, Any]:
        return canonical(dpo("human", pool=6, creator={"metric": "uniform"} | creator))

    assert of(reach="even") == of()
    assert of() != of(oracle="best") != of(oracle="worst")


@pytest.mark.parametrize("online", ORACLES)
def test_online_the_oracle_is_named_only_where_it_chooses(online: dict[str, Any]) -> None:
    plain, other = canonical(rloo(size=2)), canonical(rloo(size=2, **online))
    assert not {"oracle", "shuffled"} & set(plain["online"])
    assert other == plain | {"online": plain["online"] | online}


def test_only_what_is_chosen_by_a_metric_needs_rewards() -> None:
    same = canonical(dpo("human", "same", "eva"))
    assert same["informativeness_reward_model"] == ["pointwise"]
    uniform = canonical(dpo("human", "eva", creator={"metric": "uniform"}))
    assert "informativeness_reward_model" not in uniform


def test_a_stated_default_is_the_same_run_as_an_unstated_one() -> None:
    assert canonical(dpo("human", "eva")) == canonical(dpo("human", "eva", reward_model_from=2))


def test_a_large_reward_model_can_start_with_the_second_iteration() -> None:
    large = {"reward_model": "pointwise_large", "reward_model_from": 2}
    recipe = Recipe.model_validate(dpo("human", "eva", "eva", **large))
    roles = [recipe.reward_model_at(i) for i in (1, 2, 3)]
    assert roles == ["pointwise", "pointwise_large", "pointwise_large"]
    assert recipe.informativeness_reward_model_at(2) == "pointwise_large"


def test_sppo_weights_prompts_by_the_pointwise_rewards() -> None:
    recipe = Recipe.model_validate(
        dpo("human", "eva", algorithm="sppo", reward_model="pairwise_large")
    )
    assert recipe.informativeness_reward_model_at(2) == "pointwise"


def test_online_on_human_prompts_is_the_same_run_whatever_the_buffer() -> None:
    one, two = (canonical(rloo(prompts="human", n_new=n)) for n in (4, 8))
    assert one == two


EVA = ("human", "eva")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"algorithm": "rloo"}, "needs an `online` block"),
        (rloo() | {"chain": ["human"]}, "`chain` belongs to offline"),
        (rloo() | {"algorithm": "oaif", "size": 2}, "`size` belongs to offline"),
        (dpo(), "needs a `chain`"),
        (dpo("human", online={}), "takes no `online` block"),
        (dpo("eva"), "start with `human`"),
        (dpo("human", algorithm=None), "takes no other setting"),
        ({"algorithm": None, "online": {}}, "takes no other setting"),
        (dpo("human", train="scratch"), "ends in `eva`"),
        (dpo("human", rewriter=True), "needs an `eva`"),
        (dpo(*EVA, train="scratch", rewriter=True), "`train: scratch` revises no pairs"),
        (dpo("human", "same", step_matched=True), "a `select`"),
        (dpo(*EVA, creator={"metric": "uniform", "shuffled": True}), "`uniform` has none"),
        (dpo(*EVA, creator={"oracle": "best"}), "say `metric: uniform`"),
        (dpo("human", creator={"parents": 6}), "`creator.parents` needs an `eva` iteration"),
        (dpo(*EVA, creator={"parents": 1}), "greater than or equal to 2"),
        (dpo(*EVA, creator={"reach": "far"}), "'parent', 'topic', 'people' or 'even'"),
        (dpo("off_target"), "a `size` of at least 2"),
        (dpo("off_target", "human", size=2), "`off_target` is a `chain` of one iteration"),
        (dpo("human", pool=1), "greater than or equal to 2"),
        (dpo("human", pool=2, size=2), "leaves no choice of `size` 2"),
        (dpo(*EVA, pool=2), "`pool` needs a `chain` of one iteration"),
        (dpo("matched", skip=1), "`skip` needs a `chain` that starts with `human`"),
        (rloo(shuffled=True), "the values of the `oracle`"),
        (rloo(oracle="best", metric="uniform"), "leave `metric: uniform` out"),
        (rloo(oracle="best", prompts="human"), "goes with `prompts: eva` or `pool`, not `human`"),
        (rloo(passes=2), "`passes` goes with `prompts: human` or `matched`"),
        (rloo(prompts="pool"), "go together"),
        (rloo(prompts="pool", league={"mark": 5}), "lies beyond the 4 `marks`"),
        (dpo("human", algorithm="sppo"), "needs a pairwise"),
        (dpo(*EVA, algorithm="sppo", reward_model="pairwise", rewriter=True), "needs a pointwise"),
        (dpo("human", reward_model_from=2), "lies beyond"),
        (dpo(*EVA, creator={"method": None}), "needs a `creator.method`"),
        (rloo(ratio_evol=1.5), "less than or equal to 1"),
        (rloo(evolve_share=0.3), "not a whole number"),
        (rloo(n_new=0), "greater than or equal to 1"),
        (dpo("human", creator={"metrc": "var"}), "Extra inputs"),
    ],
)
def test_an_impossible_recipe_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Recipe.model_validate(settings)


nested = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2) | st.none(),
    lambda children: st.dictionaries(st.sampled_from("abc"), children, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(st.sampled_from("abc"), nested, max_size=3)


@given(mappings, mappings)
def test_merging_is_idempotent_and_the_override_wins(
    low: dict[str, Any], high: dict[str, Any]
) -> None:
    merged = merge(low, high)
    assert merge(merged, high) == merged
    assert merge({}, low) == merge(low, {}) == low
    assert all(merged[k] == v for k, v in high.items() if not isinstance(v, dict))


def test_lists_are_replaced_and_mappings_merge() -> None:
    low = {"chain": ["human", "eva"], "creator": {"metric": "a_min", "fraction": 0.25}}
    assert merge(low, {"chain": ["human"], "creator": {"metric": "var"}}) == {
        "chain": ["human"],
        "creator": {"metric": "var", "fraction": 0.25},
    }


def test_a_base_row_takes_nothing_from_its_table_or_column() -> None:
    table, column = {"online": {"n_new": 4}}, {"online": {"n_new": 8}}
    assert layered(table, {"algorithm": None}, column) == {"algorithm": None}


def test_a_summary_names_what_differs_from_the_default() -> None:
    """The rules of the buffer, which no recipe sets, are not among it."""
    said = in_short(Recipe.model_validate(rloo(size=3, n_new=2)))
    assert said == "rloo: online on eva prompts, a_avg, n new 2, size 3"
