"""Figures drawn (bars, lines, a radar, histograms, a scatter plot), and published.

Everything drawn is made of a report's points alone, but for the dots of the scatter plot. What is
published holds the values of single prompts, from which the points are computed again without a
store or a model.
"""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.registry.figures import CorrelationFigure
from harness.report import plots
from harness.report.figures.prompts import HISTOGRAM, NAMES, RHO, RewardData, variance_bounds, xy
from harness.report.figures.report import FILE, FigureReport, as_markdown
from harness.report.figures.scores import Point
from harness.report.plots import GRID, INK, MUTED, OURS, PAPERS, STYLES, Picture, Target
from harness.report.publication import Extent, Kind, differing, without_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def picture(report: FigureReport) -> Picture:
    """Return a figure as a picture that can be drawn."""
    draw = functools.partial(draw_figure, report)
    return Picture(report.heading, FILE, report.alt, draw, tuple(report.findings))


def draw_figure(report: FigureReport, target: Target) -> None:
    """Draw a figure as SVG."""
    DRAW[report.figure.kind](report, target)


def _canvas(
    report: FigureReport,
    target: Target,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    **options: Any,
) -> AbstractContextManager[tuple[Figure, Any]]:
    """Return a canvas with what stands below every figure."""
    below = f"{report.profile} · scale: {report.scale} · {report.seed_count} · intervals: 95%"
    return plots.canvas(
        target, report.figure.id, size, rows, columns, below=below,
        described=(report.figure.title, report.alt), **options,
    )  # fmt: skip


def _ours(report: FigureReport) -> str:
    """Return what our numbers are called beside the paper's."""
    return "ours, on a stand-in" if report.stand_in else "ours"


def _distinct(report: FigureReport, axis: str) -> list[str]:
    """Return the distinct panels, series or places, in order."""
    return list(dict.fromkeys(getattr(point, axis) for point in report.points))


def _at(report: FigureReport, **place: str) -> list[Point]:
    """Return the points of a panel, series or place."""
    return [p for p in report.points if all(getattr(p, k) == v for k, v in place.items())]


def _style(i: int) -> dict[str, Any]:
    """Return how the i-th series is drawn."""
    colour, marker, dashes = STYLES[i % len(STYLES)]
    return {"color": colour, "marker": marker, "linestyle": dashes}


def _half_widths(points: Sequence[Point]) -> list[list[float]]:
    """Return how far the intervals reach below and above the values; 0 where there is none."""
    below = [0.0 if p.low is None or p.value is None else p.value - p.low for p in points]
    above = [0.0 if p.high is None or p.value is None else p.high - p.value for p in points]
    return [below, above]


def _aside(
    axes: Axes, text: str, place: tuple[float, float], *, color: str = MUTED, style: str = "italic"
) -> None:
    """Write a little to the right of a place, as why there is no bar."""
    axes.annotate(
        text,
        place,
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        color=color,
        style=style,
    )


def _draw_gains(report: FigureReport, target: Target) -> None:
    """Draw a row of panels for each group of bars: each column's gain, ours beside the paper's."""
    groups, columns = _distinct(report, "series"), _distinct(report, "panel")
    bars = [len({point.at for point in _at(report, series=group)}) for group in groups]
    size = (1.6 + 1.75 * 2 * len(columns), 1.5 + 0.3 * sum(bars) + 0.35 * len(groups))
    shape = {"sharex": "col", "sharey": "row", "gridspec_kw": {"height_ratios": bars}}
    with _canvas(report, target, size, len(groups), 2 * len(columns), **shape) as (_, panels):
        for i, group in enumerate(groups):
            for j, column in enumerate(columns):
                points = _at(report, series=group, panel=column)
                ours, paper = panels[i][2 * j], panels[i][2 * j + 1]
                _bars(ours, report, points)
                _paper_bars(paper, points)
                if i == 0:
                    unit = next((p.unit for p in points if p.unit), "")
                    # The parts of a heading stand below one another, in lines that fit a panel.
                    title = "\n".join(textwrap.fill(part, 28) for part in column.split(" · "))
                    ours.set_title(f"{title}\n{_ours(report)}", color=OURS, loc="left")
                    paper.set_title("the paper's", color=PAPERS, loc="left")
                    for axes in (panels[-1][2 * j], panels[-1][2 * j + 1]):
                        axes.set_xlabel(_GAINS.get(unit, "gain"))
            panels[i][0].set_ylabel(group.replace(": ", ":\n").replace(" (", "\n("))


