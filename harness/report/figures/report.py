"""The report of a figure, computed here or read from what is published: points, words, origin."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, computed_field

from harness.pipeline.runs import FigureRuns
from harness.registry.figures import AnyFigure, CorrelationFigure, TopicsFigure
from harness.registry.paper import the_paper
from harness.registry.profile import benchmark_of
from harness.report import view
from harness.report.figures import points
from harness.report.figures.data import Data, PromptData, ScoreData, stored_prompts
from harness.report.figures.points import Point
from harness.report.model import Origin, Scale
from harness.report.origin import origin_of
from harness.report.view import APPLIES_NOT, Block, grouped, plain, signed
from harness.runtime import Store
from harness.statistics import mean_over_seeds, spearman
from harness.strict import Strict
from harness.words import counted

_HEAD_WIDTH = 14

Coordinate = Literal["panel", "series", "at"]


@dataclass(frozen=True)
class FigureKind:
    """How a kind of figure is computed and reported as text.

    `block` splits points into tables, whose rows and columns are told by the next coordinates.
    """

    block: Coordinate | None
    row: Coordinate
    column: Coordinate
    places: Callable[[FigureRuns, Any, Sequence[str]], points.Places] | None = None
    """Yields the points of a score figure, without their numbers."""
    values: Callable[[Any, PromptData], points.SeedValues] | None = None
    """Yields a prompt figure's values in each seed."""
    told: str | None = None
    """The one panel reported as text, if the others are only drawn."""
    drawn: str | None = None
    """The one panel that is drawn, if the others are only reported as text."""
    findings: Callable[[Any, Sequence[Point]], list[str]] = lambda figure, points: []

    def place(self, point: Point) -> tuple[str, str, str]:
        """Return the block, row and column of a point, in text and in drawings."""
        block = getattr(point, self.block) if self.block else ""
        return block, getattr(point, self.row), getattr(point, self.column)


def correlation_findings(figure: CorrelationFigure, shown: Sequence[Point]) -> list[str]:
    rho = {point.series: point for point in shown if point.at == points.RHO}
    if any(point.value is None for point in rho.values()):
        return []
    told = ", ".join(f"{p.value:.3f} over {series}" for series, p in rho.items())
    names = f"{points.label_of(figure.x)} and {points.label_of(figure.y)}"
    return [f"Rank correlation of {names}, mean over seeds: {told}."]


def topic_findings(figure: TopicsFigure, shown: Sequence[Point]) -> list[str]:
    """Return the extreme topics and how the two rankings agree; empty while unknown."""
    means = {p.at: p.value for p in shown if p.panel == points.MEAN and p.value is not None}
    gaps = {p.at: p for p in shown if p.panel == points.gap_name(figure) and p.value is not None}
    if len(means) < 2 or means.keys() != gaps.keys():
        return []
    lowest = min(means, key=means.__getitem__)
    first, second = sorted(gaps.values(), key=lambda point: -(point.value or 0.0))[:2]
    apart = second.high is None or first.low is None or second.high < first.low
    overlap = "" if apart else ", whose interval overlaps with it"
    said = [
        f"The topic with the lowest mean reward is {lowest} ({means[lowest]:.2f}).",
        f"The topic with the largest reward gap is {first.at} ({first.value:.2f}), before "
        f"{second.at} ({second.value:.2f}){overlap}.",
    ]
    rho = spearman(list(means.values()), [gaps[topic].value or 0.0 for topic in means])
    if rho is not None:
        said.append(
            f"Over the {len(means)} topics the rank correlation of mean reward and reward gap is "
            f"{rho:+.2f}."
        )
    return said


KINDS: Mapping[str, FigureKind] = {
    "gains": FigureKind("series", "at", "panel", places=points.gains),
    "iterations": FigureKind("panel", "series", "at", places=points.iterations),
    "ratings": FigureKind(None, "at", "series", places=points.ratings),
    "shares": FigureKind(None, "panel", "at", values=points.shares),
    "densities": FigureKind(
        None, "series", "at", values=points.densities, told=points.SUMMARY, drawn=points.HISTOGRAM
    ),
    "correlation": FigureKind(
        None, "series", "at", values=points.correlation, findings=correlation_findings
    ),
    "topics": FigureKind(None, "at", "panel", values=points.topics, findings=topic_findings),
}


