"""Error rates: counted as they are reached, kept with what repeats them, read back as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_page import contents_of
from toy_tables import toy_runs, write_all, write_prompts

from harness.errors import HarnessError
from harness.registry.schema import Table
from harness.report.error_rates import (
    ERROR_RATES,
    FOLDER,
    PROMPTS,
    Counts,
    Dealt,
    ErrorRates,
    measure,
    one_recipe_twice,
    read,
    simulated_nulls,
)
from harness.report.page.contents import published_pictures
from harness.report.page.page import as_html
from harness.report.publish import publish, published_folders, read_published
from harness.runtime import Store


def test_what_is_measured_is_what_the_simulations_say(
    store: Store, tmp_path: Path, table: Table
) -> None:
    runs = toy_runs(seeds=[0, 1, 2, 3])
    write_all(store, runs)
    write_prompts(store, runs)
    results = tmp_path / "results"
    folder = publish(runs, store, results)
    found = measure({"table90": table}, results / "micro", repetitions=3, deals=2)
    assert [entry.seeds for entry in found.simulated] == [3, 5]
    nulls = simulated_nulls([table], 3, seeds=5, prompts=PROMPTS, root=0)
    assert found.simulated[1].judged == Counts.of(nulls).judged == 3
    assert found.simulated[1].decided == Counts.of(nulls).decided
    (twice,) = found.one_recipe_twice
    again = one_recipe_twice(read_published(folder).measured, (0, 1, 2, 3), 2, 0)
    assert (twice.table, twice.judged) == ("table90", Counts.of(again).judged)
    assert ERROR_RATES.publish(found, f"micro/{FOLDER}", results) == results / "micro" / FOLDER
    assert read(results / "micro") == found
    # It is no table, and no figure either.
    assert list(published_folders(results)) == [folder]
    assert list(published_pictures(results / "micro", {"table90"})) == []


@pytest.fixture
def table() -> Table:
    """Return a table with one claim."""
    from copy import deepcopy

    from toy_tables import DECLARATION

    declared = deepcopy(DECLARATION)
    declared["claims"] = [
        {"id": "it", "primary": True, "statement": "A beats B.", "source": "here",
         "test": {"kind": "compare", "left": "eva-a_min", "op": ">", "right": "dpo-1",
                  "column": "ah_wr"}},
    ]  # fmt: skip
    return Table.model_validate(declared)


def dealt(table: str, seeds: int, judged: int, decided: int, primary: int = 0) -> Dealt:
    return Dealt(
        table=table, seeds=tuple(range(seeds)), deals=2, scores="0" * 64, root=0, judged=judged,
        decided=decided, primary_judged=10 * primary, primary_decided=primary,
    )  # fmt: skip


def rates(*twice: Dealt, **simulated: object) -> ErrorRates:
    return ErrorRates.model_validate({
        "level": 0.05, "commit": "0123456789ab", "one_recipe_twice": twice,
        "simulated": [simulated] if simulated else [],
    })  # fmt: skip


MEASURED = rates(
    dealt("table4", 4, 0, 0), tables=["a", "b"], seeds=3, prompts=40, repetitions=40, root=0,
    judged=1200, decided=12, primary_judged=100, primary_decided=5,
)  # fmt: skip


def test_rates_in_words() -> None:
    assert MEASURED.lines == [
        ("simulated, 2 tables", "3", "1,200", "12", "1.0%", "100", "5", "5.0%"),
        ("one recipe under two names, table4", "4", "0", "0", "–", "0", "0", "–"),
    ]


def test_the_page_shows_what_was_measured_and_nothing_else(store: Store) -> None:
    runs = toy_runs()
    page = as_html(contents_of(runs, store, rates=MEASURED))
    assert '<td class="num">1.0%</td>' in page
    assert "commit 0123456789ab" in page
    none = as_html(contents_of(runs, store))
    assert "Not measured at this profile" in none
    assert "1.0%" not in none


@pytest.mark.parametrize("text", ["{", "[]", '{"simulated": [{}], "one_recipe_twice": []}'])
def test_a_broken_file_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "report.json").write_text(text)
    with pytest.raises(HarnessError, match="measure again"):
        read(tmp_path)


def test_nothing_measured_is_nothing(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_several_tables_are_also_counted_together() -> None:
    all_, *single = rates(dealt("a", 5, 100, 6, 1), dealt("b", 10, 300, 2, 1)).lines
    assert all_[0] == "one recipe under two names, all tables"
    assert all_[1:] == ("5, 10", "400", "8", "2.0%", "20", "2", "10.0%")
    assert [row[0] for row in single] == [f"one recipe under two names, {t}" for t in "ab"]
    assert len(rates(dealt("a", 5, 100, 6, 1)).lines) == 1
