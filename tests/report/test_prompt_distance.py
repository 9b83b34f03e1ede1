"""The distance between prompt sets: values by hand, and a metric."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import distance as scipy_distance
from toy_tables import toy_runs, write_prompts

from harness.errors import HarnessError
from harness.report.rows import Reader, prompt_distances
from harness.runtime import Store
from harness.statistics.distance import (
    bigrams,
    jensen_shannon,
    mask_items,
)

BAGS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 50), min_size=1)


def prompt_distance(a: list[str], b: list[str]) -> float:
    return jensen_shannon(bigrams(a), bigrams(b))


def test_half_shared_wordings_have_the_distance_derived_by_hand() -> None:
    """Shares p = (1, 0) and q = (1/2, 1/2), so m = (3/4, 1/4).

    KL(p, m) = log2(4/3); KL(q, m) = (log2(2/3) + log2(2)) / 2 = (2 - log2(3)) / 2.
    """
    divergence = (math.log2(4 / 3) + (2 - math.log2(3)) / 2) / 2
    assert divergence == pytest.approx(0.311278, abs=1e-6)
    found = prompt_distance(["sort it"], ["sort it", "drop it"])
    assert found == pytest.approx(math.sqrt(divergence))


def test_items_are_masked_as_one_symbol_unless_asked_otherwise() -> None:
    assert bigrams(["sort 3 b now"]) == {("sort", "#"): 1, ("#", "#"): 1, ("#", "now"): 1}
    assert prompt_distance(["sort 3 b"], ["sort 7 1"]) == 0.0
    unmasked = (bigrams([text], str) for text in ("sort 3 b", "sort 7 1"))
    assert jensen_shannon(*unmasked) == 1.0
    assert [mask_items(word) for word in ("a", "9", ";", "it")] == ["#", "#", ";", "it"]


def test_bigrams_do_not_cross_prompts_and_sets_without_any_are_refused() -> None:
    assert bigrams(["sort it", "drop it"]) == {("sort", "it"): 1, ("drop", "it"): 1}
    with pytest.raises(HarnessError, match="no two neighbouring words"):
        prompt_distance(["sort"], ["sort it"])


@given(BAGS, BAGS, BAGS)
def test_it_is_a_metric_between_zero_and_one(
    a: dict[str, int], b: dict[str, int], c: dict[str, int]
) -> None:
    ab = jensen_shannon(a, b)
    assert 0.0 <= ab <= 1.0
    assert ab == pytest.approx(jensen_shannon(b, a), abs=1e-12)
    assert jensen_shannon(a, a) == pytest.approx(0.0, abs=1e-7)
    assert jensen_shannon(a, c) <= ab + jensen_shannon(b, c) + 1e-7
    if not a.keys() & b.keys():
        assert ab == pytest.approx(1.0)


@given(BAGS, BAGS)
def test_it_agrees_with_scipy_and_depends_on_shares_only(
    a: dict[str, int], b: dict[str, int]
) -> None:
    keys = sorted({*a, *b})
    p, q = ([bag.get(key, 0) for key in keys] for bag in (a, b))
    known = float(scipy_distance.jensenshannon(p, q, base=2))
    expected = 0.0 if math.isnan(known) else known
    assert jensen_shannon(a, b) == pytest.approx(expected, abs=1e-7)
    tripled = Counter({key: 3 * n for key, n in a.items()})
    assert jensen_shannon(tripled, b) == pytest.approx(jensen_shannon(a, b), abs=1e-7)


def test_each_row_is_placed_against_its_seed_prompts_and_the_benchmarks(store: Store) -> None:
    """Bigrams, items masked: seed prompts and dpo-h1's pairs `sort # # #` (sort #, # #, # #).

    The benchmark's last turn `now sort # #` is also what the evolved pairs `now sort 3 1 2` are
    near to: (now sort, sort #, # #) against (now sort, sort #, # #, # #).
    """
    runs = toy_runs()
    assert {found.state for found in prompt_distances(runs, Reader(store))} == {
        "not_available",
        "not_run",
    }
    write_prompts(store, runs)
    base, dpo, uniform, a_min = prompt_distances(runs, Reader(store))
    assert (base.state, base.to_seed) == ("not_available", None)
    assert (dpo.state, dpo.done, dpo.to_seed) == ("ok", 2, 0.0)
    assert uniform.to_seed == a_min.to_seed
    assert a_min.to_seed == pytest.approx(prompt_distance(["now sort 3 1 2"], ["sort 3 1 2"]))
    to_hard = a_min.to_benchmarks["arena_hard"]
    assert to_hard == pytest.approx(prompt_distance(["now sort 3 1 2"], ["now sort 1 2"]))
    assert set(a_min.to_benchmarks) == {"arena_hard", "alpaca_eval"}
    assert to_hard is not None
    assert to_hard < float(dpo.to_benchmarks["arena_hard"] or 0)


def test_training_prompts_of_some_seeds_are_not_averaged(store: Store) -> None:
    runs = toy_runs()
    write_prompts(store, runs)
    store.discard(runs.runs["dpo-h1", 1].iterations[0].pairs.fingerprint)
    dpo = prompt_distances(runs, Reader(store))[1]
    assert (dpo.state, dpo.done, dpo.to_seed) == ("partial", 1, None)
