"""The prioritised buffer: who is drawn, who stays, who leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.eva.evolving import Prompt
from harness.eva.informativeness import weights
from harness.selectors.selector import Buffer, BufferEntry


def entry(number: int, informativeness: float = 1.0) -> BufferEntry:
    return BufferEntry(Prompt(f"p{number}", f"prompt {number}"), informativeness, number)


def ids(buffer: Buffer) -> list[str]:
    return [e.prompt.prompt_id for e in buffer.entries]


def test_weights_are_min_max_with_a_floor_and_sum_to_one() -> None:
    """Values 1, 2, 3 scale to 0, 1/2, 1; a floor of 0.1 makes 0.1, 0.5, 1.0 of sum 1.6."""
    assert weights([1.0, 2.0, 3.0], "a_avg", 0.1) == pytest.approx(
        [0.1 / 1.6, 0.5 / 1.6, 1.0 / 1.6]
    )


def test_an_inverse_metric_prefers_the_low_values() -> None:
    """1 - (0, 1/2, 1) = (1, 1/2, 0), floored at 0: sum 3/2."""
    assert weights([1.0, 2.0, 3.0], "mean_inv", 0.0) == pytest.approx([2 / 3, 1 / 3, 0])


def test_equal_values_have_equal_chances() -> None:
    assert weights([0.0, 0.0, 0.0, 0.0], "a_avg", 0.01) == pytest.approx([0.25] * 4)


def test_without_a_floor_the_least_informative_is_never_drawn_while_others_last() -> None:
    for seed in range(20):
        buffer = Buffer(3, [entry(0, 0.0), entry(1, 1.0), entry(2, 2.0)])
        drawn = buffer.take(2, np.random.default_rng(seed), "a_avg", 0.0, False)
        assert {p.prompt_id for p in drawn} == {"p1", "p2"}


def test_draws_follow_the_weights() -> None:
    """Two prompts of weights 0.25 and 1: the second is drawn first 4 times in 5."""
    first = [
        Buffer(2, [entry(0, 0.0), entry(1, 1.0)])
        .take(1, np.random.default_rng(seed), "a_avg", 0.25, False)[0]
        .prompt_id
        for seed in range(2000)
    ]
    # The standard error of the share is sqrt(0.8 * 0.2 / 2000) = 0.009.
    assert first.count("p1") / 2000 == pytest.approx(0.8, abs=0.04)


def test_what_is_drawn_is_gone() -> None:
    buffer = Buffer(4, [entry(i, i) for i in range(4)])
    drawn = buffer.take(3, np.random.default_rng(0), "a_avg", 0.01, False)
    assert len({p.prompt_id for p in drawn}) == 3
    assert set(ids(buffer)) == {"p0", "p1", "p2", "p3"} - {p.prompt_id for p in drawn}


def test_with_replacement_a_prompt_may_come_twice_and_leaves_once() -> None:
    buffer = Buffer(2, [entry(0, 0.0), entry(1, 5.0)])
    drawn = buffer.take(5, np.random.default_rng(0), "a_avg", 0.0, True)
    assert [p.prompt_id for p in drawn] == ["p1"] * 5
    assert ids(buffer) == ["p0"]


def test_beyond_the_capacity_the_oldest_leave() -> None:
    buffer = Buffer(3, [entry(0, 9.0), entry(1)])
    assert buffer.put([entry(2), entry(3)], "oldest") == 1
    assert ids(buffer) == ["p1", "p2", "p3"]


def test_beyond_the_capacity_the_least_informative_leave_of_equals_the_oldest() -> None:
    buffer = Buffer(3, [entry(0, 2.0), entry(1, 1.0), entry(2, 1.0)])
    assert buffer.put([entry(3, 5.0)], "least_informative") == 1
    assert ids(buffer) == ["p0", "p2", "p3"]


def test_rescoring_changes_informativeness_alone() -> None:
    buffer = Buffer(2, [entry(0, 1.0), entry(1, 2.0)])
    buffer.rescore(np.array([7.0, 8.0]))
    assert buffer.entries == [entry(0, 7.0), entry(1, 8.0)]


def test_a_buffer_that_cannot_fill_a_draw_says_what_to_change() -> None:
    with pytest.raises(HarnessError, match="3 prompts are to be drawn from a buffer that holds 1"):
        Buffer(5, [entry(0)]).take(3, np.random.default_rng(0), "a_avg", 0.01, False)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30),
    floor=st.floats(0.001, 1),
    metric=st.sampled_from(["a_avg", "a_min", "mean_inv", "a_min_inv"]),
)
def test_every_prompt_has_a_chance_and_chances_sum_to_one(
    values: list[float], floor: float, metric: str
) -> None:
    chances = weights(values, metric, floor)
    assert chances.sum() == pytest.approx(1.0)
    assert (chances > 0).all()


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 10))
def test_the_size_never_exceeds_the_capacity(arrivals: list[int], capacity: int) -> None:
    buffer, number = Buffer(capacity), 0
    for count in arrivals:
        fresh = [entry(number + i, float(i)) for i in range(count)]
        number += count
        before = len(buffer)
        evicted = buffer.put(fresh, "oldest")
        assert len(buffer) == before + count - evicted <= capacity
    assert ids(buffer) == [f"p{i}" for i in range(number)][-capacity:]
