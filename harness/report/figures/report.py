"""Everything a report says about a figure: points, words, and where the numbers come from.

A report is one model: it is what was computed, and `report.json` of a published figure. Its words
follow from it; missing numbers say why (`not run`, `1/3 seeds`, `not available`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, computed_field, model_validator

from harness.registry.figures import AnyFigure
from harness.registry.paper import the_paper
from harness.registry.profile import benchmark_of
from harness.report import view
from harness.report.figures import prompts
from harness.report.figures.prompts import PromptData
from harness.report.figures.scores import Point, ScoreData, score_points, stored_scores
from harness.report.model import Origin
from harness.report.origin import origin_of
from harness.report.plots import Picture
from harness.report.render import markdown, print_parts, text_parts
from harness.report.view import APPLIES_NOT, CROSSED, ONE_SEED, Block, plain, signed
from harness.runtime import Store
from harness.runtime.files import dumps
from harness.strict import Strict
from harness.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from harness.pipeline.runs import FigureRuns

FILE = "figure.svg"
"""The drawing, beside a published report."""

DECIMALS: Mapping[str, int] = {
    "level": 2, "reward": 2, "rank correlation": 3, "count": 0
}  # fmt: skip
"""Decimals of quantities that have the same in every unit."""

_HEAD_WIDTH = 14
"""Widest word of a heading before it goes on in a new line."""

Axis = Literal["panel", "series", "at"]

Data = ScoreData | PromptData
"""The values of single prompts behind a figure."""


@dataclass(frozen=True)
class Kind:
    """What is done for a kind of figure.

    Attributes:
        block: What of a point has a small table of its own, with `row` and `column`; None for one.
        points: Computes its points from the figure's declaration and its prompts; None for a figure
            of scores, whose points say which scores they are computed from.
        only: The one panel that is written down, where the others are drawn only.
        findings: Says what was found, in sentences computed from the points.
    """

    block: Axis | None
    row: Axis
    column: Axis
    points: Callable[[Any, PromptData], list[Point]] | None = None
    only: str | None = None
    findings: Callable[[Any, Sequence[Point]], list[str]] = lambda figure, points: []


KINDS: Mapping[str, Kind] = {
    "gains": Kind("series", "at", "panel"),
    "iterations": Kind("panel", "series", "at"),
    "ratings": Kind(None, "at", "series"),
    "shares": Kind(None, "panel", "at", prompts.share_points),
    "densities": Kind(None, "series", "at", prompts.density_points, only=prompts.SUMMARY),
    "correlation": Kind(
        None, "series", "at", prompts.correlation_points, findings=prompts.correlation_findings
    ),
    "topics": Kind(None, "at", "panel", prompts.topic_points, findings=prompts.topic_findings),
}
"""The kinds of figures."""


def points_of(figure: AnyFigure, data: Data, points: Iterable[Point]) -> list[Point]:
    """Return the points of a figure computed from its data, in place of those that are known."""
    if isinstance(data, ScoreData):
        return score_points(data, points)
    compute = KINDS[figure.kind].points
    assert compute is not None
    return compute(figure, data)


class FigureReport(Strict):
    figure: Annotated[AnyFigure, Field(discriminator="kind")]
    profile: str
    scale: Literal["toy", "reduced", "paper"]
    seeds: tuple[int, ...]
    stand_in: bool
    """Whether the profile has other benchmarks in the places of the paper's."""
    points: tuple[Point, ...]
    data: Annotated[Data, Field(discriminator="file")]
    """The values of single prompts behind it; the file names them, the values lie in it."""
    origin: Origin

    @model_validator(mode="before")
    @classmethod
    def _without_computed(cls, data: Any) -> Any:
        """Take what was published, with the words that follow from the rest."""
        if isinstance(data, dict):
            return {k: v for k, v in data.items() if k not in cls.model_computed_fields}
        return data

    @computed_field  # type: ignore[prop-decorator]
    @property
    def findings(self) -> list[str]:
        return [plain(said) for said in self.kind.findings(self.figure, self.points)]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def missing(self) -> list[str]:
        """Why points have no number, each reason once with the state it explains."""
        reasons: dict[str, str] = {}
        for point in self.points:
            if point.reason is not None:
                words = "undefined" if point.state == "ok" else self._state(point)
                reasons.setdefault(point.reason, words)
        return [plain(f"{words}: {reason}") for reason, words in reasons.items()]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def alt(self) -> str:
        """Text for who does not see the figure."""
        told = self.figure.alt.format(
            profile=self.profile,
            scale=self.scale,
            seeds=self.seed_count,
            numbers=self.numbers,
        )
        return plain(" ".join([told, *self.findings]))

    @property
    def kind(self) -> Kind:
        return KINDS[self.figure.kind]

    @property
    def heading(self) -> str:
        number, title = self.figure.source.figure, self.figure.title
        return plain(f"Figure {number}: {title} ({self.profile}, scale: {self.scale})")

    @property
    def seed_count(self) -> str:
        return counted(len(self.seeds), "seed")

    @property
    def numbers(self) -> str:
        done = sum(point.value is not None for point in self.points)
        return f"{done} of {len(self.points)}"

    @property
    def blocks(self) -> list[Block]:
        """The numbers as small tables; the paper's stand below ours."""
        kind = self.kind
        parts: dict[str, list[Point]] = {}
        for point in self.points:
            if kind.only in (None, point.panel):
                parts.setdefault(getattr(point, kind.block) if kind.block else "", []).append(point)
        return [self._block(title, points) for title, points in parts.items()]

    @property
    def lists(self) -> list[Block]:
        notes = [plain(note) for note in self.figure.notes]
        lists = [("Found", self.findings), ("Missing", self.missing), ("Notes", notes)]
        return [Block(title, items=tuple(texts)) for title, texts in lists if texts]

    @property
    def facts(self) -> list[tuple[str, str]]:
        source, origin = self.figure.source, self.origin
        judges = (f"{judge} ({name})" for name, judge in origin.judges.items())
        benchmarks, stands = ", ".join(origin.judges), ": stand-ins for the paper's"
        found = [
            ("Question", self.figure.question),
            ("Source", f"{the_paper().cited}, section {source.section}, figure {source.figure}"),
            ("Profile", self.profile),
            ("Scale", self.scale + ("" if self.scale == "paper" else _COMPARED)),
            ("Seeds", ", ".join(map(str, self.seeds))),
            ("Intervals", self._intervals()),
            ("Numbers", f"{self.numbers} are there"),
            ("Drawn from", ", ".join(self.figure.rows)),
            ("Reward model", ", ".join(origin.reward_models) or "none"),
            ("Creator", ", ".join(origin.creators) or "none: nothing evolves"),
            ("Benchmarks", benchmarks + stands * self.stand_in if benchmarks
                           else "none: no benchmark is read"),
            ("Judge", "; ".join(judges) or "none: no judge is read"),
            ("Stages", f"{origin.stages_done} of {origin.stages} done"),
            ("Commit", ", ".join(origin.commits) or "nothing is computed yet"),
            ("Computed with", "; ".join(origin.libraries) or "nothing is computed yet"),
        ]  # fmt: skip
        return [(name, plain(text)) for name, text in found]

    def text_of(self, point: Point) -> str:
        """Return our number with half the width of its interval, or why there is none."""
        if point.value is None:
            return "undefined" if point.state == "ok" else self._state(point)
        if point.high is None:
            return number_text(point.value, point)
        half = number_text(point.high - point.value, point).lstrip("+")
        return f"{number_text(point.value, point)} ±{half}"

    def why_missing(self, point: Point) -> str:
        return point.reason or "undefined" if point.state == "ok" else self._state(point)

    def json_text(self) -> str:
        return dumps(self.model_dump(mode="json"))

    def _state(self, point: Point) -> str:
        return view.state_words(point.state, point.done, len(self.seeds))

    def _block(self, title: str, points: Sequence[Point]) -> Block:
        places = {
            (getattr(point, self.kind.row), getattr(point, self.kind.column)): point
            for point in points
        }
        columns = list(dict.fromkeys(column for _, column in places))
        rows: list[tuple[str, ...]] = []
        for name in dict.fromkeys(row for row, _ in places):
            cells = [places.get((name, column)) for column in columns]
            ours = (APPLIES_NOT if point is None else self.text_of(point) for point in cells)
            rows.append((plain(name), *ours))
            if any(point is not None and point.paper is not None for point in cells):
                rows.append(("  the paper's", *(p.papers if p else APPLIES_NOT for p in cells)))
        head = ("\n".join(textwrap.wrap(plain(c), _HEAD_WIDTH)) or " " for c in columns)
        return Block(plain(title), (), ("", *head), tuple(rows))

    def _intervals(self) -> str:
        if not isinstance(self.data, ScoreData):
            own = "95%, over seeds, each with training prompts of its own"
            return "none: one seed has no spread" if len(self.seeds) == 1 else own
        return ONE_SEED if len(self.seeds) == 1 else CROSSED


