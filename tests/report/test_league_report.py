"""What a league says: areas by hand, controls that bar, verdicts, and ties that are printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from toy_tables import write_files

from harness.pipeline.runs import plan_table
from harness.project import results_dir
from harness.registry.declared import load_tables
from harness.registry.profile import load_profiles
from harness.registry.schema import Table
from harness.report.league import STROKES, _found, area, league_pictures, leagues_of
from harness.report.parts import FoundLeague
from harness.report.publication import read_published
from harness.report.rows import StoreReader
from harness.report.scores import TableScores
from harness.runtime import Store
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
    scores = TableScores.of_table(table, table.rows, seeds, measured)
    return _found(table.leagues[0], list(heights), scores, {})


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
    # 17 at 2/4 and 19 at 3/4: 18 lies halfway.
    assert eva.overtakes == pytest.approx(0.625)
    assert len(eva.by_seed) == 4
    assert "1 above even draws (pool-eva), 1 below (pool-sec), 1 alike" in found.said


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


def test_what_has_not_run_is_missing_and_not_zero(table: Table) -> None:
    scores = TableScores.of_table(table, table.rows, SEEDS, measured_of(table, HEIGHTS))
    found = _found(table.leagues[0], [*HEIGHTS, "pool-pcl"], scores, {})
    (pcl,) = [own for own in found.members if own.row == "pool-pcl"]
    assert (pcl.verdict, pcl.area, pcl.final) == ("missing", None, None)
    assert "1 have not run" in found.said


@pytest.mark.usefixtures("toy_world")
def test_a_curve_has_the_means_over_seeds_at_each_mark_and_the_costs_those_of_the_last(
    table: Table, store: Store
) -> None:
    """The part before mark m of seed s has 10 m + s tokens: 10 m + 1.5 in the mean of four seeds.

    Each of the four parts trains on one prompt whose answers differ and one whose do not.
    """
    runs = plan_table(table, load_profiles()["micro"], SEEDS, ["pool-uniform"])
    whole = table.row("pool-uniform").run_id(table.columns[-1])
    for seed in SEEDS:
        for part, stage in enumerate(runs.runs[whole, seed].training, start=1):
            spent = 10 * part + seed
            names = "scored_tokens creator_tokens gradient_steps read_prompts trained insertion"
            row = {"reward_mean": float(part + seed), "predicted": None, "prompt": "sort 2 1"}
            pair = [row | {"prompt_id": f"p{part}-{i}", "spread": float(i)} for i in range(2)]
            said = dict.fromkeys(names.split(), 1) | {"tokens": spent, "rollouts": 2 * spent}
            write_files(store, stage, trained=pair, summary=said)
    heights = {"pool-uniform": HEIGHTS["pool-uniform"]}
    scores = TableScores.of_table(table, table.rows, SEEDS, measured_of(table, heights))
    ((uniform,),) = [it.members for it in leagues_of(runs, StoreReader(store), scores)]
    assert [mark.score for mark in uniform.curve] == pytest.approx([12.0, 14.0, 16.0, 18.0])
    assert [mark.tokens for mark in uniform.curve] == [11.5, 21.5, 31.5, 41.5]
    assert [mark.rollouts for mark in uniform.curve] == [23.0, 43.0, 63.0, 83.0]
    assert [mark.reward for mark in uniform.curve] == [2.5, 3.5, 4.5, 5.5]
    assert uniform.costs is not None
    assert (uniform.costs.tokens, uniform.costs.screened) == (41.5, 81.0)
    assert (uniform.costs.prompts, uniform.costs.signal) == (8.0, 0.5)
    assert (uniform.costs.topics, uniform.costs.foreseen) == (1.0, None)


def test_every_curve_is_drawn_in_every_panel_with_its_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sheets: list[Figure] = []

    @contextmanager
    def kept(_target: Any, _salt: str, size: Any, rows: int, columns: int) -> Iterator[Any]:
        sheets.append(Figure(figsize=size))
        yield sheets[-1], sheets[-1].subplots(rows, columns)

    monkeypatch.setattr("harness.report.league.canvas", kept)
    report, _ = read_published(results_dir() / "micro" / "selectors")
    for picture, found in zip(league_pictures(report), report.leagues, strict=True):
        picture.svg()
        drawn = [own for own in found.members if own.curve]
        assert len(drawn) > 10
        by_axis = {place.get_xlabel(): place.lines for place in sheets[-1].axes}
        for own, tokens, reward in zip(
            drawn, by_axis["tokens generated"], by_axis["mean learned reward"], strict=True
        ):
            assert np.array_equal(tokens.get_xdata(), [mark.tokens for mark in own.curve])
            assert np.array_equal(reward.get_xdata(), [mark.reward for mark in own.curve])
            assert np.array_equal(reward.get_ydata(), [mark.score for mark in own.curve])
            assert tokens.get_color() == STROKES[own.verdict][0]
        strokes = [(it.get_color(), it.get_marker()) for it in by_axis["tokens generated"]]
        assert len(set(strokes)) == len(strokes)
