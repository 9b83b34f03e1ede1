"""Pictures of a sweep, by Optuna's own plots of a study."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from optuna.importance import FanovaImportanceEvaluator

from harness.report.plots import Picture, Target
from harness.report.sweep import SweepReport
from harness.sweep.study import study_of

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def pictures(report: SweepReport) -> list[Picture]:
    """Return the plots that have anything to show."""
    if not report.complete:
        return []
    from optuna.visualization import matplotlib as plots

    study, first = study_of(report), report.objectives[0].label
    both = [objective.label for objective in report.objectives[:2]]
    of_first: dict[str, Any] = {"target": lambda t: t.values[0], "target_name": first}
    wanted: list[tuple[str, str, Callable[[], Any]]] = [
        ("history", f"{first} by trial, and the best so far",
         partial(plots.plot_optimization_history, study, **of_first)),
        ("slice", f"{first} at each setting", partial(plots.plot_slice, study, **of_first)),
    ]  # fmt: skip
    if report.importances:
        evaluator = FanovaImportanceEvaluator(seed=0)
        draw = partial(plots.plot_param_importances, study, evaluator, **of_first)
        wanted.append(("importances", f"Importances of the settings for {first}", draw))
    if report.pareto:

        def two(trial: FrozenTrial) -> list[float]:
            return list(trial.values[:2])

        draw = partial(plots.plot_pareto_front, study, targets=two, target_names=both)
        wanted.append(("pareto", "Pareto front of the first two objectives", draw))
    return [
        Picture(title, f"{name}.svg", title, partial(_draw, name, draw))
        for name, title, draw in wanted
    ]


def _draw(name: str, draw: Callable[[], Any], target: Target) -> None:
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings: dict[Any, Any] = {"svg.hashsalt": name}
    with warnings.catch_warnings(), matplotlib.rc_context(settings):
        warnings.simplefilter("ignore")
        axes = np.asarray(draw(), dtype=object).flat[0]
        axes.figure.savefig(target, format="svg", metadata={"Date": None}, bbox_inches="tight")
        pyplot.close(axes.figure)
