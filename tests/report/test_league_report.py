"""What a league says: areas by hand, controls that bar, verdicts, and ties that are printed."""

from collections.abc import Mapping
from typing import Any

import pytest

from harness.project import results_dir
from harness.registry.declared import load_tables
from harness.registry.schema import Table
from harness.report.league import area, leagues_of
from harness.report.model import FoundLeague, Report
from harness.report.publish import recomputed
from harness.report.scores import RunScores
from harness.statistics import ScoreMatrix

SEEDS = (0, 1, 2, 3)
PROMPTS = ("a", "b", "c")


@pytest.fixture(scope="module")
def table() -> Table:
    return load_tables()["selectors"]


def noise(seed: int, prompt: int, mark: int) -> float:
    """Numbers that cancel over seeds and over prompts."""
    return (0.1, -0.1, 0.05, -0.05)[seed] * (1, 1, 1)[prompt] + (0.02, 0.0, -0.02)[prompt] * mark


def measured_of(table: Table, heights: Mapping[str, tuple[float, ...]]) -> dict[Any, Any]:
    """Scores of some rows at the four marks; those of θ0 are 10."""
    found: dict[Any, Any] = {}
    for number, (row, own) in enumerate({"base": (10.0,) * 4, **heights}.items()):
        for mark, (column, height) in enumerate(zip(table.columns, own, strict=True)):
            run = table.row(row).run_id(column)
            for seed in SEEDS:
                found[run, seed, "ah_wr"] = {
                    prompt: height + (number % 3 + 1) * noise(seed, at, mark)
                    for at, prompt in enumerate(PROMPTS)
                }
    return found


HEIGHTS: dict[str, tuple[float, ...]] = {
    "pool-uniform": (12.0, 14.0, 16.0, 18.0),
    "pool-aa": (12.0, 14.0, 16.0, 18.0),
    "pool-oracle": (16.0, 18.0, 20.0, 22.0),
    "pool-dead": (10.0, 10.0, 10.0, 11.0),
    "pool-eva": (15.0, 17.0, 19.0, 21.0),
    "pool-plr": (12.0, 14.0, 16.0, 18.0),
    "pool-sec": (10.0, 11.0, 12.0, 13.0),
}


def league(
    table: Table, changed: Mapping[str, tuple[float, ...]], seeds: Any = SEEDS
) -> FoundLeague:
    heights = {**HEIGHTS, **changed}
    measured = measured_of(table, heights)
    scores = RunScores.of_table(table, table.rows, seeds, measured)
    found, *_ = leagues_of(table, list(heights), scores)
    return found


def test_an_area_is_the_mean_height_over_the_start() -> None:
    """10, then 12, 14, 16 and 18: a mean height of (5 + 12 + 14 + 16 + 9) / 4 = 14, so 4."""
    heights = (10.0, 12.0, 14.0, 16.0, 18.0)
    made = [ScoreMatrix.from_seeds({0: {"a": h, "b": h}}) for h in heights]
    assert area(made[0], made[1:]).mean == pytest.approx(4.0)
    assert area(made[0], made[4:]).mean == pytest.approx(4.0)


def test_rows_are_ranked_where_the_controls_hold_and_ties_are_ties(table: Table) -> None:
    """Eva is 3 higher from the first mark on: 3 * 3.5 / 4; PLR as high, SEC lower."""
    found = league(table, {})
    verdicts = {own.row: own.verdict for own in found.members}
    assert found.why_not is None
    assert verdicts["pool-eva"] == "above"
    assert verdicts["pool-sec"] == "below"
    assert verdicts["pool-plr"] == "alike"
    assert verdicts["pool-oracle"] == verdicts["pool-uniform"] == "no method"
    (eva,) = [own for own in found.members if own.row == "pool-eva"]
    assert eva.gain is not None
    assert eva.gain[0] == pytest.approx(2.625)
    assert eva.area == pytest.approx(6.625)
    assert "1 above even draws (pool-eva), 1 below (pool-sec), 1 alike" in found.said


def test_early_areas_end_where_even_draws_have_made_most_of_their_gain(table: Table) -> None:
    """Even draws rise from 10 to 18 by 2 a mark: three quarters of it are made at 3/4.

    Up to there eva's mean is (5 + 15 + 17 + 9.5) / 3 and theirs (5 + 12 + 14 + 8) / 3.
    """
    found = league(table, {})
    assert found.early_mark == 3
    early = {own.row: own.early for own in found.members}
    assert early["pool-uniform"] is None
    assert early["pool-eva"] is not None
    assert early["pool-eva"][0] == pytest.approx(2.5)
    sooner = league(table, {"pool-uniform": (15.0, 16.0, 17.0, 18.0)})
    assert sooner.early_mark == 1
    eva = next(own for own in sooner.members if own.row == "pool-eva")
    assert eva.early is not None
    assert eva.early[0] == pytest.approx(0.0)
    flat = league(table, {"pool-uniform": (12.0, 11.0, 10.0, 10.0)})
    assert flat.early_mark is None
    assert {own.early for own in flat.members} == {None}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"pool-oracle": (12.0, 14.0, 16.0, 18.0)}, "pool-oracle is not above"),
        ({"pool-dead": (12.0, 14.0, 16.0, 18.0)}, "pool-dead is not below"),
        ({"pool-aa": (14.0, 16.0, 18.0, 20.0)}, "pool-aa, which draws evenly too"),
    ],
)
def test_nothing_is_ranked_where_a_control_does_not_hold(
    table: Table, changed: Any, why: str
) -> None:
    found = league(table, changed)
    assert found.why_not is not None
    assert why in found.why_not
    assert {own.verdict for own in found.members} == {"open", "no method"}
    assert found.said.startswith("Inadmissible")


def test_two_seeds_rank_nothing_and_one_has_no_gain(table: Table) -> None:
    assert "needs 3 seeds and has 2" in str(league(table, {}, (0, 1)).why_not)
    one = league(table, {}, (0,))
    assert {own.gain for own in one.members} == {None}
    assert one.members[0].area == pytest.approx(4.1, abs=0.3)


def test_running_fewer_methods_makes_none_easier_to_tell(table: Table) -> None:
    few = {row: own for row, own in HEIGHTS.items() if row not in ("pool-plr", "pool-sec")}
    scores = RunScores.of_table(table, table.rows, SEEDS, measured_of(table, few))
    for rows in (list(few), [row.id for row in table.rows]):
        alone, *_ = leagues_of(table, rows, scores)
        p = {own.row: own.p_holm for own in alone.members if own.p_holm is not None}
        together = {own.row: own.p_holm for own in league(table, {}).members}
        assert [*p] == ["pool-eva"]
        assert p["pool-eva"] >= (together["pool-eva"] or 0.0)


def test_what_has_not_run_is_missing_and_not_zero(table: Table) -> None:
    scores = RunScores.of_table(table, table.rows, SEEDS, measured_of(table, HEIGHTS))
    found, *_ = leagues_of(table, [*HEIGHTS, "pool-pcl"], scores)
    (pcl,) = [own for own in found.members if own.row == "pool-pcl"]
    assert (pcl.verdict, pcl.area, pcl.final) == ("missing", None, None)
    assert "1 have not run" in found.said


def test_the_leagues_of_a_table_that_is_not_declared_here_are_kept() -> None:
    """A table of one's own, verified where its file is not."""
    folder = results_dir() / "micro" / "selectors"
    published = Report.model_validate_json((folder / "report.json").read_bytes())
    own = published.model_copy(update={"table": "mine"})
    assert len(own.leagues) == 2
    assert recomputed(own, folder).leagues == own.leagues
