"""Pictures: the one place where matplotlib is set up, what a report hands over, what a page holds.

Colours are Okabe and Ito's, which people with any colour vision tell apart, and no line or bar is
told by its colour alone. The background is opaque, so that a picture reads the same on a dark page.
Files are SVG without time or random ids: the same numbers give the same bytes. On a page a picture
is data within it.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self

import numpy as np
from numpy.typing import NDArray

from harness.runtime import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from harness.pipeline.algorithm import Run
    from harness.pipeline.runs import TableRuns

INK, MUTED = "#1f1f1f", "#595959"
"""Colours of text, and of what is said aside."""

OURS, PAPERS = "#0072B2", "#7a5200"
"""Colours of ours and of the paper's where nothing else is told apart."""

GRID = "#dddddd"
"""Colour of the lines behind what is drawn."""

SIZE = 8
"""Points of every text in a picture; its title stands beside it."""

Dashes = Literal["-", "--", "-.", ":"] | tuple[float, Sequence[float]]

STYLES: tuple[tuple[str, str, Dashes], ...] = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#56B4E9", "v", (0, (5, 1))),
    ("#E69F00", "P", (0, (3, 1, 1, 1))),
    ("#595959", "X", (0, (1, 1))),
)
"""Colour, marker and dashes of each series, in order."""

Target = Path | BinaryIO
"""What a picture is written to."""


@dataclass(frozen=True)
class Picture:
    """A picture that belongs to a report: its file, and what it shows in words and in sentences.

    What draws it as SVG is None where only the published file has what is drawn.
    """

    title: str
    file: str
    alt: str
    draw: Callable[[Target], None] | None = None
    findings: tuple[str, ...] = ()

    def svg(self) -> bytes:
        """Return the picture, drawn now."""
        assert self.draw is not None
        held = io.BytesIO()
        self.draw(held)
        return held.getvalue()


@contextmanager
def canvas(
    target: Target,
    salt: str,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    below: str = "",
    described: tuple[str, str] | None = None,
    **options: Any,
) -> Iterator[tuple[Figure, Any]]:
    """Yield a canvas and its panels, shape (rows, columns); write it as SVG when the block ends.

    Sizes are in inches of 72 points, `salt` is what the ids of the file's elements are made
    from, `described` are title and description within the file, and `options` go to
    `matplotlib.figure.Figure.subplots`.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.hashsalt": salt,
        "font.size": SIZE,
        "axes.titlesize": SIZE,
        "axes.labelsize": SIZE,
        "xtick.labelsize": SIZE,
        "ytick.labelsize": SIZE,
        "legend.fontsize": SIZE,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.linewidth": 0.6,
    }
    with matplotlib.rc_context(settings):
        sheet = Figure(figsize=size, layout="constrained", facecolor="white")
        panels = sheet.subplots(rows, columns, squeeze=False, **options)
        yield sheet, panels
        if below:
            sheet.supxlabel(below, fontsize=SIZE, color=MUTED, x=0.01, ha="left")
        metadata: dict[str, Any] = {"Date": None}
        if described is not None:
            metadata |= {"Title": described[0], "Description": described[1]}
        sheet.savefig(target, format="svg", metadata=metadata)


def plain_frame(axes: Axes, *, grid: Literal["x", "y", "both"] | None = None) -> None:
    """Take away the frame's upper and right side, and lay a faint grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        axes.grid(axis=grid, color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)


def note(axes: Axes, text: str) -> None:
    """Write in the middle of an empty panel what it is."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set_xticks([])
    axes.set_yticks([])


# --- On a page ---


@dataclass(frozen=True)
class Shown:
    """A picture on the page: a drawing goes in as an image, where nothing that it holds can run."""

    picture: Picture
    svg: bytes
    origin: str

    @classmethod
    def drawn(cls, picture: Picture, origin: str) -> Self:
        """Return a picture, drawn now."""
        return cls(picture, picture.svg(), origin)

    @property
    def data(self) -> str:
        """The picture as an address that holds it."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode('ascii')}"


# --- Learning curves of online runs: a panel for each quantity, a line for each row ---

WINDOW = 25
"""Steps of the running mean that a line, a mean over seeds, is smoothed by."""

