"""Learning curves of online runs, drawn as one figure: a panel for each quantity.

A line is a row's mean over seeds, smoothed by a running mean over `WINDOW` steps; rows whose runs
are checkpoints of one continual run are one line, that of the longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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

Series = tuple[NDArray[np.int64], NDArray[np.float64]]


def curves_of(table_runs: TableRuns, store: Store) -> dict[str, dict[str, Series]]:
    """Return the curves of the longest online runs: by run id and name, steps and values.

    Only runs whose training is there for every seed are among them.
    """
    found: dict[str, dict[str, Series]] = {}
    for run_id in _longest(table_runs):
        runs = [table_runs.runs[run_id, seed] for seed in table_runs.seeds]
        stages = [stage.fingerprint for run in runs for stage in run.training]
        if all(store.status(fingerprint) == "done" for fingerprint in stages):
            found[run_id] = _averaged([_points(run, store) for run in runs])
    return found


def _longest(table_runs: TableRuns) -> list[str]:
    """Return the ids of online runs that are no beginning of another."""
    seed = table_runs.seeds[0]
    runs = {name: run for (name, s), run in table_runs.runs.items() if s == seed and run.training}
    online = {name: run for name, run in runs.items() if run.recipe.is_online}
    begun = {
        stage.fingerprint for run in online.values() for stage in run.training[:-1]
    }  # a run's last segment among these is where another goes on
    return [name for name, run in online.items() if run.training[-1].fingerprint not in begun]


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


def draw_curves(curves: Mapping[str, Mapping[str, Series]], path: Path) -> None:
    """Draw curves as an SVG file.

    Args:
        curves: What `curves_of` returned; not empty.
        path: File to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    names = [name for name in PANELS if any(name in run for run in curves.values())]
    columns = 3
    rows = -(-len(names) // columns)
    settings: dict[Any, Any] = {
        "svg.hashsalt": "harness", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3
    }  # fmt: skip
    with pyplot.rc_context(settings):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(4 * columns, 2.7 * rows), squeeze=False, layout="constrained"
        )
        for place, name in zip(axes.flat, names, strict=False):
            for number, (run, series) in enumerate(curves.items()):
                if name in series:
                    place.plot(*series[name], label=run, color=f"C{number}", linewidth=1.3)
            place.set_title(PANELS[name], fontsize=9)
            place.set_xlabel("step")
        for place in axes.flat[len(names) :]:
            place.set_visible(False)
        figure.suptitle(f"Mean over seeds, running mean over {WINDOW} steps", fontsize=9)
        lines = [Line2D([], [], color=f"C{i}", label=run) for i, run in enumerate(curves)]
        figure.legend(handles=lines, loc="outside lower center", ncols=min(4, len(lines)))
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)
