"""What the commands do with a sweep: run, show, serve and sync it.

A run computes what all trials share first, then the trials, then the winner. One command at a time
works on a sweep. What it was doing when it was killed or stopped, the next one does again.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec

import optuna

from harness.errors import HarnessError, UserError
from harness.pipeline.algorithm import Run
from harness.preflight import refuse_to_start
from harness.project import results_dir, work_dir
from harness.registry.declared import all_profiles
from harness.registry.profile import Profile, unsupported
from harness.report.scores import Measured
from harness.report.sweep import SweepReport
from harness.runtime import Plan, Stage, Store
from harness.sweep.declaration import Sweep, load_sweeps
from harness.sweep.results import (
    final_runs,
    final_scores,
    report_of,
    run_final,
    trial_line,
    winner_of,
)
from harness.sweep.space import (
    base_candidate,
    candidate,
    check_settings,
    impossible,
    on_validation,
    points,
    validation_runs,
)
from harness.sweep.study import (
    check_sampler,
    cut_off_unfinished,
    find_study,
    journal,
    open_journal,
    open_study,
    point_of,
    requeue,
    standing,
    study_of,
    trials_of,
)
from harness.sweep.work import Order, Say, Worker, order_of, source_of
from harness.tracking import TrialTracker
from harness.tracking.published import published_sweep


def shared_stages(sweep: Sweep, profile: Profile) -> list[Stage]:
    """Check what a sweep can suggest, and return the stages that every trial needs.

    Raises:
        UserError: The profile cannot run the base recipe, a setting does not exist, or some point
            is impossible.
    """
    reasons = unsupported(base_candidate(sweep, profile).recipe, (), profile)
    if reasons:
        raise UserError(
            f"`{sweep.name}` cannot run on the profile `{profile.name}`: " + "; ".join(reasons)
        )
    check_settings(sweep, profile)
    check_sampler(sweep.sampler)
    shared: dict[str, Stage] | None = None
    for point in points(sweep):
        found = candidate(sweep, profile, point)
        try:
            runs = validation_runs(sweep, found, sweep.name)
        except UserError as error:
            raise UserError(impossible(sweep, point, error)) from error
        stages = {stage.fingerprint: stage for run in runs for stage in Plan(run.targets)}
        kept = stages if shared is None else shared
        shared = {name: stage for name, stage in kept.items() if name in stages}
    return list((shared or {}).values())


def run_sweep(
    order: Order,
    shared: list[Stage],
    say: Say,
    warn: Say,
    watch: Say = lambda words: None,
) -> SweepReport:
    """Run the trials a study lacks, then the winner; return what was found.

    `watch` takes where the sweep stands.

    Raises:
        UserError: What the stages need is not on this machine, or another command runs the sweep.
        HarnessError: A stage that all need failed, or the winner failed.
        Interrupted: Ctrl-C.
    """
    pending, here = Plan(shared).pending(Store(order.store_dir)), order.where.engine == "local"
    for advice in refuse_to_start(order.profile, pending, here=here, serves=False):
        warn(advice)
    with order.alone():
        cut_off_unfinished(order.journal)
        study = open_study(order.sweep, order.study, order.journal)
        for number in requeue(order.sweep, study):
            say(f"trial {number} · its command was stopped; its point is tried again")
        tracker = order.tracker(warn)
        done = len(standing(trials_of(study)))
        say(f"{order.study}: {min(done, order.target)} of {order.target} trials done")
        with order.engine() as engine:
            worker = Worker(order, engine, study, tracker, say, watch)
            if done < order.target:
                worker.share(shared)
                worker.work()
            track_rest(order, study, tracker)
            best = _winner(order, study, worker) if order.final else ()
        scores = final_scores(best, Store(order.store_dir))
        return report_of(order.sweep, order.profile, order.study, study, scores)


def dashboard_command(order: Order, port: int) -> list[str]:
    """Return the command that serves optuna-dashboard's pages of a sweep on this machine.

    Of one that was not run here, they are those of the published study.

    Raises:
        UserError: It is not installed, or there are no trials.
    """
    if find_spec("optuna_dashboard") is None:
        raise UserError(
            "optuna-dashboard is not installed: install the extra `sweeps`, "
            "`pip install 'eva-harness[sweeps]'`"
        )
    where, name = order.journal, order.sweep.name
    if find_study(order.study, where)[0] is None:
        report = published_sweep(results_dir(), order.profile.name, name)
        if report is None:
            raise UserError(
                f"there are no trials of `{name}` yet; run the sweep first: "
                f"`harness sweep run {name}`"
            )
        where = where.with_suffix(".published.log")
        where.unlink(missing_ok=True)
        study_of(report, open_journal(where))
    code = "from optuna_dashboard._cli import main; main()"
    options = ["--host", "127.0.0.1", "--port", str(port), "--server", "wsgiref"]
    return [sys.executable, "-c", code, str(where), *options]


def stored_report(order: Order) -> tuple[SweepReport, int]:
    """Return what a sweep has found, without computing anything, and its number of old studies."""
    sweep, profile = order.sweep, order.profile
    study, others = find_study(order.study, order.journal)
    best = winner_of(sweep, trials_of(study))
    scores: Measured = {}
    if study is not None and best is not None:
        point = point_of(trials_of(study)[best])
        scores = final_scores(final_runs(sweep, profile, point), Store(order.store_dir))
    return report_of(sweep, profile, order.study, study, scores), others


def sync_sweeps(warn: Say) -> dict[str, int]:
    """Write all ended trials of the work folder's studies to MLflow; return how many, by study.

    Studies under other settings than those declared now are left out.

    Raises:
        UserError: MLflow is a file in a folder that cannot be written, and lacks a trial.
        TrackingError: MLflow cannot be reached, or refuses what is written.
    """
    done = {}
    for sweep in load_sweeps().values():
        if not journal(work_dir(), sweep.name).exists():
            continue
        for profile in all_profiles().values():
            try:
                order = order_of(sweep, profile)
            except UserError:
                continue  # it cannot run there, so it has no study
            study, _ = find_study(order.study, order.journal)
            if study is not None:
                tracker = order.tracker(warn, must=True)
                track_rest(order, study, tracker, again=not tracker.is_read_only())
                done[f"{sweep.name}/{profile.name}"] = len(trials_of(study))
    return done


def track_rest(
    order: Order, study: optuna.Study, tracker: TrialTracker, *, again: bool = False
) -> None:
    """Write the ended trials that MLflow lacks: those it was away for, and killed ones.

    `again` also writes those that it had, should another server be meant now.
    """
    trials = trials_of(study)
    counted = {trial.number for trial in standing(trials)}
    for trial in trials:
        line = trial_line(order.sweep, trial, stands=trial.number in counted)
        known = line.mlflow_run and trial.number in counted and not again
        if not trial.state.is_finished() or known:
            continue
        if trial.params.keys() != order.sweep.space.keys():
            continue
        found = candidate(order.sweep, order.profile, point_of(trial))
        runs = validation_runs(order.sweep, found, order.run_id(trial.number))
        tracker.write(line, runs, on_validation(found.profile), source_of(order, found.recipe))


def _winner(order: Order, study: optuna.Study, worker: Worker) -> tuple[Run, ...]:
    """Run the winner on the benchmarks; return its runs."""
    trials = trials_of(study)
    best = winner_of(order.sweep, trials)
    if best is None:
        raise HarnessError(
            f"no trial of `{order.sweep.name}` is complete: `harness sweep show "
            f"{order.sweep.name}` says why they failed"
        )
    runs = final_runs(order.sweep, order.profile, point_of(trials[best]))
    run_final(runs, partial(worker.compute, "winner"), Store(order.store_dir), worker.say)
    found = {"winner": candidate(order.sweep, order.profile, point_of(trials[best]))}
    for role, it in {**found, "base": base_candidate(order.sweep, order.profile)}.items():
        own = [run for run in runs if run.run_id.rpartition("-")[2] == role]
        worker.tracker.write_runs(own, it.profile, {"sweep.role": role})
    return runs