def points_of(figure: AnyFigure, data: Data, known: Iterable[Point]) -> list[Point]:
    """Compute a figure's points from its data; `known` has those of scores, without numbers."""
    if isinstance(data, ScoreData):
        return points.score_points(data, known)
    return prompt_points(figure, data)


def prompt_points(figure: AnyFigure, data: PromptData) -> list[Point]:
    """Return means over seeds with intervals; no number if a seed is missing."""
    values_of = KINDS[figure.kind].values
    assert values_of is not None
    shown = []
    for panel, series, at, quantity, unit, values in values_of(figure, data):
        found = data.found[int(at) - 1 if figure.kind == "shares" else 0]
        reason, low, mean, high = found.reason, None, None, None
        known = [value for value in values if value is not None]
        if found.state == "ok" and len(known) < len(values):
            reason = f"undefined in {len(values) - len(known)} of {len(values)} seeds"
        elif found.state == "ok":
            mean, low, high = mean_over_seeds(known)
        shown.append(Point(
            panel=panel, series=series, at=at, quantity=quantity, unit=unit,
            state=found.state, done=found.done, reason=reason, value=mean, low=low, high=high,
        ))  # fmt: skip
    return shown


DECIMALS = {"level": 2, "reward": 2, "rank correlation": 3, "count": 0}
"""Decimal places of quantities that do not depend on the unit."""


def number_text(value: float, point: Point) -> str:
    if point.quantity == "share":
        return f"{100 * value:.1f}%"
    decimals = DECIMALS.get(point.quantity, 1 if point.unit == "%" else 2)
    return signed(value, decimals) if point.quantity == "gain" else f"{value:.{decimals}f}"


