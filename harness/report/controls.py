"""Controls: can a profile detect a difference between prompts?

While a control of a kind of training has failed or has not run, verdicts on tables about prompts
that use it are inadmissible. Rows are alike if their difference is shown to be smaller than a share
of what the oracle's choice gains (two one-sided tests); the control fails if they are shown to
differ, and is open if neither is shown. An open control, or one that the profile cannot run, blocks
nothing by itself; but verdicts need one dose-response that passed. Claims that compare ways to
choose need the choosing controls as well, of which one must be able to run: the oracle's choice
beats a random one, the worst loses to it, and shuffled oracle values equal it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from harness import project
from harness.errors import UserError
from harness.pipeline.factory import SEED
from harness.pipeline.runs import runnable
from harness.registry import declared
from harness.registry.claims import Claim, Manipulation
from harness.registry.profile import Profile, benchmark_of, table_at
from harness.registry.schema import Control, Table, TrainingKind
from harness.report.model import Cell, CheckedControl, ControlState
from harness.report.publication import REPORT, read_published, read_report
from harness.report.scores import Measured, RunScores, read_scores, shared_seeds
from harness.runtime import Store
from harness.statistics import Scores, mean_interval
from harness.worlds import ACCURACY

FEWEST_SEEDS = 3
"""Minimum seeds for a control; with fewer, the standard error is too unreliable."""


@dataclass(frozen=True)
class Controls:
    checked: tuple[CheckedControl, ...]
    tripled: Mapping[tuple[TrainingKind, str], float]
    """Gain of 3x human prompts over 1x, by kind of training and score."""
    accuracies: Callable[[], Mapping[str, Scores]] = dict
    """Whether each reward model orders each held-out pair correctly, by row of their table."""

    def why_not_better(self, needs: Manipulation) -> str | None:
        """Return why a reward model is not shown to be better than another, or None if it is."""
        found = self.accuracies()
        if not {needs.better, needs.than} <= found.keys():
            return (
                f"whether the reward model `{needs.better}` is better than `{needs.than}` is not "
                "measured here (harness run reward-models, then publish it)"
            )
        more = mean_interval(found[needs.better].minus(found[needs.than]).scaled(100.0))
        if more.low > 0.0:
            return None
        return (
            f"the reward model `{needs.better}` is not shown to be better than `{needs.than}`: its "
            f"share of held-out pairs in the right order is {more.mean:+.1f} points higher "
            f"({more.low:+.1f} to {more.high:+.1f})"
        )

    @property
    def decided(self) -> set[str]:
        return {it.id for it in self.checked if it.state not in ("not_run", "not_available")}

    def why_not(self, training: TrainingKind) -> str | None:
        """Return why verdicts on a kind of training, other than on choosing, are inadmissible."""
        own = [
            control
            for control in self.checked
            if control.training == training and not control.id.startswith(CHOOSING)
        ]
        why = _stopped(own, f"{training} controls")
        if why is None and not any(control.doses and control.state == "passed" for control in own):
            return f"no dose-response of {training} training can run here"
        return why

    def why_not_choosing(self, training: TrainingKind) -> str | None:
        """Return why verdicts on choosing prompts are inadmissible."""
        known = {control.id: control for control in self.checked}
        needed = choosing(training)
        called = "controls on choosing"
        why = _stopped([known[name] for name in needed if name in known], called)
        missing = [f"`{name}`" for name in needed if name not in known]
        if why is None and missing:
            why = f"{called} not declared: {', '.join(missing)}"
        if why is None and all(known[name].state == "not_available" for name in needed):
            why = f"no control on choosing prompts of {training} training can run here"
        return why


CHOOSING = "choose-"
"""Id prefix of the choosing controls."""


def choosing(training: TrainingKind) -> tuple[str, ...]:
    """Return the ids of the controls required by claims that compare ways to choose."""
    which = ("", "-worst", "-shuffled")
    if training == "online":
        return tuple(f"{CHOOSING}parents{end}-online" for end in which)
    of = ("parents", "parents-6x", "prompts")
    return tuple(f"{CHOOSING}{what}{end}" for what in of for end in which)


def _stopped(own: Iterable[CheckedControl], called: str) -> str | None:
    for state, said in (("failed", "failed"), ("not_run", "not run")):
        found = [f"`{control.id}`" for control in own if control.state == state]
        if found:
            return f"{called} {said}: {', '.join(found)}"
    return None


NO_CONTROLS = "no controls have run at this profile (harness run controls, with its --profile)"


def inadmissible(table: Table, controls: Controls | None) -> dict[TrainingKind, str]:
    """Return why verdicts on a table about prompts are inadmissible, by kind of training."""
    if controls is None:
        return dict.fromkeys(table.about_prompts, NO_CONTROLS)
    reasons = {training: controls.why_not(training) for training in table.about_prompts}
    return {training: reason for training, reason in reasons.items() if reason is not None}


def inadmissible_claims(
    table: Table, claims: Iterable[Claim], controls: Controls | None
) -> dict[str, str]:
    of_table = inadmissible(table, controls)
    found = {}
    for claim in claims:
        trainings = table.trainings_behind(claim)
        reasons = [of_table.get(training) for training in trainings]
        if controls is not None and table.is_about_choosing(claim):
            reasons += [controls.why_not_choosing(training) for training in trainings]
        if controls is not None and claim.needs is not None:
            reasons.append(controls.why_not_better(claim.needs))
        why = "; ".join(dict.fromkeys(filter(None, reasons)))
        if why:
            found[claim.id] = why
    return found


def _checked(control: Control, scores: RunScores, lacking: Mapping[str, str]) -> CheckedControl:
    said = control.model_dump(exclude={"standard_errors"}) | {"needed": control.standard_errors}
    needs = (control.column, *control.compared)
    unable = next((lacking[part] for part in needs if part in lacking), None)
    if unable is not None:
        return CheckedControl(**said, state="not_available", reason=unable)
    known = {row: scores.of(row, control.column) for row in control.compared}
    done = {row: own for row, own in known.items() if own is not None}
    reason = None
    if len(done) < len(known):
        seeds = Counter((run, score) for run, _, score in scores.measured)
        runs = {row: scores.run(row, control.column) or "" for row in known if row not in done}
        fewest = min(runs, key=lambda row: seeds[runs[row], scores.reads[control.column]])
        reason = f"`{fewest}` lacks seeds"
    elif len(scores.seeds) < FEWEST_SEEDS:
        reason = f"it needs {FEWEST_SEEDS} seeds and has {len(scores.seeds)}"
    if reason is not None:
        return CheckedControl(**said, state="not_run", reason=reason)
    whole = [done[row] for row in control.rows]
    compared = whole[-1].minus(whole[0])
    if control.kind == "less" and control.share is not None:
        compared = compared.scaled(control.share).minus(whole[1].minus(whole[0]))
    difference = mean_interval(compared)
    distance = in_standard_errors(difference.mean, difference.standard_error)
    means = [own.mean for own in whole]
    falls = control.kind == "rising" and any(after <= own for own, after in pairwise(means))
    least, margin = control.standard_errors, None
    passed = not falls and distance >= least and distance > 0.0
    state: ControlState = "passed" if passed else "failed"
    if control.edge is not None and control.share is not None:
        first, second = (done[row] for row in control.edge)
        allowed = second.minus(first).scaled(control.share)
        margin, state = allowed.mean, _alike(compared, allowed, abs(distance) >= least)
    return CheckedControl(
        **said,
        state=state,
        margin=margin,
        means=tuple(means),
        distance=difference.mean,
        standard_errors=distance if math.isfinite(distance) else None,
        reason="the scores do not rise with each row" if falls else None,
    )


def _alike(compared: Scores, allowed: Scores, differ: bool) -> ControlState:
    """Return whether a difference is within what is allowed, given the noise of both."""
    if allowed.mean > 0.0:
        sides = (mean_interval(allowed.plus(compared)), mean_interval(allowed.minus(compared)))
        if all(side.low > 0.0 for side in sides):
            return "passed"
    return "failed" if differ else "open"


def in_standard_errors(mean: float, error: float) -> float:
    """Return a mean in standard errors: 0 or infinite if the error is zero."""
    if error > 0.0:
        return mean / error
    return math.copysign(math.inf, mean) if mean else 0.0


def fingerprints_of(cells: Iterable[Cell]) -> dict[tuple[str, str], str]:
    """Return the fingerprint of each judged run by (`run/profile/seed`, column)."""
    judged = [(run.partition("@"), cell.column) for cell in cells for run in cell.runs]
    return {(run, column): fingerprint for (run, _, fingerprint), column in judged}


class KnownControls:
    """A profile's controls, loaded once."""

    def __init__(self, profile: Profile, store: Store | None, results: Path | None = None) -> None:
        self.profile, self.store = profile, store
        self._results = results or project.results_dir()
        self.accuracies = cache(self._accuracies)
        controls = declared.all_tables().get(declared.CONTROLS)
        self._table = None if controls is None else table_at(controls, profile)

    def applying_to(self, cells: Iterable[Cell] = ()) -> Controls | None:
        """Return the controls that apply to a table with these cells.

        The store's, if they decide everything that the published ones do (some controls share rows
        with other tables) or if the published ones come from other runs than the cells.
        """
        stored = self.stored
        if self.published is None:
            return stored
        published, of_published = self.published
        if stored is not None and published.decided <= stored.decided:
            return stored
        own = fingerprints_of(cells)
        agree = all(of_published.get(run, known) == known for run, known in own.items())
        return published if agree else stored

    @cached_property
    def stored(self) -> Controls | None:
        """The controls as decided by the store, each by the seeds that all its rows have."""
        table, profile, store = self._table, self.profile, self.store
        if table is None or store is None or not (seeds := store.seeds()):
            return None
        try:
            planned, lacking = runnable(table, profile, seeds)
        except UserError:
            # This machine lacks something that the profile names, so nothing can have run here.
            return None
        measured = {} if planned is None else read_scores(planned, store)
        if not measured:
            return None
        return checked_runs(table, profile, None, measured, lacking, self.accuracies)

    @cached_property
    def published(self) -> tuple[Controls, Mapping[tuple[str, str], str]] | None:
        """The published controls with their current wording, and the fingerprints of their runs."""
        table, profile = self._table, self.profile
        folder = self._results / profile.name / (table.id if table else "")
        if table is None or not (folder / REPORT).is_file():
            return None
        # The scores are slow to read, and `verify` has recomputed the report from them.
        report = read_report(folder)
        cells = {(cell.row, cell.column): cell for cell in report.cells}

        def gain(less: str, more: str, column: str) -> float | None:
            cell = cells.get((more, column))
            return cell.gain if cell is not None and cell.baseline_row == less else None

        now = {control.id: control.statement for control in table.controls}
        checked = tuple(
            it.model_copy(update={"statement": now.get(it.id, it.statement)})
            for it in report.controls
        )
        found = Controls(checked, tripled_prompts(table, gain), self.accuracies)
        return found, fingerprints_of(report.cells)

    def _accuracies(self) -> dict[str, Scores]:
        found: dict[str, Scores] = {}
        for table in declared.all_tables().values():
            folder = self._results / self.profile.name / table.id
            if table.reward_model_study is None or not (folder / REPORT).is_file():
                continue
            scores = RunScores(read_published(folder)[1], [SEED])
            column = table.column(table.reward_model_study)
            for row in table.rows:
                own = scores.of_run(row.run_id(column), ACCURACY)
                found |= {} if own is None else {row.id: own}
        return found


