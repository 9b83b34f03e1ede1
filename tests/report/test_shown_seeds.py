"""Without `--seeds`, a report shows the seeds that together have most finished runs."""

from collections.abc import Sequence
from functools import partial

import pytest
from toy_tables import write_scores

from harness.errors import UserError
from harness.pipeline.runs import ShownSeeds, plan_table, shown_seeds
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.runtime import Stage, Store


def test_the_most_complete_seeds_are_shown(store: Store) -> None:
    """Table 16 has four rows, each a run: the numbers are how many of them are done."""
    table, profile = load_tables()["table16"], load_profiles()["micro"]
    names = [row.run for row in table.rows]
    plan = partial(plan_table, table, profile)

    def done(seed: int, runs: int) -> None:
        planned = plan([seed])
        with store.writing(Stage("prompts", 1, {"seed": seed}, {}, "prompts")) as output:
            (output / "prompts.parquet").touch()
        for name in names[:runs]:
            write_scores(store, planned, str(name), seed, ah_wr={"p0": 1.0})

    def shown(rows: Sequence[str] | None = None) -> ShownSeeds | None:
        return shown_seeds(lambda seeds: plan(seeds, rows), store)

    assert shown() is None
    # Where no seed has every row, those with most of them.
    done(0, 2)
    done(1, 1)
    done(5, 2)
    assert shown() == ShownSeeds((0, 5), 2, {1: 1}, 4)
    # A seed of fewer rows takes nothing away from those that are whole.
    for seed in (0, 1, 2):
        done(seed, 4)
    assert shown() == ShownSeeds((0, 1, 2), 4, {5: 2}, 4)
    # What counts is the rows of the report, with their baseline.
    assert shown([table.rows[0].id]) == ShownSeeds((0, 1, 2, 5), 2, {}, 2)
    with pytest.raises(UserError, match="no row `none`"):
        shown(["none"])


def test_a_further_row_of_one_seed_hides_no_seed_of_the_others(store: Store) -> None:
    """Of four rows two at seeds 0 to 2, a third at seed 1 alone, and one at seed 7."""
    table, profile = load_tables()["table16"], load_profiles()["micro"]
    plan = partial(plan_table, table, profile)
    for seed, count in {0: 2, 1: 3, 2: 2, 7: 1}.items():
        planned = plan([seed])
        with store.writing(Stage("prompts", 1, {"seed": seed}, {}, "prompts")) as output:
            (output / "prompts.parquet").touch()
        for row in table.rows[:count]:
            write_scores(store, planned, str(row.run), seed, ah_wr={"p0": 1.0})
    assert shown_seeds(plan, store) == ShownSeeds((0, 1, 2), 2, {7: 1}, 4)