_COMPARED = ": only signs and orders are compared with the paper's, never values"
"""What is said of a scale that is not the paper's."""


def assemble_figure(runs: FigureRuns, store: Store) -> FigureReport:
    """Read a figure's data from the store and compute what is shown."""
    figure, profile = runs.figure, runs.profile
    assert isinstance(figure, AnyFigure)
    data: Data
    places: list[Point] = []
    if KINDS[figure.kind].points is None:
        data, places = stored_scores(runs, store)
    else:
        data = PromptData.stored(runs, store)
    return FigureReport(
        figure=figure,
        profile=profile.name,
        scale=profile.scale,
        seeds=runs.seeds,
        stand_in=profile.in_embedded_world,
        data=data,
        points=tuple(points_of(figure, data, places)),
        origin=origin_of(runs, store, _benchmarks(runs, places)),
    )


def _benchmarks(runs: FigureRuns, points: Iterable[Point]) -> list[str]:
    scores = dict.fromkeys(point.score.partition("/")[0] for point in points if runs.runs)
    found = (benchmark_of(runs.profile, score) for score in scores)
    return list(dict.fromkeys(name for name in found if name is not None))


def number_text(value: float, point: Point) -> str:
    if point.quantity == "share":
        return f"{100 * value:.1f}%"
    decimals = DECIMALS.get(point.quantity, 1 if point.unit == "%" else 2)
    return signed(value, decimals) if point.quantity == "gain" else f"{value:.{decimals}f}"


def as_markdown(report: FigureReport, drawn: Picture | None = None) -> str:
    return markdown(report.heading, report.facts, [*report.blocks, *report.lists], drawn)


def print_figure(report: FigureReport, console: Console) -> None:
    blocks = [*report.blocks, *report.lists]
    print_parts(text_parts(report.heading, report.facts, blocks), console)