def checked_runs(
    table: Table,
    profile: Profile,
    seeds: Mapping[str, Sequence[int]] | None,
    measured: Measured,
    lacking: Mapping[str, str],
    accuracies: Callable[[], Mapping[str, Scores]] = dict,
) -> Controls:
    """Evaluate a table's controls; `lacking` says why rows cannot run.

    Each uses the seeds that `seeds` requests of all its rows, or without `seeds` those measured.
    """
    unmeasured = {
        column.id: f"`{profile.name}` has no score `{column.reads}`"
        for column in table.columns
        if benchmark_of(profile, column.reads) is None
    }
    known = sorted({seed for _, seed, _ in measured})
    every = RunScores.of_table(table, table.rows, known, measured)

    def shared(rows: Sequence[str], column: str) -> RunScores:
        if seeds is None:
            runs = [every.run(row, column) for row in rows]
            own = shared_seeds(measured, runs, every.reads[column])
        else:
            own = tuple(sorted(set.intersection(*({*seeds.get(row, ())} for row in rows))))
        return every.at(own) if own else every

    def gain(less: str, more: str, column: str) -> float | None:
        own = shared((less, more), column)
        before, after = own.of(less, column), own.of(more, column)
        return None if before is None or after is None else after.mean - before.mean

    checked = [
        _checked(it, shared(it.compared, it.column), {**lacking, **unmeasured})
        for it in table.controls
    ]
    return Controls(tuple(checked), tripled_prompts(table, gain), accuracies)


def seeds_asked(cells: Iterable[Cell]) -> dict[str, tuple[int, ...]]:
    """Return the seeds of each row."""
    return {cell.row: cell.seeds for cell in cells}


def tripled_prompts(
    table: Table, gain: Callable[[str, str, str], float | None]
) -> dict[tuple[TrainingKind, str], float]:
    """Return `Controls.tripled`, given the gain of a row over one with fewer prompts."""
    found: dict[tuple[TrainingKind, str], float] = {}
    for control in table.controls:
        rows = dict(zip(control.doses, control.rows, strict=True)) if control.doses else {}
        if {1, 3} <= rows.keys():
            for column in table.columns:
                own = gain(rows[1], rows[3], column.id)
                if own is not None:
                    found[control.training, column.reads] = own
    return found
