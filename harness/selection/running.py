"""Runs an experiment: computes what is missing, tracks it in MLflow, and reports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from harness.errors import UserError
from harness.pipeline.estimate import requests_of
from harness.pipeline.factory import Turns, engine_of
from harness.project import work_dir
from harness.registry.serving import variable
from harness.runtime import EngineOptions, Event, Plan, RunOutcome, Stage
from harness.runtime.crew import visible_gpus
from harness.selection import stored
from harness.selection.reporting import Reports, run_reports
from harness.selection.request import Request
from harness.selection.served_run import Observe, ServedRun
from harness.words import Say, ignore
from harness.worlds.needs import refuse_missing


def run(
    it: Request,
    where: EngineOptions,
    watch: AbstractContextManager[Observe] | None,
    on_note: Say,
    on_tracking: Say,
    on_report: Callable[[Reports], None],
) -> Reports:
    """Compute, report and track; `watch` is entered while stages are computed."""
    tracker = stored.tracker_of(it.store, on_note, on_tracking)
    outcome = None
    if it.pending:
        _prepare(it, where, on_note)
        tracker.follow(it.parts)
        with watch or nullcontext(ignore) as observe:

            def on_event(event: Event) -> None:
                observe(event)
                tracker.observe(event)

            outcome = _compute(it, where, on_event)
    reports = run_reports(it, outcome)
    on_report(reports)
    tracker.finish(
        lambda: stored.states_after(it, run_reports(it, outcome).tables),
        known=lambda: stored.states_after(it, reports.tables),
    )
    return reports


def _prepare(it: Request, where: EngineOptions, on_note: Say) -> None:
    """Check everything that stages need, and that a budget can be kept."""
    it.store.root.mkdir(parents=True, exist_ok=True)  # fails before anything is started
    requests = requests_of(it.profile, it.pending) if it.budget_usd is not None else []
    for of in (each for each in requests if each.usd is None):
        raise UserError(
            f"--budget-usd needs the price of {of.model}, which is not known; give it in "
            f"{variable(of.role, 'PRICE')}, as dollars for a million tokens in and out "
            "(`1.25,5`; `0,0` for a model of your own)"
        )
    if it.profile.creator.max_new_tokens is None and any(of.role == "creator" for of in requests):
        raise UserError(
            "--budget-usd needs the longest rewrite, in tokens; set "
            "`profile.creator.max_new_tokens`"
        )
    for advice in refuse_missing(it.profile, it.pending, it.name, here=where.engine == "local"):
        on_note(advice)


def _compute(it: Request, where: EngineOptions, on_event: Observe) -> RunOutcome:
    budget = it.budget_usd

    def compute(stages: Sequence[Stage], observe: Observe) -> RunOutcome:
        engine = engine_of(
            it.profile,
            it.store,
            work_dir() / "logs",
            stages,
            jobs=it.jobs,
            where=where,
            on_event=observe,
            expected=it.timings.expected,
            environment={} if budget is None else {"HARNESS_BUDGET_USD": repr(budget)},
        )
        return engine.run(Plan(stages))

    if it.profile.serving is None or where.engine != "local":
        return compute(it.pending, on_event)
    turns = Turns(it.profile, max(1, len(visible_gpus())))
    logs = work_dir() / "logs" / "servers" / f"{os.getpid()}"
    return ServedRun(turns, it.store, logs, compute, on_event).run(it.pending)
