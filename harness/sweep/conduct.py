"""A whole `sweep run`: what all trials share first, then the trials, then the winner.

What every trial needs (the first iteration of a chain, for one) is computed once, by as many
workers as the trials will have, before two of them would compute it twice. Then one process, or
several, take trials until the study has enough.
"""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec

import optuna
from optuna.trial import TrialState

from harness.errors import HarnessError, UserError
from harness.preflight import refuse_to_start
from harness.project import store_dir, work_dir
from harness.registry.declared import all_profiles
from harness.registry.profile import Profile, unsupported
from harness.report.scores import Measured
from harness.report.sweep import SweepReport
from harness.runtime import HERE, EngineOptions, Plan, Stage, Store
from harness.sweep.declaration import Sweep, load_sweeps
from harness.sweep.results import (
    Final,
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
    Claims,
    Note,
    check_sampler,
    counted,
    default_storage,
    find_study,
    is_there,
    open_storage,
    point_of,
    study_name,
    sweep_lock,
    trials_of,
)
from harness.sweep.work import Order, Say, Standing, Watch, Worker, run_processes
from harness.tracking import TrialTracker
from harness.tracking.connection import shown as shown_uri
from harness.trainer import factory, steps


def order_of(
    sweep: Sweep,
    profile: Profile,
    trials: int | None = None,
    storage: str | None = None,
    where: EngineOptions = HERE,
) -> Order:
    """Return what the processes of a sweep are to do, with another number of trials or storage.

    Raises:
        UserError: The profile cannot run the base recipe.
    """
    runs = validation_runs(sweep, base_candidate(sweep, profile), sweep.name)
    stages = Plan(stage for run in runs for stage in run.targets).stages
    hours = sweep.budget.hours if sweep.budget else None
    return Order(
        sweep=sweep,
        profile=profile,
        study=study_name(sweep, profile),
        storage=storage or default_storage(work_dir(), sweep.name),
        target=sweep.target(trials),
        until=None if hours is None else time.time() + 3600 * hours,
        work_dir=work_dir(),
        store_dir=store_dir(),
        where=where,
        functions=steps.FUNCTIONS,
        preload=tuple(factory.needed_modules(stages)),
        expected_s=factory.EXPECTED_S,
    )


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
    jobs: int,
    say: Say,
    warn: Say,
    *,
    final: bool = True,
    watch: Watch = lambda progress: None,
) -> SweepReport:
    """Run the trials a study lacks with so many processes, then the winner; return what was found.

    Without `final` the winner isn't run. `watch` takes where the sweep stands.

    Raises:
        UserError: The storage cannot be used, or what the stages need is not on this machine.
        HarnessError: A stage that all need failed, a process died, or the winner failed.
        Interrupted: Ctrl-C.
    """
    if jobs > 1 and order.where.engine == "ray" and order.where.ray_address is None:
        raise UserError(
            "several processes of a sweep share one Ray: start it by `ray start --head` and give "
            "its address, as `--ray-address auto`, or leave `--jobs` out"
        )
    order = order.model_copy(update={"final": final})
    pending, here = Plan(shared).pending(Store(order.store_dir)), order.where.engine == "local"
    for advice in refuse_to_start(order.profile, pending, here=here):
        warn(advice)
    claims = order.claims()
    tracker = order.tracker(warn)
    for number in claims.repair():
        say(f"trial {number} · its process was killed; its point is queued again or given up")
    missing = order.target - counted(trials_of(claims.study))
    done = max(0, order.target - missing)
    say(f"{order.study}: {done} of {order.target} trials begun or done, in {order.storage_shown}")
    if missing > 0:
        _share(order, shared, jobs, say, watch)
        if jobs == 1:
            with order.engine(1, "0") as engine:
                Worker(order, engine, claims, tracker, say, watch).work()
        else:
            run_processes(order, min(jobs, missing), say, warn, watch)
    track_rest(order, claims.study, tracker)
    best = _winner(order, claims, jobs, tracker, say, watch) if final else None
    scores = {} if best is None else final_scores(best, Store(order.store_dir))
    return report_of(order.sweep, order.profile, order.study, claims.study, scores)


def dashboard_command(name: str, where: str, port: int) -> list[str]:
    """Return the command that serves optuna-dashboard's pages of a sweep's storage on this machine.

    Raises:
        UserError: It is not installed, or there is no such storage yet.
    """
    if find_spec("optuna_dashboard") is None:
        raise UserError(
            "optuna-dashboard is not installed: install the extra `sweeps`, "
            "`pip install 'eva-harness[sweeps]'`"
        )
    if not is_there(where):
        raise UserError(
            f"there are no trials in {shown_uri(where)} yet; run the sweep first: "
            f"`harness sweep run {name}`"
        )
    code = "from optuna_dashboard._cli import main; main()"
    options = ["--host", "127.0.0.1", "--port", str(port), "--server", "wsgiref"]
    return [sys.executable, "-c", code, where, *options]


