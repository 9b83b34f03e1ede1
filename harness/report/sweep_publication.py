"""A published sweep: its page, its plots, and the check of both.

    results/<profile>/sweeps/<name>/report.md     for people
                                    report.json   everything the page and the plots say
                                    scores.parquet  the winner's and the base's, by prompt
                                    digests.json  sha256 of the files
                                    *.svg         the plots

The plots are history, importances, contour of two settings and Pareto front, each drawn only where
there is something to see. The files are SVG without time or random ids, so that the same sweep
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError
from harness.report.publication import (
    PAGE,
    REPORT,
    SCORES,
    Extent,
    Kind,
    check_files,
    dumps,
    publish_folder,
    read_json,
    same,
)
from harness.report.scores import read_score_file, write_scores
from harness.report.sweep import (
    Scalar,
    SweepReport,
    SweepTrial,
    as_markdown,
    setting,
    value_text,
)
from harness.report.winner import again

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Draw = Callable[["Axes", SweepReport], None]

BLUE, GREY, ORANGE = "#2166ac", "#999999", "#d6604d"


def publish_sweep(report: SweepReport, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/sweeps/<name>/`, in place of what was published before.

    Args:
        report: The sweep.
        results_dir: The folder of published results.
        allow_fewer: Publish it though it is not whole, or has less than what stands there.

    Returns:
        The folder that was written.

    Raises:
        Refused: It is not whole, or has less than what stands there, and that is not allowed.
        StoreError: The disk is full, or the folder may not be written.
    """

    def write(draft: Path) -> None:
        plots = write_plots(report, draft)
        (draft / PAGE).write_text(as_markdown(report, plots), encoding="utf-8")
        (draft / REPORT).write_text(dumps(report.as_json()), encoding="utf-8")
        write_scores(report.measured, draft / SCORES)

    place = f"{report.profile}/sweeps/{report.name}"
    return publish_folder(SWEEP, place, results_dir, write, allow_fewer=allow_fewer)


def sweep_extent(report: Mapping[str, Any]) -> Extent:
    """Return how much a published sweep has; its rows are the scores of its winner."""
    counted, target = report["counted"], report["target"]
    lacking = [f"{target - counted} of {target} trials"] if counted < target else []
    if not report["benchmarks"]:
        lacking.append("the winner on the benchmarks")
    scores = report["benchmarks"]
    lacking += [f"{score['score']} of the winner" for score in scores if score["mean"] is None]
    return Extent(
        rows=tuple(score["score"] for score in scores),
        seeds=tuple(report["result_seeds"]),
        counts={"trials": counted},
        lacking=tuple(lacking),
    )


def check_sweep(folder: Path) -> int:
    """Check a published sweep: its files, and its winner's scores computed again.

    Returns:
        How many scores were computed again.

    Raises:
        HarnessError: A file is missing or changed, or a number does not follow from the scores.
    """
    check_files(folder, (PAGE, REPORT, SCORES), "sweep")
    report = read_json(folder / REPORT, "sweep")
    said, measured = report["benchmarks"], read_score_file(folder / SCORES)
    for before, now in zip(said, again(report, measured), strict=True):
        for name, value in now.as_json().items():
            if not same(before[name], value):
                raise HarnessError(
                    f"{folder / REPORT}: the {name} of the winner in `{now.score}` does not follow "
                    f"from {SCORES}; publish the sweep again"
                )
    return len(said)


SWEEP = Kind("sweep", "trials", sweep_extent, check_sweep)
"""A sweep with the per-prompt scores of its winner."""


def write_plots(report: SweepReport, folder: Path) -> list[tuple[str, str]]:
    """Draw what there is to see; return file name and caption of each plot."""
    if not report.complete:
        return []
    wanted: list[tuple[str, str, Draw]] = [
        ("history.svg", "Objectives by trial, and the best so far", _history)
    ]
    if report.importances:
        wanted.append(("importances.svg", "Importances of the settings", _importances))
    if pair := contour_settings(report):
        first, second = map(setting, pair)
        wanted.append(
            ("contour.svg", f"{report.objectives[0].name} over {first} and {second}", _contour)
        )
    if report.pareto:
        wanted.append(("pareto.svg", "Pareto front of the first two objectives", _pareto))
    for name, caption, draw in wanted:
        _save(report, folder / name, caption, draw)
    return [(name, caption) for name, caption, _ in wanted]


def contour_settings(report: SweepReport) -> tuple[str, str] | None:
    """Return the two settings of the contour: the first two numbers that took three points.

    Points are pairs of values; all on one line, they have no contour.
    """
    numeric = [
        path
        for path in report.space
        if all(isinstance(t.params[path], int | float) for t in report.complete)
    ]
    if len(numeric) < 2:
        return None
    first, second = numeric[:2]
    seen = {(t.params[first], t.params[second]) for t in report.complete}
    spread = min(len({point[axis] for point in seen}) for axis in (0, 1))
    return (first, second) if len(seen) >= 3 and spread >= 2 else None


