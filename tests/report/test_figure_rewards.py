"""Numbers of figures that come from rewards, against values worked out by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.eva.informativeness import informativeness
from harness.registry.declared import load_tables
from harness.registry.figures import CorrelationFigure, DensitiesFigure, TopicsFigure, load_figures
from harness.report.cells import Availability
from harness.report.figures.data import PromptData
from harness.report.figures.drawing import variance_bounds
from harness.report.figures.points import (
    ALL,
    HISTOGRAM,
    MEAN,
    NAMES,
    PROMPTS,
    RHO,
    SHARE,
    SPREAD,
    SUMMARY,
    TOLD,
    Point,
    gap_name,
    scaled,
    xy,
)
from harness.report.figures.report import correlation_findings, prompt_points, topic_findings

FIGURES: dict[str, Any] = load_figures(load_tables())
DENSITIES: DensitiesFigure = FIGURES["figure9"]
CORRELATION: CorrelationFigure = FIGURES["figure10"]
TOPICS: TopicsFigure = FIGURES["figure12"]


def data(*seeds: list[list[float]], topics: tuple[str, ...] = (), asked: int = 0) -> PromptData:
    """Return reward data of seeds 0, 1, ...; `asked` seeds in all."""
    rows = {
        (1, seed): [
            {"sample": sample, "reward": reward, **({"topic": topics[i]} if topics else {})}
            for i, answers in enumerate(own)
            for sample, reward in enumerate(answers)
        ]
        for seed, own in enumerate(seeds)
    }
    count = asked or len(seeds)
    state = "ok" if count == len(seeds) else "partial"
    found = (Availability(state, len(seeds)),)  # type: ignore[arg-type]
    return PromptData(
        seeds=tuple(range(count)), topics=tuple(dict.fromkeys(topics)), found=found, rows=rows
    )


def by_place(figure: Any, found: PromptData) -> dict[tuple[str, str, str], Point]:
    points = prompt_points(figure, found)
    return {(point.panel, point.series, point.at): point for point in points}


FOUR = [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 5.0]]
"""Gaps 0, 1, 2, 4; variances 0, 0.25, 1, 4; means 0, 0.5, 1, 3."""

HALF = [[0.0, 0.0, 3.0], [0.0, 1.6, 3.2], [0.0, 2.0, 4.0]]
"""Gaps and variances whose rank correlation is a half."""

TWICE = ("math", "math", "coding", "coding")


def test_values_are_scaled_from_0_to_1_and_equal_ones_to_0() -> None:
    assert scaled(np.array([2.0, 3.0, 6.0])).tolist() == [0.0, 0.25, 1.0]
    assert scaled(np.array([2.0, 2.0])).tolist() == [0.0, 0.0]


def test_what_is_told_of_a_density_by_hand() -> None:
    """Gaps 0, 1, 2, 4 scale to 0, 1/4, 1/2, 1; variances 0, 1/4, 1, 4 to 0, 1/16, 1/4, 1.

    Quartiles of the first lie between its values: 3/16, 3/8, 5/8. Of five bins the first holds 0
    and 1/16, the second 1/4, the third 1/2 and the last 1.
    """
    figure = DENSITIES.model_copy(update={"metrics": ("a_min", "var"), "bins": 5})
    points = by_place(figure, data(FOUR))
    gap, var = NAMES["a_min"], NAMES["var"]

    def told(name: str) -> list[float | None]:
        return [points[SUMMARY, name, at].value for at, *_ in TOLD]

    assert told(gap) == [0.25, 0.25, 3 / 16, 3 / 8, 5 / 8]
    assert told(var)[:2] == [0.25, 0.5]
    bins = ("0", "0.2", "0.4", "0.6", "0.8")
    assert [points[HISTOGRAM, gap, at].value for at in bins] == [0.25, 0.25, 0.25, 0.0, 0.25]
    assert [points[HISTOGRAM, var, at].value for at in bins] == [0.5, 0.25, 0.0, 0.0, 0.25]


def test_bins_hold_every_prompt_once() -> None:
    rng = np.random.default_rng(0)
    points = prompt_points(DENSITIES, data(rng.normal(size=(50, 6)).tolist()))
    for metric in DENSITIES.metrics:
        own = (HISTOGRAM, NAMES[metric])
        shares = [p.value or 0.0 for p in points if (p.panel, p.series) == own]
        assert len(shares) == DENSITIES.bins
        assert sum(shares) == pytest.approx(1.0)


def test_a_rank_correlation_over_all_prompts_and_over_those_that_vary() -> None:
    """Three rewards each: gaps 0, 2, 3, 4 and variances 0, 8/9, 2, 8/3 are in one order."""
    alike = [[1.0, 1.0, 1.0], [0.0, 2.0, 2.0], [0.0, 0.0, 3.0], [0.0, 2.0, 4.0]]
    points = by_place(CORRELATION, data(alike))
    assert points["", ALL, RHO].value == pytest.approx(1.0)
    assert points["", SPREAD, RHO].value == pytest.approx(1.0)
    assert points["", ALL, PROMPTS].value == 4.0
    assert points["", SPREAD, PROMPTS].value == 3.0


def test_a_rank_correlation_below_1_by_hand() -> None:
    """Gaps 3, 3.2, 4 rank 1, 2, 3; variances 2, 1.707 and 2.667 rank 2, 1, 3.

    Variances: (0, 0, 3) 2; (0, 1.6, 3.2) 2·1.6²/3 = 1.707; (0, 2, 4) 8/3. Spearman's ρ is
    1 - 6·(1 + 1 + 0)/(3·8) = 0.5.
    """
    points = by_place(CORRELATION, data(HALF))
    assert points["", SPREAD, RHO].value == pytest.approx(0.5)
    said = correlation_findings(CORRELATION, list(points.values()))
    assert said == [
        "Rank correlation of best less worst (A*_min) and variance (var), mean over seeds: 0.500 "
        "over all prompts, 0.500 over prompts with any spread."
    ]


def test_seeds_are_averaged_with_an_interval_over_them() -> None:
    """ρ is 0.5 in one seed and 1 in the other: mean 0.75, half 12.7062·0.25 (t of 1 degree)."""
    whole = [[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 3.0]]
    rho = by_place(CORRELATION, data(HALF, whole))["", ALL, RHO]
    assert rho.value == pytest.approx(0.75)
    assert rho.low == pytest.approx(0.75 - 12.7062 * 0.25, abs=1e-4)
    assert rho.done == 2


def test_a_correlation_that_is_not_defined_says_so() -> None:
    points = prompt_points(CORRELATION, data([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]))
    rho = [point for point in points if point.at == RHO]
    assert [(p.value, p.reason) for p in rho] == [(None, "undefined in 1 of 1 seeds")] * 2
    assert correlation_findings(CORRELATION, points) == []


def test_a_missing_seed_leaves_no_number() -> None:
    points = prompt_points(CORRELATION, data(FOUR, asked=2))
    assert {(p.value, p.state, p.done) for p in points} == {(None, "partial", 1)}


def test_the_bounds_of_a_variance_by_hand() -> None:
    """Range 2. Six rewards: 4/12 and 1. Two: both 1. Three: 4/6, and 2·1·4/9."""
    gap = np.array([2.0])
    assert [b.tolist() for b in variance_bounds(gap, 6)] == [[4 / 12], [1.0]]
    assert [b.tolist() for b in variance_bounds(gap, 2)] == [[1.0], [1.0]]
    assert [b.tolist() for b in variance_bounds(gap, 3)] == [[4 / 6], [8 / 9]]


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 7)),
               elements=st.floats(-100, 100))
)  # fmt: skip
def test_every_variance_lies_within_its_bounds(rewards: np.ndarray) -> None:
    gap, var = informativeness(rewards, "a_min"), informativeness(rewards, "var")
    low, high = variance_bounds(gap, rewards.shape[1])
    assert (var >= low - 1e-6).all()
    assert (var <= high + 1e-6).all()


def test_the_plot_shows_both_metrics_of_each_prompt() -> None:
    x, y = xy(CORRELATION, data(FOUR).of()[0])
    assert (x.tolist(), y.tolist()) == ([0.0, 1.0, 2.0, 4.0], [0.0, 0.25, 1.0, 4.0])
    x, _ = xy(CORRELATION, data(FOUR).of()[0], only_spread=True)
    assert x.tolist() == [1.0, 2.0, 4.0]


def test_topics_by_hand() -> None:
    """Two prompts of math (means 0 and 0.5, gaps 0 and 1), two of coding (1 and 3, 2 and 4)."""
    points = by_place(TOPICS, data(FOUR, topics=TWICE))
    gap = "reward gap: best less worst (A*_min)"
    assert [points[SHARE, SHARE, t].value for t in ("math", "coding")] == [0.5, 0.5]
    assert [points[MEAN, MEAN, t].value for t in ("math", "coding")] == [0.25, 2.0]
    assert [points[gap, gap, t].value for t in ("math", "coding")] == [0.5, 3.0]
    assert topic_findings(TOPICS, list(points.values())) == [
        "The topic with the lowest mean reward is math (0.25).",
        "The topic with the largest reward gap is coding (3.00), before math (0.50).",
    ]


def test_a_topic_that_a_seed_lacks_has_a_share_of_0_and_no_mean() -> None:
    found = data(FOUR, FOUR, topics=TWICE)
    other = [row | {"topic": "math"} for row in found.rows[1, 1]]
    lacking = found.model_copy(update={"rows": {**found.rows, (1, 1): other}})
    points = by_place(TOPICS, lacking)
    assert points[SHARE, SHARE, "coding"].value == 0.25
    mean = points[MEAN, MEAN, "coding"]
    assert (mean.value, mean.reason) == (None, "undefined in 1 of 2 seeds")
    assert topic_findings(TOPICS, list(points.values())) == []


def test_overlapping_intervals_are_named() -> None:
    """Gaps of coding are 3 and 1, of math 0.5 and 2.5: both intervals are wide."""
    other = [[0.0, 2.0], [0.0, 3.0], [0.0, 1.0], [1.0, 2.0]]
    points = prompt_points(TOPICS, data(FOUR, other, topics=TWICE))
    assert "whose interval overlaps with it" in topic_findings(TOPICS, points)[1]


def test_a_metric_of_a_plug_in_is_called_by_its_name() -> None:
    points = [
        point.model_copy(update={"value": 0.5})
        for point in by_place(CORRELATION, data(HALF)).values()
    ]
    figure = CORRELATION.model_copy(update={"y": "mine"})
    assert " and mine, mean over seeds" in correlation_findings(figure, points)[0]
    assert gap_name(TOPICS.model_copy(update={"gap": "mine"})) == "reward gap: mine"
