"""Prompts that are drawn from a mixture."""

from __future__ import annotations

import pytest

from harness.cost.work import Prompts


@pytest.mark.parametrize(
    ("count", "human", "evolved"), [(40, 30, 10), (400, 300, 100), (0, 0, 0), (10, 8, 2)]
)
def test_what_is_drawn_has_the_shares_of_the_mixture(count: int, human: int, evolved: int) -> None:
    """A quarter of 300 and 100 is evolved; of 10 it is 2.5, which is rounded to the even 2."""
    assert Prompts(300, 100).drawn(count) == Prompts(human, evolved)


def test_of_nothing_all_that_is_drawn_is_human() -> None:
    assert Prompts(0).drawn(5) == Prompts(5, 0)
