"""The seeds asked for are kept by table and profile; the most complete ones are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_tables import write_scores

from harness.errors import HarnessError, UserError
from harness.pipeline.runs import plan_table
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.report.asked import ShownSeeds, ever_asked, recall, remember, shown_seeds
from harness.runtime import Store


def test_the_last_seeds_asked_for_are_recalled(tmp_path: Path) -> None:
    assert recall(tmp_path, "table4", "micro") is None
    remember(tmp_path, "table4", "micro", [0, 1, 2])
    remember(tmp_path, "table4", "paper", [7])
    remember(tmp_path, "table4", "micro", (0, 4))
    assert recall(tmp_path, "table4", "micro") == (0, 4)
    assert recall(tmp_path, "table4", "paper") == (7,)
    assert recall(tmp_path, "table5", "micro") is None
    assert ever_asked(tmp_path, "table4", "micro") == (0, 1, 2, 4)
    assert ever_asked(tmp_path, "table4", "paper") == (7,)
    assert ever_asked(tmp_path, "table5", "micro") == ()


def test_a_record_of_the_last_seeds_alone_is_read(tmp_path: Path) -> None:
    remember(tmp_path, "table4", "micro", [0])
    (tmp_path / "asked" / "micro" / "table4.json").write_text('{"seeds": [3, 1]}')
    assert recall(tmp_path, "table4", "micro") == (3, 1)
    assert ever_asked(tmp_path, "table4", "micro") == (1, 3)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", "7", '{"seeds": []}', '{"seeds": ["0"]}', '{"seeds": [], "files": {}}',
     '{"seeds": [0], "earlier": [null]}'],
)  # fmt: skip
def test_a_broken_record_is_one_sentence(tmp_path: Path, text: str) -> None:
    remember(tmp_path, "table4", "micro", [0])
    (tmp_path / "asked" / "micro" / "table4.json").write_text(text)
    for reading in (recall, ever_asked):
        with pytest.raises(HarnessError, match="is broken: delete it"):
            reading(tmp_path, "table4", "micro")
    remember(tmp_path, "table4", "micro", [2])
    assert ever_asked(tmp_path, "table4", "micro") == (2,)


def test_the_most_complete_seeds_are_shown(tmp_path: Path, store: Store) -> None:
    """Table 16 has four rows, each a run: the numbers are how many of them are done."""
    table, profile = load_tables()["table16"], load_profiles()["micro"]
    names = [row.run for row in table.rows]

    def done(seed: int, runs: int) -> None:
        planned = plan_table(table, profile, [seed])
        for name in names[:runs]:
            write_scores(store, planned, str(name), seed, ah_wr={"p0": 1.0})

    def shown(rows: list[str] | None = None) -> ShownSeeds | None:
        return shown_seeds(tmp_path, store, table, profile, rows)

    assert shown() is None
    remember(tmp_path, "table16", "micro", [0, 1, 2])
    remember(tmp_path, "table16", "micro", [5])
    assert shown() == ShownSeeds((5,), 0, {0: 0, 1: 0, 2: 0}, 4)
    # Where no seed has every row, those with most of them.
    done(0, 2)
    done(1, 1)
    done(5, 2)
    assert shown() == ShownSeeds((0, 5), 2, {1: 1, 2: 0}, 4)
    # A seed of other rows, asked for last, takes nothing away from those that are whole.
    for seed in (0, 1, 2):
        done(seed, 4)
    assert shown() == ShownSeeds((0, 1, 2), 4, {5: 2}, 4)
    # What counts is the rows of the report, with their baseline.
    assert shown([table.rows[0].id]) == ShownSeeds((0, 1, 2, 5), 2, {}, 2)
    with pytest.raises(UserError, match="no row `none`"):
        shown(["none"])
    assert shown_seeds(tmp_path, store, table, load_profiles()["single-gpu"]) is None