_GAINS = {"%": "gain (percentage points)", "1-10": "gain (points of 1 to 10)"}
"""What a gain is called on an axis, by the unit of what gains."""


def _draw_topics(report: FigureReport, target: Target) -> None:
    """Draw a panel for each quantity, with a bar for each topic."""
    columns, topics = _distinct(report, "panel"), _distinct(report, "at")
    size = (9.5, 1.5 + 0.3 * len(topics))
    with _canvas(report, target, size, 1, len(columns), sharey=True) as (_, panels):
        for axes, column in zip(panels[0], columns, strict=True):
            points = _at(report, panel=column)
            _bars(axes, report, points)
            axes.set_title(column, loc="left")
            share = points[0].quantity == "share"
            axes.set_xlabel("share (%)" if share else "units of the reward model")
            if share:
                axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")


def _bars(axes: Axes, report: FigureReport, points: Sequence[Point]) -> None:
    """Draw points as bars with their intervals; the first is on top."""
    _bar_frame(axes, points)
    known = [(i, point) for i, point in enumerate(points) if point.value is not None]
    values = [point.value or 0.0 for _, point in known]
    errors = _half_widths([point for _, point in known])
    places = [i for i, _ in known]
    axes.barh(places, values, height=0.62, color=OURS, alpha=0.85)
    if any(map(any, errors)):
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
    for i, point in enumerate(points):
        if point.value is None:
            _aside(axes, report.why_missing(point), (0, i))


def _paper_bars(axes: Axes, points: Sequence[Point]) -> None:
    """Draw the paper's numbers as hatched bars, which have no intervals."""
    _bar_frame(axes, points)
    known = [(i, point) for i, point in enumerate(points) if point.paper is not None]
    values = [point.paper or 0.0 for _, point in known]
    axes.barh([i for i, _ in known], values, height=0.62, color="white", edgecolor=PAPERS,
              hatch="////")  # fmt: skip
    for i, point in known:
        _aside(axes, point.papers, (max(point.paper or 0.0, 0.0), i), color=INK, style="normal")
    for i, point in enumerate(points):
        if point.paper is None:
            _aside(axes, point.papers, (0, i))
    low, high = min([0.0, *values]), max([0.0, *values])
    # Room for the figures at the ends of the bars.
    axes.set_xlim(low * 1.1, max(axes.get_xlim()[1], high * 1.5))