def _save(report: SweepReport, path: Path, caption: str, draw: Draw) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": path.name, "font.size": 9}):
        figure = Figure(figsize=(6.0, 3.8), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(caption, fontsize=9, loc="left")
        draw(axes, report)
        figure.savefig(path, metadata={"Date": None})


def _history(axes: Axes, report: SweepReport) -> None:
    """The first objective of each complete trial, and the best of those until then."""
    objective = report.objectives[0]
    numbers = [trial.number for trial in report.complete]
    values = _values(report.complete, objective.name)
    better = max if objective.direction == "maximize" else min
    best = [better(values[: i + 1]) for i in range(len(values))]
    axes.scatter(numbers, values, color=BLUE, label="complete", zorder=3)
    pruned = [(t.number, t.so_far[max(t.so_far)]) for t in report.trials if _is_pruned(t)]
    if pruned:
        label = "pruned (first seeds only)"
        axes.scatter(*zip(*pruned, strict=True), color=GREY, marker="x", label=label, zorder=3)
    axes.step(numbers, best, where="post", color=ORANGE, label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel(_label(report, 0))
    axes.legend(frameon=False)


def _importances(axes: Axes, report: SweepReport) -> None:
    """A group of bars for each setting, a bar for each objective."""
    found = report.importances or {}
    paths, height = list(report.space), 0.8 / len(found)
    for i, (name, shares) in enumerate(found.items()):
        places = [at + i * height for at in range(len(paths))]
        axes.barh(
            places,
            [shares.get(path, 0.0) for path in paths],
            height=height,
            label=name,
            color=(BLUE, ORANGE, GREY)[i % 3],
        )
    middle = height * (len(found) - 1) / 2
    axes.set_yticks([at + middle for at in range(len(paths))], list(map(setting, paths)))
    axes.invert_yaxis()
    axes.set_xlabel("share of the variance over the trials")
    axes.legend(frameon=False)


def _contour(axes: Axes, report: SweepReport) -> None:
    """The mean of the first objective at each pair of values, values evenly spaced.

    Other settings differ between the trials of a pair; their effect is in the mean.
    """
    pair = contour_settings(report)
    assert pair is not None
    ticks = [_distinct(report, path) for path in pair]
    by_place: dict[tuple[int, int], list[float]] = {}
    for trial in report.complete:
        x, y = (tick.index(trial.params[path]) for tick, path in zip(ticks, pair, strict=True))
        by_place.setdefault((x, y), []).extend(_values([trial], report.objectives[0].name))
    xs, ys = zip(*by_place, strict=True)
    means = [sum(values) / len(values) for values in by_place.values()]
    if _spans_a_plane(list(by_place)) and max(means) > min(means):
        drawn: Any = axes.tricontourf(xs, ys, means, levels=12, cmap="viridis")
        axes.figure.colorbar(drawn, ax=axes, label=_label(report, 0))
    axes.scatter(xs, ys, color="white", edgecolor="black", s=24, zorder=3)
    for (x, y), mean in zip(by_place, means, strict=True):
        axes.annotate(f"{mean:.4g}", (x, y), textcoords="offset points", xytext=(5, 4), fontsize=7)
    axes.set_xticks(range(len(ticks[0])), [value_text(value) for value in ticks[0]])
    axes.set_yticks(range(len(ticks[1])), [value_text(value) for value in ticks[1]])
    axes.set_xlabel(setting(pair[0]))
    axes.set_ylabel(setting(pair[1]))


def _pareto(axes: Axes, report: SweepReport) -> None:
    """Every complete trial by its first two objectives, the front joined."""
    y, x = report.objectives[0].name, report.objectives[1].name
    axes.scatter(
        _values(report.complete, x), _values(report.complete, y), color=GREY, label="trials"
    )
    front = [report.trial(number) for number in report.pareto or ()]
    front.sort(key=lambda trial: _values([trial], x))
    axes.plot(_values(front, x), _values(front, y), "o-", color=ORANGE, label="Pareto front")
    for trial in front:
        place = (_values([trial], x)[0], _values([trial], y)[0])
        axes.annotate(str(trial.number), place, textcoords="offset points", xytext=(5, 4))
    axes.set_xlabel(_label(report, 1))
    axes.set_ylabel(_label(report, 0))
    axes.legend(frameon=False)


def _values(trials: Sequence[SweepTrial], name: str) -> list[float]:
    return [trial.values[name] for trial in trials if trial.values is not None]


def _is_pruned(trial: SweepTrial) -> bool:
    return trial.state == "pruned" and bool(trial.so_far)


def _distinct(report: SweepReport, path: str) -> list[Scalar]:
    """Return the values a numeric setting took, in order."""
    values = {trial.params[path] for trial in report.complete}
    return sorted(values, key=lambda value: float(value or 0))


def _spans_a_plane(places: Sequence[tuple[int, int]]) -> bool:
    """Return whether some three places are no line."""
    (x0, y0), *rest = places
    directions = [(x - x0, y - y0) for x, y in rest]
    return any(a * d != b * c for a, b in directions for c, d in directions)


def _label(report: SweepReport, i: int) -> str:
    objective = report.objectives[i]
    return f"{objective.name} ({objective.unit})" if objective.unit else objective.name
