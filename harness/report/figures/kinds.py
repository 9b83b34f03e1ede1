"""The kinds of figures: how each is read, computed, laid out as text, and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.report.figures import draw_bars, draw_histograms, draw_lines, draw_radar, draw_scatter
from harness.report.figures.correlation import correlation_findings, correlation_points
from harness.report.figures.densities import SUMMARY, density_points
from harness.report.figures.point import Point
from harness.report.figures.rewards import RewardData, read_reward_data
from harness.report.figures.scores import ScoreData, read_score_data, score_points
from harness.report.figures.shares import ShareData, read_share_data, share_points
from harness.report.figures.topics import topic_findings, topic_points
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.report.figures.drawing import Drawing
    from harness.trainer.figure_runs import FigureRuns

Axis = Literal["panel", "series", "at"]


Data = ScoreData | RewardData | ShareData
"""The values of single prompts behind a figure."""


@dataclass(frozen=True)
class Layout:
    """How points become small tables of text.

    Attributes:
        block: What has a table of its own; None for one table.
        row: What has a row.
        column: What has a column.
        only: The one panel that is written down, where the others are drawn only.
    """

    block: Axis | None
    row: Axis
    column: Axis
    only: str | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of figure.

    Attributes:
        read: Reads its data from a store.
        data: The class that reads them back from a published file.
        points: Computes its points from the figure's declaration and its data.
        layout: How they become text.
        draw: Draws it.
        findings: Says what was found, in sentences computed from the points.
    """

    read: Callable[[FigureRuns, Store], Data]
    data: type[Data]
    points: Callable[[Any, Any], list[Point]]
    layout: Layout
    draw: Callable[[Drawing, Path], None]
    findings: Callable[[Any, list[Point]], list[str]] = lambda figure, points: []


KINDS: Mapping[str, Kind] = {
    "gains": Kind(
        read_score_data,
        ScoreData,
        score_points,
        Layout("series", "at", "panel"),
        draw_bars.draw_gains,
    ),
    "iterations": Kind(
        read_score_data,
        ScoreData,
        score_points,
        Layout("panel", "series", "at"),
        draw_lines.draw_iterations,
    ),
    "ratings": Kind(
        read_score_data, ScoreData, score_points, Layout(None, "at", "series"), draw_radar.draw
    ),
    "shares": Kind(
        read_share_data,
        ShareData,
        share_points,
        Layout(None, "panel", "at"),
        draw_lines.draw_shares,
    ),
    "densities": Kind(
        read_reward_data,
        RewardData,
        density_points,
        Layout(None, "series", "at", only=SUMMARY),
        draw_histograms.draw,
    ),
    "correlation": Kind(
        read_reward_data,
        RewardData,
        correlation_points,
        Layout(None, "series", "at"),
        draw_scatter.draw,
        correlation_findings,
    ),
    "topics": Kind(
        read_reward_data,
        RewardData,
        topic_points,
        Layout(None, "at", "panel"),
        draw_bars.draw_topics,
        topic_findings,
    ),
}
"""What is done for each kind of figure."""


def shown(points: Sequence[Point], layout: Layout) -> list[Point]:
    """Return the points that are written down as text."""
    return [point for point in points if layout.only in (None, point.panel)]
