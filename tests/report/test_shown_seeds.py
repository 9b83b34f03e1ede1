"""Without `--seeds`, a report shows the seeds that together have most finished runs."""

from functools import partial

import pytest
from toy_tables import write_scores

from harness.errors import UserError
from harness.pipeline.runs import ShownSeeds, plan_table, shown_seeds
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.runtime import Stage, Store

TABLE = load_tables()["table16"]
"""Four rows, each a run."""

plan = partial(plan_table, TABLE, load_profiles()["micro"])


def finish(store: Store, seed: int, runs: int, first: int = 0) -> None:
    """Write the scores of some runs of a seed, from the first."""
    planned = plan([seed])
    with store.writing(Stage("prompts", 1, {"seed": seed}, {}, "prompts")) as output:
        (output / "prompts.parquet").touch()
    for row in TABLE.rows[first : first + runs]:
        write_scores(store, planned, str(row.run), seed, ah_wr={"p0": 1.0})


def test_the_most_complete_seeds_are_shown(store: Store) -> None:
    assert shown_seeds(plan, store) is None
    # Where no seed has every row, those with most of them.
    for seed, runs in {0: 2, 1: 1, 5: 2}.items():
        finish(store, seed, runs)
    assert shown_seeds(plan, store) == ShownSeeds((0, 5), 2, {1: 1}, 4)
    # A seed of fewer rows takes nothing away from those that are whole.
    for seed in (0, 1, 2):
        finish(store, seed, 4)
    assert shown_seeds(plan, store) == ShownSeeds((0, 1, 2), 4, {5: 2}, 4)
    # What counts is the rows of the report, with their baseline.
    some = partial(plan, rows=[TABLE.rows[0].id])
    assert shown_seeds(some, store) == ShownSeeds((0, 1, 2, 5), 2, {}, 2)
    with pytest.raises(UserError, match="no row `none`"):
        shown_seeds(partial(plan, rows=["none"]), store)


def test_seeds_with_the_same_rows_are_shown_rather_than_one_with_more(store: Store) -> None:
    """Two rows at seeds 0 and 1 are four runs, two and another one at seed 2 are three."""
    finish(store, 0, 2)
    finish(store, 1, 2)
    finish(store, 2, 3, first=1)
    assert shown_seeds(plan, store) == ShownSeeds((0, 1), 2, {2: 3}, 4)


def test_a_further_row_of_one_seed_hides_no_seed_of_the_others(store: Store) -> None:
    """Of four rows two at seeds 0 to 2, a third at seed 1 alone, and one at seed 7."""
    for seed, runs in {0: 2, 1: 3, 2: 2, 7: 1}.items():
        finish(store, seed, runs)
    assert shown_seeds(plan, store) == ShownSeeds((0, 1, 2), 2, {7: 1}, 4)
