"""Everything a report says about a figure: points, words, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.registry.figures import Figure, RewardsFigure, SharesFigure
from harness.registry.profile import MEANINGLESS, benchmark_of
from harness.report.figures.drawing import Drawing
from harness.report.figures.kinds import KINDS, Data, Kind, shown
from harness.report.figures.point import Point
from harness.report.figures.scores import ScoreData
from harness.report.figures.text import blocks, counted, missing
from harness.report.origin import Origin, origin_of
from harness.report.publication import dumps
from harness.report.view import Block, plain
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.trainer.figure_runs import FigureRuns

FILE = "figure.svg"
"""The drawing, beside a published report."""

_COMPARED = {
    "toy": "toy: only signs and orders are compared with the paper's, never values",
    "reduced": "reduced: only signs and orders are compared with the paper's, never values",
    "paper": "paper",
}


@dataclass(frozen=True)
class FigureReport:
    """A figure at one profile: its points and all that is said beside them.

    Attributes:
        figure: The figure.
        profile: Name of the profile.
        scale: Its scale.
        seeds: Root seeds asked for.
        stand_in: Whether the profile has other benchmarks in the places of the paper's.
        meaning: What the numbers mean, where that is nothing; None elsewhere.
        data: The values of single prompts behind it.
        points: Its numbers, computed from the data.
        origin: Where the data come from.
    """

    figure: Figure
    profile: str
    scale: str
    seeds: tuple[int, ...]
    stand_in: bool
    meaning: str | None
    data: Data
    points: tuple[Point, ...]
    origin: Origin

    @property
    def kind(self) -> Kind:
        """What is done for its kind of figures."""
        return KINDS[self.figure.kind]

    @property
    def heading(self) -> str:
        """The title with the figure's number."""
        number, title = self.figure.source.figure, self.figure.title
        return plain(f"Figure {number}: {title} ({self.profile}, scale: {self.scale})")

    @property
    def numbers(self) -> str:
        """How many of our numbers are there."""
        done = sum(point.value is not None for point in self.points)
        return f"{done} of {len(self.points)}"

    @property
    def alt(self) -> str:
        """Text for who does not see the figure."""
        told = self.figure.alt.format(
            profile=self.profile,
            scale=self.scale,
            seeds=counted(self.seeds),
            numbers=self.numbers,
        )
        return plain(" ".join([told, *self.findings]))

    @property
    def findings(self) -> list[str]:
        """What was found, in sentences."""
        return [plain(said) for said in self.kind.findings(self.figure, list(self.points))]

    @property
    def missing(self) -> list[str]:
        """Why numbers are missing, where more is known than the state says."""
        return missing(self.points, len(self.seeds))

    @property
    def notes(self) -> list[str]:
        """The declaration's notes."""
        return [plain(note) for note in self.figure.notes]

    @property
    def blocks(self) -> list[Block]:
        """The numbers as small tables."""
        layout = self.kind.layout
        places = layout.block, layout.row, layout.column
        return blocks(shown(self.points, layout), places, len(self.seeds))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What the numbers are and where they come from, as names and texts."""
        source, origin = self.figure.source, self.origin
        judges = (f"{judge} ({name})" for name, judge in origin.judges.items())
        found = [
            ("Question", self.figure.question),
            ("Source", f"{source.paper}, section {source.section}, figure {source.figure}"),
            ("Profile", self.profile),
            *([] if self.meaning is None else [("Meaning", self.meaning)]),
            ("Scale", _COMPARED[self.scale]),
            ("Seeds", ", ".join(map(str, self.seeds))),
            ("Intervals", self._intervals()),
            ("Numbers", f"{self.numbers} are there"),
            ("Drawn from", ", ".join(self.figure.rows)),
            ("Reward model", ", ".join(origin.reward_models) or "none"),
            ("Creator", ", ".join(origin.creators) or "none: nothing evolves"),
            ("Benchmarks", self._benchmarks()),
            ("Judge", "; ".join(judges) or "none: no judge is read"),
            ("Stages", f"{origin.stages_done} of {origin.stages} done"),
            ("Commit", ", ".join(origin.commits) or "nothing is computed yet"),
            ("Computed with", "; ".join(origin.libraries) or "nothing is computed yet"),
        ]
        return [(name, plain(text)) for name, text in found]

    def _benchmarks(self) -> str:
        names = ", ".join(self.origin.judges)
        if not names:
            return "none: no benchmark is read"
        return f"{names}: stand-ins for the paper's" if self.stand_in else names

    def _intervals(self) -> str:
        over_prompts = isinstance(self.data, ScoreData)
        if len(self.seeds) == 1:
            if over_prompts:
                return "95%, over prompts only: one seed says nothing about the recipe"
            return "none: one seed has no spread"
        if over_prompts:
            return "95%, over seeds and prompts, which are crossed; gains are paired by both"
        return "95%, over seeds, each with training prompts of its own"

    def draw(self, path: Path) -> None:
        """Draw the figure as an SVG file."""
        below = f"{self.profile} · scale: {self.scale} · {counted(self.seeds)} · intervals: 95%"
        drawing = Drawing(
            figure=self.figure,
            points=self.points,
            data=self.data,
            heading=self.heading,
            below=below,
            alt=self.alt,
            seeds=len(self.seeds),
            stand_in=self.stand_in,
        )
        self.kind.draw(drawing, path)

    def as_json(self) -> dict[str, Any]:
        """Return everything the report says as JSON data (`schemas/figure.json`)."""
        return {
            "figure": self.figure.model_dump(mode="json"),
            "profile": self.profile,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "stand_in": self.stand_in,
            "points": [point.as_json() for point in self.points],
            "findings": self.findings,
            "missing": self.missing,
            "alt": self.alt,
            "data": {"file": self.data.FILE, **self.data.head()},
            "origin": self.origin.as_json(),
        }

    def json_text(self) -> str:
        """Return `as_json` as text."""
        return dumps(self.as_json())


def assemble_figure(runs: FigureRuns, store: Store) -> FigureReport:
    """Read a figure's data from the store and compute what is shown.

    Raises:
        StoreError: A stored file is not what was written.
    """
    figure, profile = runs.figure, runs.profile
    kind = KINDS[figure.kind]
    data = kind.read(runs, store)
    points = tuple(kind.points(figure, data))
    return FigureReport(
        figure=figure,
        profile=profile.name,
        scale=profile.scale,
        seeds=runs.seeds,
        stand_in=profile.own_benchmarks,
        meaning=None if profile.stand_ins is None else f"none: {MEANINGLESS}",
        data=data,
        points=points,
        origin=origin_of(runs, store, _benchmarks(runs, data)),
    )


def _benchmarks(runs: FigureRuns, data: Data) -> list[str]:
    """Return the benchmarks whose scores a figure shows."""
    if isinstance(runs.figure, RewardsFigure | SharesFigure) or not runs.runs:
        return []
    assert isinstance(data, ScoreData)
    scores: Mapping[str, None] = dict.fromkeys(i.score.partition("/")[0] for i in data.items)
    found = (benchmark_of(runs.profile, score) for score in scores)
    return list(dict.fromkeys(name for name in found if name is not None))
