"""Learning curves of online runs, drawn as one figure: a panel for each quantity.

A line is a row's mean over seeds, smoothed by a running mean over `WINDOW` steps; rows whose runs
are checkpoints of one continual run are one line, that of the longest.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.report.plots import Picture, Target, canvas, plain_frame
from harness.runtime import Store

if TYPE_CHECKING:
    from harness.trainer.plan import Run
    from harness.trainer.runs import TableRuns

WINDOW = 25
"""Steps of the running mean."""

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

FILE = "curves.svg"
"""File of the learning curves beside a published report."""

Series = tuple[NDArray[np.int64], NDArray[np.float64]]

Curves = Mapping[str, Mapping[str, Series]]
"""Steps and values, by run id and name."""


def curves_of(table_runs: TableRuns, store: Store) -> dict[str, dict[str, Series]]:
    """Return the curves of the longest online runs: by run id and name, steps and values.

    Only runs whose training is there for every seed are among them.
    """
    found: dict[str, dict[str, Series]] = {}
    for run_id in longest(_online(table_runs)):
        runs = [table_runs.runs[run_id, seed] for seed in table_runs.seeds]
        stages = [stage.fingerprint for run in runs for stage in run.training]
        if all(store.status(fingerprint) == "done" for fingerprint in stages):
            found[run_id] = _averaged([_points(run, store) for run in runs])
    return found


def longest(trainings: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the ids of runs that are no beginning of another.

    Args:
        trainings: The fingerprints of each run's training segments, in order.
    """
    # A run's last segment among these is where another goes on.
    begun = {segment for segments in trainings.values() for segment in segments[:-1]}
    return [name for name, segments in trainings.items() if segments[-1] not in begun]


def _online(table_runs: TableRuns) -> dict[str, list[str]]:
    """Return the fingerprints of the training segments of each online run of the first seed."""
    return {
        name: [stage.fingerprint for stage in run.training]
        for (name, seed), run in table_runs.runs.items()
        if seed == table_runs.seeds[0] and run.training and run.recipe.is_online
    }


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
            found[name] = np.array(steps), _smooth(np.array(means))
    return found


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the last `WINDOW` values, or as many as there are."""
    total = np.cumsum(np.insert(values, 0, 0.0))
    last = np.arange(1, len(values) + 1)
    first = np.maximum(0, last - WINDOW)
    return np.asarray((total[last] - total[first]) / (last - first))


def picture(runs: Iterable[str], curves: Curves | None = None) -> Picture:
    """Return learning curves as a picture, which can be drawn where the curves are at hand.

    Args:
        runs: Ids of the runs whose curves they are.
        curves: What `curves_of` returned.
    """
    alt = f"Learning curves of {', '.join(runs)}, mean over seeds, by step"
    draw = None if curves is None else functools.partial(draw_curves, curves)
    return Picture("Learning curves", FILE, alt, draw)


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
        sheet.suptitle(f"Mean over seeds, running mean over {WINDOW} steps", fontsize=9)
        lines = [Line2D([], [], color=f"C{i}", label=run) for i, run in enumerate(curves)]
        sheet.legend(handles=lines, loc="outside lower center", ncols=min(4, len(lines)))
