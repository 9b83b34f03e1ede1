"""The picture of a study of reward models: each measure against another, a point for each model."""

from __future__ import annotations

from pathlib import Path

from harness.report.model import Study
from harness.report.reward_study import PAIRS

_AXES = {"accuracy": "accuracy on held-out pairs", "best_of_n": "best of {n} (oracle score)"}


def draw_study(study: Study, path: Path) -> None:
    """Draw a whole study as an SVG file: a panel for each pair of measures, with 95% intervals.

    Args:
        study: The findings; every reward model has its numbers.
        path: File to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = {"svg.hashsalt": "harness", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    with pyplot.rc_context(settings):  # type: ignore[arg-type]
        figure, axes = pyplot.subplots(
            1, len(PAIRS), figsize=(4.2 * len(PAIRS), 3.8), squeeze=False, layout="constrained"
        )
        for place, (first, second) in zip(axes.flat, PAIRS, strict=True):
            for number, model in enumerate(study.models):
                measures = model.measures or {}
                (x, x_low, x_high), (y, y_low, y_high) = measures[first], measures[second]
                place.errorbar(
                    x,
                    y,
                    xerr=[[x - x_low], [x_high - x]],
                    yerr=[[y - y_low], [y_high - y]],
                    fmt="o" if number < 10 else "s",
                    markersize=4,
                    linewidth=0.8,
                    color=f"C{number % 10}",
                    label=model.row,
                )
            place.set_xlabel(_axis(study, first))
            place.set_ylabel(_axis(study, second))
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6)
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def _axis(study: Study, measure: str) -> str:
    return _AXES.get(measure, f"gain in {study.column}").format(n=study.n)
