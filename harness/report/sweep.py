"""A sweep's report: its findings as data and text, published and read back.

The trials select the winner on validation prompts, and their numbers are not results; those of the
winner and the base recipe on the benchmarks are, with seeds that no trial has seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import ConfigDict, Field

from harness.registry.objective import Scalar, SweepObjective
from harness.report.model import Part
from harness.report.publication import REPORT, SCORES, IndexEntry, Publication, check_files
from harness.report.render import markdown
from harness.report.scores import Measured, RunScores, read_score_file, write_scores
from harness.report.view import ONE_SEED, Block, with_half
from harness.strict import Strict

NOT_RUN = "not run"


class _OfAnyAge(Part):
    """A part of which sweeps published by earlier versions have more fields."""

    model_config = ConfigDict(extra="ignore")


class SweepTrial(_OfAnyAge):
    number: int
    state: str
    """`running`, `complete` or `fail`."""
    params: dict[str, Scalar]
    values: dict[str, float] | None
    """The objectives by name, once complete."""
    started: str | None
    ended: str | None
    seconds: float | None
    reused: int
    """Stages found in the store."""
    computed: int
    failure: str | None

    @property
    def outcome(self) -> str:
        """Return the objective values as text, or else the trial's fate."""
        if self.values is not None:
            return ", ".join(f"{name} {digits(value)}" for name, value in self.values.items())
        return f"failed: {self.failure}" if self.state == "fail" else self.state


class WinnerScore(Strict):
    """One score of the winner, beside the base recipe's; no gain if they are the same."""

    score: str
    mean: float | None
    ci_low: float | None
    ci_high: float | None
    base: float | None
    gain: float | None
    gain_ci_low: float | None
    gain_ci_high: float | None


class SweepReport(_OfAnyAge):
    name: str
    question: str
    profile: str
    scale: str
    held_out: bool = False
    """Whether trials are measured on human prompts that were held out, by the reward that trains:
    the profile has no validation prompts."""
    study: str
    space: dict[str, tuple[Scalar, ...]]
    """Values of each setting, by path; a sample if there are infinitely many."""
    objectives: tuple[SweepObjective, ...]
    sampler: str
    seeds: tuple[int, ...]
    result_seeds: tuple[int, ...]
    """Fresh seeds of the winner."""
    target: int
    """Planned number of trials of the study."""
    counted: int
    trials: tuple[SweepTrial, ...]
    winner: int | None
    pareto: tuple[int, ...] | None
    """The trials on the Pareto front; None for a single objective."""
    benchmarks: tuple[WinnerScore, ...] = ()
    measured: Measured = Field(default_factory=dict, exclude=True)
    """Per-prompt scores of the winner and the base recipe."""

    @property
    def prompts(self) -> str:
        return "held-out original prompts" if self.held_out else "validation prompts"

    @property
    def complete(self) -> list[SweepTrial]:
        return [trial for trial in self.trials if trial.values is not None]

    @property
    def failed(self) -> list[SweepTrial]:
        return [trial for trial in self.trials if trial.state == "fail"]

    def best(self) -> list[SweepTrial]:
        """Return the complete trials, best first, each point once; later objectives break ties."""
        ranked = sorted(
            self.complete,
            key=lambda t: [o.loss((t.values or {})[o.name]) for o in self.objectives],
        )
        return list({tuple(t.params.items()): t for t in reversed(ranked)}.values())[::-1]

    def extent(self) -> IndexEntry:
        left = self.target - self.counted
        lacking = [f"{left} of {self.target} trials"] if left > 0 else []
        lacking += [] if self.benchmarks else ["the winner on the benchmarks"]
        lacking += [f"{it.score} of the winner" for it in self.benchmarks if it.mean is None]
        return IndexEntry(
            rows=tuple(found.score for found in self.benchmarks),
            seeds=self.result_seeds,
            counts={"trials": self.counted},
            lacking=tuple(lacking),
        )


def winner_run(sweep: str) -> str:
    return f"{sweep}-winner"


def base_run(sweep: str) -> str:
    return f"{sweep}-base"


def winner_scores(
    measured: Measured, sweep: str, seeds: Sequence[int], scores: Sequence[str]
) -> tuple[WinnerScore, ...]:
    """Return a winner's scores on the benchmarks, leaving out those not measured."""
    known = {score for _, _, score in measured}
    base = base_run(sweep) if base_run(sweep) in {run for run, _, _ in measured} else None
    values, found = RunScores(measured, seeds), []
    for score in (name for name in scores if name in known):
        best = values.of_gain(winner_run(sweep), base, score)
        beside = best if base is None else values.of_gain(base, None, score)
        own = {name: it for name, it in vars(best).items() if name in WinnerScore.model_fields}
        found.append(WinnerScore(score=score, base=beside.mean, **own))
    return tuple(found)


def setting(path: str) -> str:
    return path.rpartition(".")[2]


