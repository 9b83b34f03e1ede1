"""A sweep: what it found as plain data, as words and as pictures, published and read back.

It is published in `results/<profile>/sweeps/<name>/`. The trials chose the winner on validation
prompts; their numbers are no result. What the winner scores on the benchmarks is: winner and base
recipe are run with seeds that no trial has seen, and their numbers are computed from per-prompt
scores, stored or published, by the same function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from harness.report.plots import MUTED, OURS, STYLES, Picture, Target, canvas, plain_frame
from harness.report.publication import SCORES, Extent, Kind, differing
from harness.report.render import template
from harness.report.scores import Measured, numbers, read_score_file, write_scores
from harness.report.view import Block
from harness.strict import Strict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scalar = bool | int | float | str | None

NOT_RUN = "not run"
TOO_FEW = "n/a: too few complete trials"

BEST = STYLES[1][0]
"""Colour of what is best so far."""


class SweepObjective(Strict):
    """What a sweep measures."""

    name: str
    measure: str
    direction: str
    """The better end: `maximize` or `minimize`."""
    unit: str

    @property
    def label(self) -> str:
        """Its name and unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


class SweepTrial(Strict):
    """One trial."""

    number: int
    """Its number in the study."""
    state: str
    """`running`, `complete`, `pruned` or `fail`."""
    params: dict[str, Scalar]
    """Its settings, by path."""
    values: dict[str, float] | None
    """Its objectives by name; None where it is not complete."""
    so_far: dict[int, float]
    """The one objective averaged over the first seeds, by their number."""
    started: str | None
    """When it began, ISO 8601 in UTC."""
    ended: str | None
    """When it ended."""
    seconds: float | None
    """How long it took."""
    reused: int
    """Stages it found in the store."""
    computed: int
    """Stages computed for it."""
    failure: str | None
    """Why it failed."""
    done_again: bool
    """Whether another trial stands for it, because its process was killed."""
    retry_of: int | None
    """The trial that it stands for."""
    mlflow_run: str | None
    """Id of its MLflow run."""


class WinnerScore(Strict):
    """What the winner scores: mean and 95% interval, the base recipe's mean, and the gain.

    The gain is None where the winner is the base recipe.
    """

    score: str
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    base: float | None
    gain: float | None
    gain_ci_low: float | None
    gain_ci_high: float | None


class SweepReport(Strict):
    """A sweep on one profile."""

    name: str
    """Name of the sweep."""
    question: str
    """What it is to answer."""
    profile: str
    """Name of the profile."""
    scale: str
    """Scale of the profile."""
    study: str
    """Name of the study."""
    space: dict[str, tuple[Scalar, ...]]
    """The values of each setting, by path; of an endless one some of them."""
    objectives: tuple[SweepObjective, ...]
    """What is measured; the first decides."""
    sampler: str
    """What suggests points."""
    pruner: str | None
    """What ends trials early; None for nothing."""
    seeds: tuple[int, ...]
    """Seeds of each trial."""
    result_seeds: tuple[int, ...]
    """Fresh seeds of the winner."""
    target: int
    """Trials the study shall have."""
    counted: int
    """Trials it has."""
    trials: tuple[SweepTrial, ...]
    """The trials in order."""
    winner: int | None
    """Number of the best trial; None where none is complete."""
    pareto: tuple[int, ...] | None
    """Numbers of the trials that no other is better than; None for one objective."""
    importances: dict[str, dict[str, float]] | None
    """Share of each setting in the variance of each objective; None with too few."""
    benchmarks: tuple[WinnerScore, ...] = ()
    """What the winner scores on the benchmarks; empty where it was not run."""
    measured: Measured = Field(default_factory=dict, exclude=True)
    """Per-prompt scores of the winner and the base recipe; empty where not run."""

    @property
    def complete(self) -> list[SweepTrial]:
        """The complete trials, in order."""
        return [trial for trial in self.trials if trial.values is not None]

    @property
    def front(self) -> list[SweepTrial]:
        """The trials that no other is better than; empty for one objective."""
        return [self.trial(number) for number in self.pareto or ()]

    @property
    def failed(self) -> list[SweepTrial]:
        """The failed trials that no other stands for."""
        return [t for t in self.trials if t.state == "fail" and not t.done_again]

    def trial(self, number: int) -> SweepTrial:
        """Return a trial by its number."""
        return next(trial for trial in self.trials if trial.number == number)

    def best(self) -> list[SweepTrial]:
        """Return the complete trials, best first; the first objective decides, others break ties.

        Trials at one point are equal in all and shown once.
        """
        signs = [-1.0 if o.direction == "maximize" else 1.0 for o in self.objectives]
        ranked = sorted(
            self.complete,
            key=lambda t: [s * v for s, v in zip(signs, (t.values or {}).values(), strict=True)],
        )
        return list({tuple(t.params.items()): t for t in reversed(ranked)}.values())[::-1]

    @property
    def extent(self) -> Extent:
        """How much it has; its rows are the scores of its winner."""
        left = self.target - self.counted
        lacking = [f"{left} of {self.target} trials"] if left > 0 else []
        lacking += [] if self.benchmarks else ["the winner on the benchmarks"]
        lacking += [f"{it.score} of the winner" for it in self.benchmarks if it.mean is None]
        scores = tuple(found.score for found in self.benchmarks)
        return Extent(scores, self.result_seeds, {"trials": self.counted}, tuple(lacking))


