"""The distance between prompt sets: values by hand, and a metric."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import distance as scipy_distance

from harness.errors import HarnessError
from harness.statistics.distance import bigrams, jensen_shannon
from harness.worlds.embedded.world import EmbeddedPrompts

BAGS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 50), min_size=1)


def prompt_distance(a: list[str], b: list[str]) -> float:
    return jensen_shannon(bigrams(a, str), bigrams(b, str))


def test_half_shared_wordings_have_the_distance_derived_by_hand() -> None:
    """Shares p = (1, 0) and q = (1/2, 1/2), so m = (3/4, 1/4).

    KL(p, m) = log2(4/3); KL(q, m) = (log2(2/3) + log2(2)) / 2 = (2 - log2(3)) / 2.
    """
    divergence = (math.log2(4 / 3) + (2 - math.log2(3)) / 2) / 2
    assert divergence == pytest.approx(0.311278, abs=1e-6)
    found = prompt_distance(["sort it"], ["sort it", "drop it"])
    assert found == pytest.approx(math.sqrt(divergence))


def test_the_embedded_world_masks_its_items_as_one_symbol() -> None:
    shown = EmbeddedPrompts().shown_word
    assert bigrams(["sort 3 b now"], shown) == {("sort", "#"): 1, ("#", "#"): 1, ("#", "now"): 1}
    assert prompt_distance(["sort 3 b"], ["sort 7 1"]) == 1.0
    assert [shown(word) for word in ("a", "9", ";", "it")] == ["#", "#", ";", "it"]


def test_bigrams_do_not_cross_prompts_and_sets_without_any_are_refused() -> None:
    assert bigrams(["sort it", "drop it"], str) == {("sort", "it"): 1, ("drop", "it"): 1}
    with pytest.raises(HarnessError, match="no two adjacent words"):
        prompt_distance(["sort"], ["sort it"])


def test_what_a_bag_counts_as_none_is_not_in_it() -> None:
    one, same = {"a": 1}, {"a": 2, "b": 0}
    assert jensen_shannon(one, same) == jensen_shannon(same, one) == 0.0
    with pytest.raises(HarnessError, match="no two adjacent words"):
        jensen_shannon(one, {"a": 0})


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