def value_text(value: Scalar) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def sweep_blocks(report: SweepReport, most: int | None = None) -> list[Block]:
    """Return a sweep's findings as small tables, with all trials or the `most` best."""
    found = [_winner_block(report)]
    if report.pareto is not None:
        by_number = {trial.number: trial for trial in report.trials}
        front = [by_number[number] for number in report.pareto]
        found.append(_trial_block(report, front, f"Pareto front ({report.prompts})"))
    title = "All trials" if most is None else "Best trials"
    trials = report.trials if most is None else report.best()[:most]
    found.append(_trial_block(report, trials, f"{title} ({report.prompts}; no result)"))
    failures = [f"trial {trial.number}: {trial.failure}" for trial in report.failed]
    return [*found, *([Block("Failed", items=tuple(failures))] if failures else [])]


def _trial_block(report: SweepReport, trials: Sequence[SweepTrial], title: str) -> Block:
    head = ["trial", *map(setting, report.space)]
    head += [objective.label for objective in report.objectives]
    rows = []
    for trial in trials:
        params = (value_text(trial.params.get(path)) for path in report.space)
        outcome = ["failed" if trial.failure else trial.outcome]
        outcome += [""] * (len(report.objectives) - 1)
        if trial.values is not None:
            outcome = [digits(trial.values[o.name]) for o in report.objectives]
        stages = f"{trial.reused} / {trial.computed}"
        rows.append((str(trial.number), *params, *outcome, stages))
    return Block(title, (), (*head, "stages reused / computed"), tuple(rows))


def _winner_block(report: SweepReport) -> Block:
    title = "Result: the winner on the benchmarks"
    if report.winner is None:
        return Block(title, ("no trial is complete yet",), ("score",))
    if not report.benchmarks:
        return Block(title, (f"Trial {report.winner}: {NOT_RUN}",), ("score",))
    seeds = ", ".join(map(str, report.result_seeds))
    level = ONE_SEED if len(report.result_seeds) == 1 else "95%"
    note = f"Trial {report.winner}, run anew with seeds {seeds} that no trial has seen; {level}."
    rows = []
    for it in report.benchmarks:
        own, gain = NOT_RUN, NOT_RUN if it.base is None else "the base recipe is the winner"
        if it.mean is not None and it.ci_high is not None:
            own = with_half(it.mean, it.ci_high, 2)
        if it.gain is not None and it.gain_ci_high is not None:
            gain = with_half(it.gain, it.gain_ci_high, 2, "+")
        rows.append((it.score, own, "" if it.base is None else f"{it.base:.2f}", gain))
    return Block(title, (note,), ("score", "winner", "base recipe", "gain"), tuple(rows))


def digits(value: float) -> str:
    """Format a number to its first three digits, and a whole one in full."""
    decimals = 0 if value == int(value) else max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:z.{decimals}f}"


def sweep_facts(report: SweepReport) -> list[tuple[str, str]]:
    states = [trial.state for trial in report.trials]
    ended = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states)) or "none"
    how = "by the reward that trains" if report.held_out else "disjoint from every benchmark"
    return [
        ("Question", report.question),
        ("Profile", f"{report.profile} (scale: {report.scale})"),
        ("Objectives", "; ".join(f"{o.direction} {o.name}" for o in report.objectives)),
        ("Measured on", f"{report.prompts}, {how}"),
        ("Seeds", f"{', '.join(map(str, report.seeds))} for each trial"),
        ("Sampler", report.sampler),
        ("Trials", f"{report.counted} of {report.target} ({ended})"),
        ("Stages", f"{sum(t.reused for t in report.trials)} reused, "
                   f"{sum(t.computed for t in report.trials)} computed"),
        ("Study", report.study),
    ]  # fmt: skip


def sweep_markdown(report: SweepReport) -> str:
    heading = f"Sweep {report.name} ({report.profile}, scale: {report.scale})"
    return markdown(heading, sweep_facts(report), sweep_blocks(report))


def publish_sweep(report: SweepReport, results_dir: Path, *, allow_fewer: bool = False) -> Path:
    return SWEEP.publish(
        report,
        sweep_markdown(report),
        f"{report.profile}/sweeps/{report.name}",
        results_dir,
        lambda folder: write_scores(report.measured, folder / SCORES),
        allow_fewer=allow_fewer,
    )


def recomputed(report: SweepReport, folder: Path) -> SweepReport:
    measured, order = read_score_file(folder / SCORES), [s.score for s in report.benchmarks]
    again = winner_scores(measured, report.name, report.result_seeds, order)
    return report.model_copy(update={"benchmarks": again})


SWEEP = Publication("sweep", SweepReport, SweepReport.extent, recomputed)
"""A sweep, published with its winner's per-prompt scores."""


def published_sweep(results_dir: Path, profile: str, name: str) -> SweepReport | None:
    folder = results_dir / profile / "sweeps" / name
    if not (folder / REPORT).is_file():
        return None
    check_files(folder, (REPORT,), "sweep")
    return SWEEP.read(folder)
