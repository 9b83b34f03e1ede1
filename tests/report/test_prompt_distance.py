"""The distance of a row's training prompts from its seed prompts and from the benchmarks."""

from __future__ import annotations

from typing import Any

import pytest
from toy_tables import toy_runs, write_prompts

from harness.report.rows import Reader, prompt_distances
from harness.runtime import Store
from harness.statistics.distance import bigrams, jensen_shannon


def prompt_distance(a: list[str], b: list[str]) -> float:
    return jensen_shannon(bigrams(a), bigrams(b))


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
    to_hard: Any = a_min.to_benchmarks["arena_hard"]
    assert to_hard == pytest.approx(prompt_distance(["now sort 3 1 2"], ["now sort 1 2"]))
    assert set(a_min.to_benchmarks) == {"arena_hard", "alpaca_eval"}
    assert to_hard < float(dpo.to_benchmarks["arena_hard"] or 0)


def test_training_prompts_of_some_seeds_are_not_averaged(store: Store) -> None:
    runs = toy_runs()
    write_prompts(store, runs)
    store.discard(runs.runs["dpo-h1", 1].iterations[0].pairs.fingerprint)
    dpo = prompt_distances(runs, Reader(store))[1]
    assert (dpo.state, dpo.done, dpo.to_seed) == ("partial", 1, None)