def stored_report(
    sweep: Sweep, profile: Profile, name: str, where: str, store: Store
) -> tuple[SweepReport, int]:
    """Return what a sweep has found, without computing anything, and its number of old studies.

    Raises:
        UserError: The storage cannot be used.
    """
    study, others = None, 0
    if is_there(where):
        study, others = find_study(name, open_storage(where), where)
    best = winner_of(sweep, trials_of(study))
    scores: Measured = {}
    if study is not None and best is not None:
        point = point_of(trials_of(study)[best])
        scores = final_scores(final_runs(sweep, profile, point), store)
    return report_of(sweep, profile, name, study, scores), others


def sync_sweeps(warn: Say) -> dict[str, int]:
    """Write all ended trials of the work folder's studies to MLflow; return how many, by study.

    Studies under other settings than those declared now, and in other storages, are left out.

    Raises:
        UserError: A storage cannot be used.
    """
    done = {}
    for sweep in load_sweeps().values():
        where = default_storage(work_dir(), sweep.name)
        if not is_there(where):
            continue
        with sweep_lock(work_dir(), sweep.name):
            storage = open_storage(where)
        for profile in all_profiles().values():
            try:
                order = order_of(sweep, profile)
            except UserError:
                continue  # it cannot run there, so it has no study
            study, _ = find_study(order.study, storage, where)
            if study is not None:
                track_rest(order, study, order.tracker(warn), again=True)
                done[f"{sweep.name}/{profile.name}"] = len(trials_of(study))
    return done


def track_rest(
    order: Order, study: optuna.Study, tracker: TrialTracker, *, again: bool = False
) -> None:
    """Write the ended trials that MLflow lacks: those it was away for, and killed ones.

    `again` also writes those that it had, should another server be meant now.
    """
    for trial in trials_of(study):
        line = trial_line(order.sweep, trial)
        unfinished = trial.state in (TrialState.RUNNING, TrialState.WAITING)
        known = line.mlflow_run and Note.DONE_AGAIN not in trial.user_attrs and not again
        if unfinished or known:
            continue
        if trial.params.keys() != order.sweep.space.keys():
            continue
        found = candidate(order.sweep, order.profile, point_of(trial))
        runs = validation_runs(order.sweep, found, order.run_id(trial.number))
        tracker.write(line, runs, on_validation(found.profile))


def _share(order: Order, shared: list[Stage], jobs: int, say: Say, watch: Watch) -> None:
    """Compute what every trial needs."""
    plan, store = Plan(shared), Store(order.store_dir)
    missing = len(plan.pending(store))
    if not missing:
        return
    say(f"shared by all trials: {len(plan) - missing} of {len(plan)} stages reused, "
        f"{missing} to compute")  # fmt: skip
    with order.engine(jobs, "shared") as engine:
        Standing(order, engine, watch, jobs).begin("shared by all trials", plan)
        outcome = engine.run(plan)
    if not outcome.ok:
        stage, reason = next(iter(outcome.failed.items()))
        raise HarnessError(
            f"a stage that every trial needs failed, {stage.title}: {reason}; run the same "
            "command to try again"
        )


def _winner(
    order: Order, claims: Claims, jobs: int, tracker: TrialTracker, say: Say, watch: Watch
) -> Final | None:
    """Run the winner on the benchmarks once the study is complete."""
    trials = trials_of(claims.study)
    begun, running = counted(trials), sum(t.state == TrialState.RUNNING for t in trials)
    if begun < order.target:
        say(f"the budget is used up with {begun} of {order.target} trials: run the same command "
            "again to go on")  # fmt: skip
        return None
    if running:
        say(f"{running} trials are worked on elsewhere: run the same command again for the winner")
        return None
    best = winner_of(order.sweep, trials)
    if best is None:
        raise HarnessError(
            f"no trial of `{order.sweep.name}` is complete: `harness sweep show "
            f"{order.sweep.name}` says why they failed"
        )
    final = final_runs(order.sweep, order.profile, point_of(trials[best]))
    with order.engine(jobs, "winner") as engine:
        Standing(order, engine, watch, jobs).begin("winner", final.plan())
        run_final(final, engine, say)
    for run_id, profile in final.profiles.items():
        runs = [run for run in final.runs if run.run_id == run_id]
        tracker.write_runs(runs, profile, {"sweep.role": run_id.rpartition("-")[2]})
    return final
