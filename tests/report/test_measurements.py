"""Error rates: counted as they are reached, kept with what repeats them, read back as they are.

The page on over-optimisation says what its numbers say.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_page import contents_of
from toy_tables import stored, toy_runs, write_all, write_prompts

from harness.errors import HarnessError
from harness.registry.schema import Table
from harness.report.measurements import (
    ERROR_RATES,
    OVER_OPTIMISATION,
    PROMPTS,
    PUSHED_FOLDER,
    RATES_FOLDER,
    Counts,
    Dealt,
    ErrorRates,
    Pushed,
    measure,
    one_recipe_twice,
    read_rates,
    simulated_nulls,
)
from harness.report.page.contents import published_pictures
from harness.report.page.page import as_html
from harness.report.publication import Refused
from harness.report.publish import publish, published_folders, read_published
from harness.runtime import Store
from harness.runtime.files import sha256_of


def test_what_is_measured_is_what_the_simulations_say(
    store: Store, tmp_path: Path, table: Table
) -> None:
    runs = toy_runs(seeds=[0, 1, 2, 3])
    write_all(store, runs)
    write_prompts(store, runs)
    results = tmp_path / "results"
    folder = publish(stored(runs, store), results)
    found = measure({"table90": table}, results / "micro", repetitions=3, deals=2)
    assert [entry.seeds for entry in found.simulated] == [3, 5]
    nulls = simulated_nulls([table], 3, seeds=5, prompts=PROMPTS, root=0)
    assert found.simulated[1].judged == Counts.of(nulls).judged == 3
    assert found.simulated[1].decided == Counts.of(nulls).decided
    (twice,) = found.one_recipe_twice
    again = one_recipe_twice(read_published(folder).measured, (0, 1, 2, 3), 2, deals=2)
    assert (twice.table, twice.judged) == ("table90", Counts.of(again).judged)
    assert (
        ERROR_RATES.publish(found, f"micro/{RATES_FOLDER}", results)
        == results / "micro" / RATES_FOLDER
    )
    assert read_rates(results / "micro") == found
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


def dealt(table: str, each: int, judged: int, decided: int, primary: int = 0) -> Dealt:
    return Dealt(
        table=table, seeds=tuple(range(10)), each=each, deals=2, scores="0" * 64, root=0,
        judged=judged, decided=decided, primary_judged=10 * primary, primary_decided=primary,
    )  # fmt: skip


def rates(*twice: Dealt, **simulated: object) -> ErrorRates:
    return ErrorRates.model_validate({
        "level": 0.05, "commit": "0123456789ab", "one_recipe_twice": twice,
        "simulated": [simulated] if simulated else [],
    })  # fmt: skip


MEASURED = rates(
    dealt("table4", 2, 0, 0), tables=["a", "b"], seeds=3, prompts=40, repetitions=40, root=0,
    judged=1200, decided=12, primary_judged=100, primary_decided=5,
)  # fmt: skip


def test_rates_in_words() -> None:
    assert MEASURED.lines == [
        ("simulated, 2 tables", "3", "1,200", "12", "1.0%", "100", "5", "5.0%"),
        ("one recipe under two names, table4", "2", "0", "0", "–", "0", "0", "–"),
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
    (tmp_path / RATES_FOLDER).mkdir()
    (tmp_path / RATES_FOLDER / "report.json").write_text(text)
    with pytest.raises(HarnessError, match="measure again"):
        read_rates(tmp_path)


def test_nothing_measured_is_nothing(tmp_path: Path) -> None:
    assert read_rates(tmp_path) is None


def test_several_tables_are_also_counted_together_by_the_seeds_of_a_name() -> None:
    twice = [dealt("a", 2, 100, 6, 1), dealt("b", 2, 300, 2, 1), dealt("b", 3, 50, 1, 0)]
    all_, *single = rates(*twice).lines
    together = ("2", "400", "8", "2.0%", "20", "2", "10.0%")
    assert all_ == ("one recipe under two names, all tables", *together)
    assert [row[:2] for row in single] == [
        (f"one recipe under two names, {table}", each)
        for table, each in (("a", "2"), ("b", "2"), ("b", "3"))
    ]
    assert len(rates(twice[0]).lines) == 1


# --- Over-optimisation ---

SETTING = {
    "learning_rate": 3e-4, "beta": 0.0, "seed": 100, "prompts": 20, "n": 6,
    "reward_model": "world/rm@00", "commit": "abc", "stages": {"0x": "f" * 64},
}  # fmt: skip


def pushed(*pairs: tuple[float, float]) -> Pushed:
    points = [{"size": i, "reward": r, "oracle": o} for i, (r, o) in enumerate(pairs)]
    return Pushed.model_validate({"points": points, "setting": SETTING})


def test_a_reward_that_rises_while_the_oracle_falls_is_told() -> None:
    said = pushed((0.0, 0.5), (1.0, 0.7), (2.0, 0.6)).finding
    assert "highest at 1x (0.700)" in said
    assert "to 2x it fell by 0.100, and the learned reward rose (+1.000)" in said


def test_a_run_not_pushed_far_enough_says_so() -> None:
    assert "not pushed far enough" in pushed((0.0, 0.5), (1.0, 0.7)).finding


def test_both_can_fall() -> None:
    said = pushed((1.0, 0.5), (0.5, 0.4)).finding
    assert "highest at the start" in said
    assert "fell as well (-0.500)" in said


def test_the_page_its_figure_and_its_numbers_are_published(tmp_path: Path) -> None:
    given = pushed((0.0, 0.5), (1.0, 0.7), (2.0, 0.6))
    folder = OVER_OPTIMISATION.publish(given, f"micro/{PUSHED_FOLDER}", tmp_path)
    assert folder == tmp_path / "micro" / "over-optimisation"
    assert json.loads((folder / "report.json").read_text()) == given.model_dump(mode="json")
    assert "| 1x | 1.000 | 0.700 |" in (folder / "report.md").read_text(encoding="utf-8")
    fewer = pushed((0.0, 0.5), (1.0, 0.7))
    with pytest.raises(Refused, match="what stands there has row `2x` that it has not"):
        OVER_OPTIMISATION.publish(fewer, f"micro/{PUSHED_FOLDER}", tmp_path)
    OVER_OPTIMISATION.publish(fewer, f"micro/{PUSHED_FOLDER}", tmp_path, allow_fewer=True)
    assert (folder / "figure.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_page_that_does_not_follow_from_its_report_is_named(tmp_path: Path) -> None:
    """The digests are those of the changed files, as a careful forger would have them."""
    given = pushed((0.0, 0.5), (1.0, 0.7))
    folder = OVER_OPTIMISATION.publish(given, f"micro/{PUSHED_FOLDER}", tmp_path)
    digests = json.loads((folder / "digests.json").read_text())

    def forge(text: str, without: str = "") -> None:
        (folder / "report.json").write_text(text)
        files = {**digests["files"], "report.json": sha256_of(folder / "report.json")}
        files.pop(without, None)
        (folder / "digests.json").write_text(json.dumps({"files": files}))

    report = given.model_dump(mode="json")
    report["points"][0]["reward"] = 9.0
    forge(json.dumps(report))
    with pytest.raises(HarnessError, match=r"report\.md does not follow from report\.json"):
        OVER_OPTIMISATION.check(folder)
    forge("[]")
    with pytest.raises(HarnessError, match=r"report\.json does not hold a report"):
        OVER_OPTIMISATION.check(folder)
    forge(json.dumps(given.model_dump(mode="json")), without="figure.svg")
    with pytest.raises(HarnessError, match=r"figure\.svg is not what was published"):
        OVER_OPTIMISATION.check(folder)
