"""A sweep as plain data, as JSON, and as a page in Markdown.

The trials chose the winner on validation prompts; their numbers are no result. What the winner
scores on the benchmarks with fresh seeds is, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from harness.report.render import template
from harness.report.scores import Measured
from harness.report.view import Block
from harness.report.winner import WinnerScore, winner_scores

Scalar = bool | int | float | str | None

NOT_RUN = "not run"
TOO_FEW = "n/a: too few complete trials"


@dataclass(frozen=True)
class SweepObjective:
    """What a sweep measures: name, measure, better end, and unit."""

    name: str
    measure: str
    direction: str
    unit: str


@dataclass(frozen=True)
class SweepTrial:
    """One trial.

    Attributes:
        number: Its number in the study.
        state: `running`, `complete`, `pruned` or `fail`.
        params: Its settings, by path.
        values: Its objectives by name; None where it is not complete.
        so_far: The one objective averaged over the first seeds, by their number.
        started: When it began, ISO 8601 in UTC.
        ended: When it ended.
        seconds: How long it took.
        reused: Stages it found in the store.
        computed: Stages computed for it.
        failure: Why it failed.
        done_again: Whether another trial stands for it, because its process was killed.
        retry_of: The trial that it stands for.
        mlflow_run: Id of its MLflow run.
    """

    number: int
    state: str
    params: Mapping[str, Scalar]
    values: Mapping[str, float] | None
    so_far: Mapping[int, float]
    started: str | None
    ended: str | None
    seconds: float | None
    reused: int
    computed: int
    failure: str | None
    done_again: bool
    retry_of: int | None
    mlflow_run: str | None


@dataclass(frozen=True)
class SweepReport:
    """A sweep on one profile.

    Attributes:
        name: Name of the sweep.
        question: What it is to answer.
        profile: Name of the profile.
        scale: Scale of the profile.
        study: Name of the study.
        space: The values of each setting, by path; of an endless one some of them.
        objectives: What is measured; the first decides.
        sampler: What suggests points.
        pruner: What ends trials early; None for nothing.
        seeds: Seeds of each trial.
        result_seeds: Fresh seeds of the winner.
        target: Trials the study shall have.
        counted: Trials it has.
        trials: The trials in order.
        winner: Number of the best trial; None where none is complete.
        pareto: Numbers of the trials that no other is better than; None for one objective.
        importances: Share of each setting in the variance of each objective; None with too few.
        scores: Names of the benchmarks' scores, in the profile's order.
        measured: Per-prompt scores of the winner and the base recipe; empty where not run.
    """

    name: str
    question: str
    profile: str
    scale: str
    study: str
    space: Mapping[str, Sequence[Scalar]]
    objectives: tuple[SweepObjective, ...]
    sampler: str
    pruner: str | None
    seeds: tuple[int, ...]
    result_seeds: tuple[int, ...]
    target: int
    counted: int
    trials: tuple[SweepTrial, ...]
    winner: int | None
    pareto: tuple[int, ...] | None
    importances: Mapping[str, Mapping[str, float]] | None
    scores: tuple[str, ...]
    measured: Measured

    @cached_property
    def benchmarks(self) -> list[WinnerScore]:
        """What the winner scores on the benchmarks; empty where it was not run."""
        return winner_scores(self.measured, self.name, self.result_seeds, self.scores)

    @property
    def complete(self) -> list[SweepTrial]:
        """The complete trials, in order."""
        return [trial for trial in self.trials if trial.values is not None]

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

    def as_json(self) -> dict[str, Any]:
        """Return the sweep as JSON data."""
        data = asdict(replace(self, measured={}))
        del data["measured"], data["scores"]
        data["benchmarks"] = [score.as_json() for score in self.benchmarks]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in data.items()}


def setting(path: str) -> str:
    """Return the last part of a setting's path, its name for people."""
    return path.rpartition(".")[2]


def value_text(value: Scalar) -> str:
    """Return a setting's value for people."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def trial_block(report: SweepReport, trials: Sequence[SweepTrial], title: str) -> Block:
    """Return some trials as a table: settings, objectives, and how each ended."""
    head = ["trial", *map(setting, report.space)]
    head += [f"{o.name} ({o.unit})" if o.unit else o.name for o in report.objectives]
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
        (
            s.score,
            _with_interval(s.mean, s.ci_high),
            "" if s.base is None else f"{s.base:.3f}",
            _with_interval(s.gain, s.gain_ci_high, "+"),
        )
        for s in report.benchmarks
    ]
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


def as_markdown(report: SweepReport, plots: Sequence[tuple[str, str]]) -> str:
    """Return a sweep as GitHub-flavoured Markdown.

    Args:
        report: The sweep.
        plots: File name and caption of each plot.
    """
    blocks = [winner_block(report)]
    if report.pareto is not None:
        front = [report.trial(number) for number in report.pareto]
        blocks.append(trial_block(report, front, "Pareto front (validation prompts)"))
    blocks += [
        importance_block(report),
        trial_block(report, report.trials, "All trials (validation prompts; no result)"),
    ]
    return template("sweep.md.j2").render(
        heading=f"Sweep {report.name} ({report.profile}, scale: {report.scale})",
        facts=facts(report),
        blocks=blocks,
        plots=plots,
        failures=[f"trial {trial.number}: {trial.failure}" for trial in report.failed],
    )