def winner_run(sweep: str) -> str:
    """Return the id of the winner's runs."""
    return f"{sweep}-winner"


def base_run(sweep: str) -> str:
    """Return the id of the base recipe's runs beside a winner that is another recipe."""
    return f"{sweep}-base"


def winner_scores(
    measured: Measured, sweep: str, seeds: Sequence[int], scores: Sequence[str]
) -> tuple[WinnerScore, ...]:
    """Return what a winner scores on each benchmark; scores not measured are left out."""
    known = {score for _, _, score in measured}
    base = base_run(sweep) if base_run(sweep) in {run for run, _, _ in measured} else None
    found = []
    for score in (name for name in scores if name in known):
        best = numbers(measured, winner_run(sweep), base, seeds, score)
        beside = best if base is None else numbers(measured, base, None, seeds, score)
        own = {name: it for name, it in asdict(best).items() if name in WinnerScore.model_fields}
        found.append(WinnerScore(score=score, base=beside.mean, **own))
    return tuple(found)


def setting(path: str) -> str:
    """Return the last part of a setting's path, its name for people."""
    return path.rpartition(".")[2]


def value_text(value: Scalar) -> str:
    """Return a setting's value for people."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def trial_block(report: SweepReport, trials: Sequence[SweepTrial], title: str) -> Block:
    """Return some trials as a table: settings, objectives, and how each ended."""
    head = ["trial", *map(setting, report.space)]
    head += [objective.label for objective in report.objectives]
    rows = [
        (
            str(trial.number),
            *(value_text(trial.params.get(path)) for path in report.space),
            *_outcome(report, trial),
            f"{trial.reused} / {trial.computed}",
        )
        for trial in trials
    ]
    return Block(title, (), (*head, "stages reused / computed"), tuple(rows))


def _outcome(report: SweepReport, trial: SweepTrial) -> list[str]:
    """Return a trial's objectives; for one that has none, what became of it."""
    if trial.values is not None:
        return [f"{trial.values[o.name]:.6g}" for o in report.objectives]
    text = "done again" if trial.done_again else {"fail": "failed"}.get(trial.state, trial.state)
    if trial.state == "pruned" and trial.so_far:
        step, value = max(trial.so_far.items())
        text = f"pruned at {value:.6g} after {step} of {len(report.seeds)} seeds"
    return [text, *([""] * (len(report.objectives) - 1))]


def importance_block(report: SweepReport) -> Block:
    """Return the importances as a table, a column for each objective."""
    title, found = "Importances", report.importances
    note = "Share of each setting in the variance of an objective over the trials (fANOVA)."
    if found is None:
        return Block(title, (TOO_FEW,), ("setting",), ())
    rows = [
        (setting(path), *(f"{shares.get(path, 0.0):.0%}" for shares in found.values()))
        for path in report.space
    ]
    return Block(title, (note,), ("setting", *found), tuple(rows))