PANELS: Mapping[str, str] = {
    "reward": "mean reward of rollouts",
    "gap": "best less mean reward",
    "kl": "log-ratio to the base policy",
    "completion_length": "length of rollouts (tokens)",
    "complexity": "complexity of prompts (1 to 5)",
    "evolved_share": "share evolved",
    "buffer/size": "prompts in the buffer",
    "buffer/generation": "rewrites since the human prompt, in the buffer",
    "phase/bootstrap": "phase: bootstrap",
}
"""The curves that are drawn, and what they show."""

CURVES = "curves.svg"
"""File of the learning curves beside a published report."""

Series = tuple[NDArray[np.int64], NDArray[np.float64]]

Curves = Mapping[str, Mapping[str, Series]]
"""Steps and values, by run id and name."""


def curves_of(table_runs: TableRuns, store: Store) -> dict[str, dict[str, Series]]:
    """Return the curves of the longest online runs: by run id and name, steps and values.

    Only runs whose training is there for every seed are among them.
    """
    trainings = {
        name: [stage.fingerprint for stage in run.training]
        for (name, seed), run in table_runs.runs.items()
        if seed == table_runs.seeds[0] and run.training and run.recipe.is_online
    }
    found: dict[str, dict[str, Series]] = {}
    for run_id in longest(trainings):
        runs = [table_runs.runs[run_id, seed] for seed in table_runs.seeds]
        stages = [stage.fingerprint for run in runs for stage in run.training]
        if all(store.status(fingerprint) == "done" for fingerprint in stages):
            found[run_id] = _averaged([_points(run, store) for run in runs])
    return found


def longest(trainings: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the ids of runs that are no beginning of another.

    `trainings` are the fingerprints of each run's training segments, in order.
    """
    # A run's last segment among these is where another goes on.
    begun = {segment for segments in trainings.values() for segment in segments[:-1]}
    return [name for name, segments in trainings.items() if segments[-1] not in begun]


def _points(run: Run, store: Store) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {}
    for stage in run.training:
        for point in store.progress(stage.fingerprint):
            for name, value in point.metrics.items():
                series.setdefault(name, {})[point.step] = value
    return series


def _averaged(seeds: Sequence[dict[str, dict[int, float]]]) -> dict[str, Series]:
    found = {}
    for name in PANELS:
        if all(name in seed for seed in seeds):
            steps = sorted(set.intersection(*(set(seed[name]) for seed in seeds)))
            means = [float(np.mean([seed[name][step] for seed in seeds])) for step in steps]
            total = np.cumsum([0.0, *means])
            last = np.arange(1, len(means) + 1)
            before = np.maximum(0, last - WINDOW)
            found[name] = np.array(steps), (total[last] - total[before]) / (last - before)
    return found


def curves_picture(runs: Iterable[str], curves: Curves | None = None) -> Picture:
    """Return learning curves as a picture, which can be drawn where the curves are at hand."""
    alt = f"Learning curves of {', '.join(runs)}, mean over seeds, by step"
    draw = None if curves is None else functools.partial(draw_curves, curves)
    return Picture("Learning curves", CURVES, alt, draw)


def draw_curves(curves: Curves, target: Target) -> None:
    """Draw curves as SVG; there is at least one."""
    from matplotlib.lines import Line2D

    names = [name for name in PANELS if any(name in run for run in curves.values())]
    columns = 3
    rows = -(-len(names) // columns)
    with canvas(target, "harness", (4 * columns, 2.7 * rows), rows, columns) as (sheet, panels):
        for place, name in zip(panels.flat, names, strict=False):
            plain_frame(place, grid="both")
            for number, (run, series) in enumerate(curves.items()):
                if name in series:
                    place.plot(*series[name], label=run, color=f"C{number}", linewidth=1.3)
            place.set_title(PANELS[name])
            place.set_xlabel("step")
        for place in panels.flat[len(names) :]:
            place.set_visible(False)
        sheet.suptitle(f"Mean over seeds, running mean over {WINDOW} steps", fontsize=SIZE)
        lines = [Line2D([], [], color=f"C{i}", label=run) for i, run in enumerate(curves)]
        sheet.legend(handles=lines, loc="outside lower center", ncols=min(4, len(lines)))