def _bar_frame(axes: Axes, points: Sequence[Point]) -> None:
    plots.plain_frame(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.axvline(0.0, color=MUTED, linewidth=0.8)
    axes.set_yticks(range(len(points)), [point.at for point in points])
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _draw_iterations(report: FigureReport, target: Target) -> None:
    """Draw ours above the paper's, a column of panels for each size."""
    from matplotlib.lines import Line2D

    columns, series = _distinct(report, "panel"), _distinct(report, "series")
    size = (3.3 * len(columns), 6.4)
    with _canvas(report, target, size, 2, len(columns), sharex=True, sharey="row") as (_, panels):
        for j, column in enumerate(columns):
            points = _at(report, panel=column)
            panels[0][j].set_title(column, loc="left")
            for i, name in enumerate(series):
                own = [point for point in points if point.series == name]
                _line(panels[0][j], own, i, len(series))
                _paper_line(panels[1][j], own, i)
            _list_gaps(panels[0][j], points, "value", report.why_missing)
            _list_gaps(panels[1][j], points, "paper", lambda _: "not printed")
            panels[1][j].set_xlabel("training iterations")
        _line_frame(panels, report.points)
        unit = next((point.unit for point in report.points if point.unit), "")
        panels[0][0].set_ylabel(f"{_ours(report)} ({unit})")
        panels[1][0].set_ylabel(f"the paper's ({unit})")
        for row in panels:
            low, high = row[0].get_ylim()
            row[0].set_ylim(low - 0.25 * (high - low), high)  # room for what is missing
        handles = [
            Line2D([], [], **_style(i), label=name, markersize=4.5) for i, name in enumerate(series)
        ]
        # The paper's last panel has room at its lower right, whatever ours show.
        panels[1][-1].legend(handles=handles, loc="lower right", frameon=False)


def _draw_shares(report: FigureReport, target: Target) -> None:
    """Draw a small panel for each topic, all with the same axes."""
    topics = _distinct(report, "panel")
    columns = min(4, len(topics))
    rows = -(-len(topics) // columns)
    size = (2.4 * columns + 0.4, 1.9 * rows + 1.0)
    with _canvas(report, target, size, rows, columns, sharex=True, sharey=True) as (_, panels):
        for axes, topic in zip(panels.flat, topics, strict=False):
            points = _at(report, panel=topic)
            axes.set_title(topic, loc="left")
            _line(axes, points, 0, 1)
            for point in points:
                if point.value is None:
                    axes.text(
                        int(point.at),
                        0.5,
                        report.why_missing(point),
                        rotation=90,
                        ha="center",
                        va="center",
                        transform=axes.get_xaxis_transform(),
                        color=MUTED,
                        style="italic",
                    )
        _line_frame(panels, report.points)
        for axes in panels.flat[len(topics) :]:
            axes.set_visible(False)
        for axes in panels[-1]:
            axes.set_xlabel("training iteration")
        for row in panels:
            row[0].set_ylabel("share (%)")
        panels[0][0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
        panels[0][0].set_ylim(bottom=0.0)


def _line(axes: Axes, points: Sequence[Point], i: int, among: int) -> None:
    """Draw a series with its intervals, a little beside the others so that none hides another."""
    known = [point for point in points if point.value is not None]
    places = [int(point.at) + 0.06 * (i - (among - 1) / 2) for point in known]
    values, style = [point.value or 0.0 for point in known], _style(i)
    axes.plot(places, values, **style, linewidth=1.3, markersize=4.5)
    if known:
        axes.errorbar(places, values, yerr=_half_widths(known), fmt="none", ecolor=style["color"],
                      elinewidth=1, capsize=2)  # fmt: skip


def _paper_line(axes: Axes, points: Sequence[Point], i: int) -> None:
    """Draw the numbers that the paper prints of a series; it gives no intervals."""
    known = {int(point.at): point.paper for point in points if point.paper is not None}
    axes.plot([*known], [*known.values()], **_style(i), linewidth=1.3, markersize=4.5)


def _list_gaps(
    axes: Axes, points: Sequence[Point], number: str, why: Callable[[Point], str]
) -> None:
    """Write where a number is missing, and why, in a line for each series and reason."""
    gaps: dict[tuple[str, str], list[str]] = {}
    for point in points:
        if getattr(point, number) is None:
            gaps.setdefault((point.series, why(point)), []).append(point.at)
    lines = [f"{name}, {', '.join(places)}: {reason}" for (name, reason), places in gaps.items()]
    axes.text(
        0.98,
        0.02,
        "\n".join(lines),
        transform=axes.transAxes,
        ha="right",
        va="bottom",
        color=MUTED,
        style="italic",
    )


def _line_frame(panels: Any, points: Sequence[Point]) -> None:
    """Give all panels a place for every iteration, whether or not there is a number."""
    places = sorted({int(point.at) for point in points})
    for axes in panels.flat:
        plots.plain_frame(axes, grid="y")
        axes.set_xticks(range(places[0], places[-1] + 1))
        axes.set_xlim(places[0] - 0.3, places[-1] + 0.3)


def _draw_ratings(report: FigureReport, target: Target) -> None:
    """Draw a polygon for each series that is whole, and name the others in the legend."""
    categories, series = _distinct(report, "at"), _distinct(report, "series")
    values = [point.value for point in report.points if point.value is not None]
    polar = {"projection": "polar"}
    with _canvas(report, target, (8.0, 5.4), subplot_kw=polar) as (sheet, panels):
        axes = panels[0][0]
        angles = np.arange(len(categories)) * 2 * np.pi / len(categories)
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_xticks(angles, categories)
        axes.tick_params(axis="x", pad=14)
        if values:
            # The axis need not start at the worst rating; its numbers say where it does.
            low, high = math.floor(min(values) - 0.5), math.ceil(max(values))
            axes.set_ylim(low, high)
            axes.set_yticks(range(low + 1, high + 1))
        axes.set_rlabel_position(180 / len(categories))
        axes.tick_params(axis="y", labelcolor=MUTED)
        axes.grid(color=GRID, linewidth=0.6)
        for i, name in enumerate(series):
            points = _at(report, series=name)
            style = _style(i)
            missing = [point for point in points if point.value is None]
            if missing:
                axes.plot([], [], **style, label=f"{name}: {report.why_missing(missing[0])}")
                continue
            radii = [point.value or 0.0 for point in points]
            axes.plot([*angles, angles[0]], [*radii, radii[0]], **style, linewidth=1.4,
                      markersize=4, label=name)  # fmt: skip
            # Side by side, so that no interval hides another.
            aside = angles + 0.02 * (i - (len(series) - 1) / 2)
            axes.errorbar(aside, radii, yerr=_half_widths(points), fmt="none",
                          ecolor=style["color"], elinewidth=0.8, alpha=0.6)  # fmt: skip
        sheet.legend(loc="outside right center", frameon=False)


def _draw_densities(report: FigureReport, target: Target) -> None:
    """Draw a panel for each metric, the share of prompts in each bin, all with the same axes.

    A bar far above all others would flatten them; it is cut off and its share written on it.
    """
    points = _at(report, panel=HISTOGRAM)
    metrics = list(dict.fromkeys(point.series for point in points))
    # Above the second highest bar of every metric, in %.
    shares = [[p.value or 0.0 for p in points if p.series == metric] for metric in metrics]
    top = 100 * max((sorted(own)[-2] for own in shares), default=0.0) * 1.4 or 100.0
    size = (2.1 * len(metrics) + 0.4, 3.0)
    with _canvas(report, target, size, 1, len(metrics), sharey=True) as (_, panels):
        for axes, metric in zip(panels[0], metrics, strict=True):
            plots.plain_frame(axes, grid="y")
            name, _, symbol = metric.partition(" (")
            axes.set_title(f"{name}\n{symbol.rstrip(')')}", loc="left")
            bins = [point for point in points if point.series == metric]
            if any(point.value is None for point in bins):
                plots.note(axes, report.why_missing(bins[0]))
                continue
            _histogram(axes, bins, top)
        panels[0][0].set_ylabel("share of prompts (%)")


def _histogram(axes: Axes, bins: Sequence[Point], top: float) -> None:
    width = 1.0 / len(bins)
    middles = [float(point.at) + width / 2 for point in bins]
    shares = [100 * (point.value or 0.0) for point in bins]
    axes.bar(middles, shares, width=width, color=OURS, alpha=0.85)
    errors = [[100 * value for value in side] for side in _half_widths(bins)]
    axes.errorbar(middles, shares, yerr=errors, fmt="none", ecolor=INK, elinewidth=0.8)
    for middle, share in zip(middles, shares, strict=True):
        if share > top:
            axes.text(middle + width, 0.96 * top, f"{share:.0f}%: cut off", va="top")
    axes.set_xlim(0.0, 1.0)
    axes.set_xticks([0.0, 0.5, 1.0])
    axes.set_ylim(0.0, top)
    axes.set_xlabel("value, from 0 to 1")


def _draw_correlation(report: FigureReport, target: Target) -> None:
    """Draw a dot for each prompt of the first seed, between the bounds that arithmetic sets.

    The correlations beside them are over all seeds.
    """
    figure, data = report.figure, report.data
    assert isinstance(figure, CorrelationFigure)
    assert isinstance(data, RewardData)
    with _canvas(report, target, (6.4, 4.6)) as (_, panels):
        axes = panels[0][0]
        plots.plain_frame(axes)
        axes.set_xlabel(f"{NAMES[figure.x]}, in units of the reward model")
        axes.set_ylabel(f"{NAMES[figure.y]}")
        points = _at(report, at=RHO)
        if any(point.state != "ok" for point in points):
            plots.note(axes, report.why_missing(points[0]))
            return
        first = data.parts[0]
        x, y = xy(figure, first)
        axes.scatter(x, y, s=9, color=OURS, alpha=0.45, linewidths=0, zorder=3,
                     label=f"prompts of seed {data.seeds[0]}")  # fmt: skip
        if (figure.x, figure.y) == ("a_min", "var"):
            gap = np.linspace(0.0, float(x.max()), 100)
            low, high = variance_bounds(gap, first.rewards.shape[1])
            axes.plot(gap, high, color=INK, linewidth=0.9, linestyle="--",
                      label="largest possible variance")  # fmt: skip
            axes.plot(gap, low, color=INK, linewidth=0.9, linestyle=":",
                      label="least possible variance")  # fmt: skip
        told = []
        for point in points:
            whole = point.low is not None and point.high is not None
            interval = f" (95%: {point.low:.3f} to {point.high:.3f})" if whole else ""
            if point.value is not None:
                told.append(f"{RHO} = {point.value:.3f}{interval}, {point.series}")
        axes.text(0.02, 0.98, "\n".join(told), transform=axes.transAxes, va="top")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88), frameon=False)


DRAW: Mapping[str, Callable[[FigureReport, Target], None]] = {
    "gains": _draw_gains,
    "iterations": _draw_iterations,
    "ratings": _draw_ratings,
    "shares": _draw_shares,
    "densities": _draw_densities,
    "correlation": _draw_correlation,
    "topics": _draw_topics,
}
"""Draws each kind of figure."""


# --- Published ---


def publish_figure(report: FigureReport, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/<figure>/` and return it.

    Raises what `harness.report.publication.Kind.publish` raises.
    """
    return FIGURE.publish(
        report,
        f"{report.profile}/{report.figure.id}",
        results_dir,
        values=report.data.write,
        stages=report.data.stages,
        allow_fewer=allow_fewer,
    )


def figure_extent(report: FigureReport) -> Extent:
    """Return how much a published figure has; its rows are the series of its panels."""
    points = report.points
    return Extent(
        rows=tuple(dict.fromkeys(" / ".join(filter(None, (p.panel, p.series))) for p in points)),
        seeds=report.seeds,
        counts={"numbers": sum(point.value is not None for point in points)},
        lacking=without_numbers((point.name, point.state) for point in points),
    )


def difference(report: FigureReport, folder: Path) -> str | None:
    """Return which number does not follow from the published values, None where all do."""
    data = report.data.read(folder / report.data.file)
    points = report.kind.points(report.figure, data)
    if len(report.points) != len(points):
        return f"number of points ({len(report.points)}, and {len(points)} follow from the data)"
    for was, now in zip(report.points, points, strict=True):
        if differing(was, now, ("panel", "series", "at", "quantity")):
            return f"place `{was.name}`"
        if name := differing(was, now, ("value", "low", "high")):
            return f"{name} of `{was.name}`"
        if (was.state == "ok") != (now.state == "ok"):
            return f"state of `{was.name}`"
    return None


FIGURE = Kind(
    "figure",
    "figure",
    FigureReport,
    figure_extent,
    page=lambda report: as_markdown(report, drawn=True),
    pictures=lambda report: [picture(report)],
    values=lambda report: report.data.file,
    difference=difference,
)
"""A figure with the values of single prompts its points follow from."""