def winner_block(report: SweepReport) -> Block:
    """Return what the winner scores on the benchmarks, beside the base recipe."""
    title = "Result: the winner on the benchmarks"
    seeds = ", ".join(map(str, report.result_seeds))
    if report.winner is None:
        return Block(title, ("no trial is complete yet",), ("score",), ())
    note = f"Trial {report.winner}, run anew with seeds {seeds} that no trial has seen; 95%."
    if not report.benchmarks:
        return Block(title, (f"Trial {report.winner}: {NOT_RUN}",), ("score",), ())
    rows = [
        (s.score, _with_interval(s.mean, s.ci_high), "" if s.base is None else f"{s.base:.3f}",
         _with_interval(s.gain, s.gain_ci_high, "+"))
        for s in report.benchmarks
    ]  # fmt: skip
    return Block(title, (note,), ("score", "winner", "base recipe", "gain"), tuple(rows))


def _with_interval(mean: float | None, high: float | None, sign: str = "") -> str:
    if mean is None or high is None:
        return "the base recipe is the winner" if sign else NOT_RUN
    return f"{mean:{sign}.3f} ±{high - mean:.3f}"


def facts(report: SweepReport) -> list[tuple[str, str]]:
    """Return what the sweep is, as names and texts."""
    states = [trial.state for trial in report.trials]
    ended = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states)) or "none"
    return [
        ("Question", report.question),
        ("Profile", f"{report.profile} (scale: {report.scale})"),
        ("Objectives", "; ".join(f"{o.direction} {o.name}" for o in report.objectives)),
        ("Measured on", "validation prompts, disjoint from every benchmark"),
        ("Seeds", f"{', '.join(map(str, report.seeds))} for each trial"),
        ("Sampler", report.sampler),
        ("Pruner", report.pruner or "none"),
        ("Trials", f"{report.counted} of {report.target} ({ended})"),
        ("Stages", f"{sum(t.reused for t in report.trials)} reused, "
                   f"{sum(t.computed for t in report.trials)} computed"),
        ("Study", report.study),
    ]  # fmt: skip


def as_markdown(report: SweepReport) -> str:
    """Return a sweep as GitHub-flavoured Markdown."""
    blocks = [winner_block(report)]
    if report.pareto is not None:
        blocks.append(trial_block(report, report.front, "Pareto front (validation prompts)"))
    blocks += [
        importance_block(report),
        trial_block(report, report.trials, "All trials (validation prompts; no result)"),
    ]
    return template("sweep.md.j2").render(
        heading=f"Sweep {report.name} ({report.profile}, scale: {report.scale})",
        facts=facts(report),
        blocks=blocks,
        plots=pictures(report),
        failures=[f"trial {trial.number}: {trial.failure}" for trial in report.failed],
    )


