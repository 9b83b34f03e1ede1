"""What the commands do with a sweep: run, show, serve and sync it.

A run computes what all trials share first, then the trials, then the winner. One command at a time
works on a sweep. What it was doing when it was killed or stopped, the next one does again.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from importlib.util import find_spec

import optuna

from harness import project
from harness.errors import HarnessError, UserError
from harness.pipeline.algorithm import Run
from harness.preflight import refuse_to_start
from harness.project import work_dir
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
    winner_of,
)
from harness.sweep.space import (
    base_candidate,
    candidate,
    check_settings,
    impossible,
    points,
    validation_runs,
)
from harness.sweep.study import (
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
from harness.sweep.work import Order, Say, Worker, order_of, trial_records
from harness.tracking import Mlflow
from harness.tracking.trials import published_sweep


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
        study = open_study(order.sweep, order.study, order.journal)
        for number in requeue(order.sweep, study):
            say(f"trial {number} · its command was stopped; its point is tried again")
        mlflow = Mlflow(order.work_dir, warn)
        done = len(standing(trials_of(study)))
        say(f"{order.study}: {min(done, order.target)} of {order.target} trials done")
        with order.engine() as engine:
            worker = Worker(order, engine, study, mlflow, say, watch)
            if done < order.target:
                worker.share(shared)
                worker.work()
            mlflow.attempt(lambda: trial_records(order, study))
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
    if find_study(order.study, where) is None:
        report = published_sweep(project.results_dir(), order.profile.name, name)
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


def stored_report(order: Order) -> SweepReport:
    """Return what a sweep has found, without computing anything."""
    sweep, profile = order.sweep, order.profile
    study = find_study(order.study, order.journal)
    best = winner_of(sweep, trials_of(study))
    scores: Measured = {}
    if study is not None and best is not None:
        point = point_of(trials_of(study)[best])
        scores = final_scores(final_runs(sweep, profile, point), Store(order.store_dir))
    return report_of(sweep, profile, order.study, study, scores)


def sync_sweeps(warn: Say) -> dict[str, Counter[str]]:
    """Write all ended trials of the work folder's studies to MLflow; return what was done of each.

    Studies under other settings than those declared now are left out.

    Raises:
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
            study = find_study(order.study, order.journal)
            if study is not None:
                records = trial_records(order, study)
                done[f"{sweep.name}/{profile.name}"] = Mlflow(order.work_dir, warn).write(records)
    return done


def _winner(order: Order, study: optuna.Study, worker: Worker) -> tuple[Run, ...]:
    trials = trials_of(study)
    best = winner_of(order.sweep, trials)
    if best is None:
        raise HarnessError(
            f"no trial of `{order.sweep.name}` is complete: `harness sweep show "
            f"{order.sweep.name}` says why they failed"
        )
    runs = final_runs(order.sweep, order.profile, point_of(trials[best]))
    run_final(runs, partial(worker.compute, "winner"), Store(order.store_dir), worker.say)
    return runs