class FigureReport(Strict):
    model_config = ConfigDict(extra="ignore")  # computed fields are published too

    figure: Annotated[AnyFigure, Field(discriminator="kind")]
    profile: str
    scale: Scale
    seeds: tuple[int, ...]
    stand_in: bool
    """Whether the profile's benchmarks are stand-ins for the paper's."""
    points: tuple[Point, ...]
    data: Annotated[Data, Field(discriminator="file")]
    origin: Origin

    @computed_field  # type: ignore[prop-decorator]
    @property
    def findings(self) -> list[str]:
        return [plain(said) for said in self.kind.findings(self.figure, self.points)]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def missing(self) -> list[str]:
        """Why points have no number: each reason once, with the state that it explains."""
        reasons: dict[str, str] = {}
        for point in self.points:
            if point.reason is not None:
                reasons.setdefault(point.reason, self.text_of(point))
        return [plain(f"{words}: {reason}") for reason, words in reasons.items()]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def alt(self) -> str:
        numbers, where = _numbers(self.drawn), {"profile": self.profile, "scale": self.scale}
        told = self.figure.alt.format(**where, seeds=self.seed_count, numbers=numbers)
        return plain(" ".join([told, *self.findings]))

    @property
    def kind(self) -> FigureKind:
        return KINDS[self.figure.kind]

    @property
    def seed_count(self) -> str:
        return counted(len(self.seeds), "seed")

    def why_missing(self, point: Point) -> str:
        if point.value is not None:
            return ""
        if point.state == "ok":
            return point.reason or "undefined"
        return view.state_words(point.state, point.done, len(self.seeds))

    def text_of(self, point: Point) -> str:
        """Format our number with its interval's half-width, or why there is none."""
        if point.value is None:
            return "undefined" if point.state == "ok" else self.why_missing(point)
        if point.high is None:
            return number_text(point.value, point)
        half = number_text(point.high - point.value, point).lstrip("+")
        return f"{number_text(point.value, point)} ±{half}"

    @property
    def heading(self) -> str:
        number, title = self.figure.source.figure, self.figure.title
        return plain(f"Figure {number}: {title} ({self.profile}, scale: {self.scale})")

    @property
    def drawn(self) -> list[Point]:
        only = self.kind.drawn
        return [point for point in self.points if only in (None, point.panel)]

    @property
    def blocks(self) -> list[Block]:
        """The numbers as small tables, the paper's below ours, then findings and notes."""
        kind = self.kind
        told = (point for point in self.points if kind.told in (None, point.panel))
        parts = grouped((kind.place(point)[0], point) for point in told)
        notes = [plain(note) for note in self.figure.notes]
        lists = [("Found", self.findings), ("Missing", self.missing), ("Notes", notes)]
        return [
            *(self._block(title, points) for title, points in parts.items()),
            *(Block(title, items=tuple(texts)) for title, texts in lists if texts),
        ]

    @property
    def facts(self) -> list[tuple[str, str]]:
        source, origin = self.figure.source, self.origin
        benchmarks, stands = ", ".join(origin.judges), ": stand-ins for the paper's"
        found = [
            ("Question", self.figure.question),
            ("Source", f"{the_paper().cited}, section {source.section}, figure {source.figure}"),
            ("Profile", self.profile),
            ("Scale", view.SCALES[self.scale]),
            ("Seeds", ", ".join(map(str, self.seeds))),
            ("Intervals", self._intervals()),
            ("Numbers", f"{_numbers(self.points)} are there"),
            ("Drawn from", ", ".join(self.figure.rows)),
            ("Reward model", ", ".join(origin.reward_models) or "none"),
            ("Creator", ", ".join(origin.creators) or "none: nothing evolves"),
            ("Benchmarks", benchmarks + stands * self.stand_in if benchmarks
                           else "none: no benchmark is read"),
            ("Judge", view.judges_text(origin) or "none: no judge is read"),
            *view.computed_by(origin),
        ]  # fmt: skip
        return [(name, plain(text)) for name, text in found]

    def _block(self, title: str, points: Sequence[Point]) -> Block:
        places = {self.kind.place(point)[1:]: point for point in points}
        columns = list(dict.fromkeys(column for _, column in places))
        rows: list[tuple[str, ...]] = []
        for name in dict.fromkeys(row for row, _ in places):
            cells = [places.get((name, column)) for column in columns]
            ours = (APPLIES_NOT if point is None else self.text_of(point) for point in cells)
            rows.append((plain(name), *ours))
            if any(point is not None and point.paper is not None for point in cells):
                rows.append(("  the paper's", *(p.papers if p else APPLIES_NOT for p in cells)))
        whole = textwrap.TextWrapper(_HEAD_WIDTH, break_on_hyphens=False, break_long_words=False)
        head = ("\n".join(whole.wrap(plain(column))) or " " for column in columns)
        return Block(plain(title), (), ("", *head), tuple(rows))

    def _intervals(self) -> str:
        if not isinstance(self.data, ScoreData):
            own = "95%, over seeds, each with training prompts of its own"
            return "none: one seed has no spread" if len(self.seeds) == 1 else own
        return view.ONE_SEED if len(self.seeds) == 1 else view.CROSSED


def _numbers(points: Sequence[Point]) -> str:
    return f"{sum(point.value is not None for point in points)} of {len(points)}"


def assemble_figure(runs: FigureRuns, store: Store) -> FigureReport:
    figure, profile = runs.figure, runs.profile
    assert isinstance(figure, AnyFigure)
    data: Data
    if (places := KINDS[figure.kind].places) is None:
        data, known = stored_prompts(runs, store), list[Point]()
    else:
        data, known = points.stored_scores(runs, store, places)
    shown = points_of(figure, data, known)
    return FigureReport(
        figure=figure,
        profile=profile.name,
        scale=profile.scale,
        seeds=runs.seeds,
        stand_in=profile.in_embedded_world,
        data=data,
        points=tuple(shown),
        origin=origin_of(runs, store, _benchmarks(runs, shown)),
    )


def _benchmarks(runs: FigureRuns, points: Iterable[Point]) -> list[str]:
    scores = dict.fromkeys(point.score.partition("/")[0] for point in points if runs.runs)
    found = (benchmark_of(runs.profile, score) for score in scores)
    return list(dict.fromkeys(filter(None, found)))