def publish_sweep(report: SweepReport, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    """Write `results/<profile>/sweeps/<name>/` and return it.

    Raises what `harness.report.publication.Kind.publish` raises.
    """
    return SWEEP.publish(
        report,
        f"{report.profile}/sweeps/{report.name}",
        results_dir,
        values=lambda path: write_scores(report.measured, path),
        allow_fewer=allow_fewer,
    )


def difference(report: SweepReport, folder: Path) -> str | None:
    """Return which of the winner's scores does not follow from the published ones, if any."""
    measured, order = read_score_file(folder / SCORES), [s.score for s in report.benchmarks]
    again = winner_scores(measured, report.name, report.result_seeds, order)
    for before, now in zip(report.benchmarks, again, strict=True):
        if name := differing(before, now, WinnerScore.model_fields):
            return f"{name} of the winner in `{now.score}`"
    return None


def pictures(report: SweepReport) -> list[Picture]:
    """Return the plots that have anything to show."""
    if not report.complete:
        return []
    wanted: list[tuple[str, str, Draw]] = [
        ("history.svg", "Objectives by trial, and the best so far", _history)
    ]
    if report.importances:
        wanted.append(("importances.svg", "Importances of the settings", _importances))
    if pair := contour_settings(report):
        first, second = map(setting, pair)
        caption = f"{report.objectives[0].name} over {first} and {second}"
        wanted.append(("contour.svg", caption, _contour))
    if report.pareto:
        wanted.append(("pareto.svg", "Pareto front of the first two objectives", _pareto))
    return [
        Picture(caption, file, caption, functools.partial(_plot, report, file, caption, draw))
        for file, caption, draw in wanted
    ]


Draw = Callable[["Axes", SweepReport], None]


def _plot(report: SweepReport, file: str, caption: str, draw: Draw, target: Target) -> None:
    with canvas(target, file, (6.0, 3.8)) as (_, panels):
        axes = panels[0][0]
        plain_frame(axes)
        axes.set_title(caption, loc="left")
        draw(axes, report)


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
    spread = min(len(set(values)) for values in zip(*seen, strict=True))
    return (first, second) if len(seen) >= 3 and spread >= 2 else None


def _history(axes: Axes, report: SweepReport) -> None:
    """The first objective of each complete trial, and the best of those until then."""
    objective = report.objectives[0]
    numbers = [trial.number for trial in report.complete]
    values = _values(report.complete, objective.name)
    better = max if objective.direction == "maximize" else min
    best = [better(values[: i + 1]) for i in range(len(values))]
    axes.scatter(numbers, values, color=OURS, label="complete", zorder=3)
    pruned = [
        (trial.number, trial.so_far[max(trial.so_far)])
        for trial in report.trials
        if trial.state == "pruned" and trial.so_far
    ]
    if pruned:
        label = "pruned (first seeds only)"
        axes.scatter(*zip(*pruned, strict=True), color=MUTED, marker="x", label=label, zorder=3)
    axes.step(numbers, best, where="post", color=BEST, label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel(objective.label)
    axes.legend(frameon=False)


def _importances(axes: Axes, report: SweepReport) -> None:
    """A group of bars for each setting, a bar for each objective."""
    found = report.importances or {}
    paths, height = list(report.space), 0.8 / len(found)
    for i, (name, shares) in enumerate(found.items()):
        places = [at + i * height for at in range(len(paths))]
        widths, colour = [shares.get(path, 0.0) for path in paths], STYLES[i % len(STYLES)][0]
        axes.barh(places, widths, height=height, label=name, color=colour)
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
    taken = [{trial.params[path] for trial in report.complete} for path in pair]
    ticks = [sorted(values, key=lambda value: float(value or 0)) for values in taken]
    by_place: dict[tuple[int, int], list[float]] = {}
    for trial in report.complete:
        x, y = (tick.index(trial.params[path]) for tick, path in zip(ticks, pair, strict=True))
        by_place.setdefault((x, y), []).extend(_values([trial], report.objectives[0].name))
    xs, ys = zip(*by_place, strict=True)
    means = [sum(values) / len(values) for values in by_place.values()]
    if _spans_a_plane(list(by_place)) and max(means) > min(means):
        drawn: Any = axes.tricontourf(xs, ys, means, levels=12, cmap="viridis")
        axes.figure.colorbar(drawn, ax=axes, label=report.objectives[0].label)
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
    whole = report.complete
    axes.scatter(_values(whole, x), _values(whole, y), color=MUTED, label="trials")
    front = sorted(report.front, key=lambda trial: _values([trial], x))
    axes.plot(_values(front, x), _values(front, y), "o-", color=BEST, label="Pareto front")
    for trial in front:
        place = (_values([trial], x)[0], _values([trial], y)[0])
        axes.annotate(str(trial.number), place, textcoords="offset points", xytext=(5, 4))
    axes.set_xlabel(report.objectives[1].label)
    axes.set_ylabel(report.objectives[0].label)
    axes.legend(frameon=False)


def _values(trials: Sequence[SweepTrial], name: str) -> list[float]:
    return [trial.values[name] for trial in trials if trial.values is not None]


def _spans_a_plane(places: Sequence[tuple[int, int]]) -> bool:
    """Return whether some three places are no line."""
    (x0, y0), *rest = places
    directions = [(x - x0, y - y0) for x, y in rest]
    return any(a * d != b * c for a, b in directions for c, d in directions)


SWEEP = Kind(
    "sweep",
    "trials",
    SweepReport,
    lambda report: report.extent,
    page=as_markdown,
    pictures=pictures,
    values=lambda report: SCORES,
    difference=difference,
)
"""A sweep with the per-prompt scores of its winner."""
