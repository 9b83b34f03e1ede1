"""The prioritised buffer: who is drawn, who stays, who leaves."""

from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.eva.evolving import Prompt
from harness.selectors.selector import Buffer, BufferEntry


def entry(number: int, informativeness: float = 1.0) -> BufferEntry:
    return BufferEntry(Prompt(f"p{number}", f"prompt {number}"), informativeness, number)


def ids(buffer: Buffer) -> list[str]:
    return [e.prompt.prompt_id for e in buffer.entries]


def test_without_a_floor_the_least_informative_is_never_drawn_while_others_last() -> None:
    for seed in range(20):
        buffer = Buffer(3, [entry(0, 0.0), entry(1, 1.0), entry(2, 2.0)])
        drawn = buffer.take(2, np.random.default_rng(seed), "a_avg", 0.0)
        assert {p.prompt_id for p in drawn} == {"p1", "p2"}


def test_draws_follow_the_weights() -> None:
    """Two prompts of weights 0.25 and 1: the second is drawn first 4 times in 5."""
    first = [
        Buffer(2, [entry(0, 0.0), entry(1, 1.0)])
        .take(1, np.random.default_rng(seed), "a_avg", 0.25)[0]
        .prompt_id
        for seed in range(2000)
    ]
    # The standard error of the share is sqrt(0.8 * 0.2 / 2000) = 0.009.
    assert first.count("p1") / 2000 == pytest.approx(0.8, abs=0.04)


def test_what_is_drawn_is_gone() -> None:
    buffer = Buffer(4, [entry(i, i) for i in range(4)])
    drawn = buffer.take(3, np.random.default_rng(0), "a_avg", 0.01)
    assert len({p.prompt_id for p in drawn}) == 3
    assert set(ids(buffer)) == {"p0", "p1", "p2", "p3"} - {p.prompt_id for p in drawn}


@pytest.mark.parametrize(
    ("by", "left"), [("oldest", ["p1", "p2", "p3"]), ("least_informative", ["p0", "p2", "p3"])]
)
def test_beyond_the_capacity_the_oldest_leave_or_the_least_informative(
    by: Any, left: list[str]
) -> None:
    """Of two that are the least informative the older one leaves."""
    buffer = Buffer(3, [entry(0, 2.0), entry(1, 1.0), entry(2, 1.0)])
    assert buffer.put([entry(3, 5.0)], by) == 1
    assert ids(buffer) == left


def test_rescoring_changes_informativeness_alone() -> None:
    buffer = Buffer(2, [entry(0, 1.0), entry(1, 2.0)])
    buffer.rescore(np.array([7.0, 8.0]))
    assert buffer.entries == [entry(0, 7.0), entry(1, 8.0)]


def test_a_buffer_that_cannot_fill_a_draw_says_what_to_change() -> None:
    with pytest.raises(HarnessError, match="3 prompts are to be drawn from a buffer that holds 1"):
        Buffer(5, [entry(0)]).take(3, np.random.default_rng(0), "a_avg", 0.01)
