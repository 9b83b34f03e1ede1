"""Prompts that repeat an earlier one are counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.worlds.real.prompts import Duplicates, duplicates


def test_duplicates_are_counted_by_text_and_by_words() -> None:
    """Of six, one repeats a text, and two more only its words; the first is no repetition."""
    prompts = ["Why?", "why", "Why?", "WHY...", "Why not?", "How?"]
    assert duplicates(prompts) == Duplicates(prompts=6, same_text=1, same_words=3)


@given(st.lists(st.text(max_size=60), max_size=6))
def test_counts_add_up(prompts: list[str]) -> None:
    counted = duplicates(prompts)
    assert 0 <= counted.same_text <= counted.same_words <= max(0, len(prompts) - 1)
