"""Runs an experiment: computes what is missing, tracks it in MLflow, and reports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from harness import runtime
from harness.errors import UserError
from harness.pipeline import steps
from harness.pipeline.factory import Turns, engine_of
from harness.project import work_dir
from harness.registry.serving import variable
from harness.runtime import Event, RunOutcome, Stage
from harness.runtime.crew import visible_gpus
from harness.selection import stored
from harness.selection.names import Say
from harness.selection.planning import summary_of
from harness.selection.reporting import Reports, reports_of_run, stored_tables
from harness.selection.request import Request
from harness.selection.served_run import ServedRun
from harness.worlds.needs import refuse_missing

Observe = Callable[[Event], None]


@dataclass(frozen=True)
class Running:
    """A run of an experiment, with where its stages are computed and who is told what."""

    experiment: Request
    engine: runtime.EngineOptions
    on_note: Say
    on_tracking: Say

    def run(
        self, watch: AbstractContextManager[Observe], on_report: Callable[[Reports], None]
    ) -> Reports:
        """Compute, report and track; `watch` is entered while stages are computed."""
        it = self.experiment
        tracker = stored.tracker_of(it.store, self.on_note, self.on_tracking)
        outcome = None
        if it.pending:
            self._prepare()
            tracker.follow(it.parts)
            with watch as observe:

                def on_event(event: Event) -> None:
                    observe(event)
                    tracker.observe(event)

                outcome = self._compute(on_event)
        tables = stored_tables(it)
        reports = reports_of_run(it, tables, outcome)
        on_report(reports)
        tracker.finish(
            lambda: stored.states_after(it, stored_tables(it)),
            known=lambda: stored.states_after(it, tables),
        )
        return reports

    def _prepare(self) -> None:
        """Check everything that stages need, and that a budget can be kept."""
        it = self.experiment
        it.store.root.mkdir(parents=True, exist_ok=True)  # fails before anything is started
        requests = summary_of(it).requests if it.budget_usd is not None else []
        for of in (each for each in requests if each.usd is None):
            raise UserError(
                f"--budget-usd needs the price of {of.model}, which is not known; give it in "
                f"{variable(of.role, 'PRICE')}, as dollars for a million tokens in and out "
                "(`1.25,5`; `0,0` for a model of your own)"
            )
        here = self.engine.engine == "local"
        for advice in refuse_missing(it.profile, it.pending, it.name, here=here):
            self.on_note(advice)

    def _compute(self, on_event: Observe) -> RunOutcome:
        it = self.experiment
        if it.profile.serving is None or self.engine.engine != "local":
            return self._engine(it.pending, on_event).run(it.stages)

        def compute(stages: Sequence[Stage], observe: Observe) -> RunOutcome:
            return self._engine(stages, observe).run(runtime.Plan(stages))

        turns = Turns(it.profile, max(1, len(visible_gpus())))
        logs = work_dir() / "logs" / "servers" / f"{os.getpid()}"
        return ServedRun(turns, it.store, logs, compute, on_event).run(it.pending)

    def _engine(self, stages: Sequence[Stage], on_event: Observe) -> runtime.Engine:
        it = self.experiment
        jobs, more = it.jobs, dict[str, Any]()
        if it.profile.hardware is None or it.profile.hardware.on_cpu:
            jobs = it.workers  # on GPUs, those limit what runs at once
        if it.budget_usd is not None:
            more["environment"] = {"HARNESS_BUDGET_USD": repr(it.budget_usd)}
        return engine_of(
            it.profile,
            it.store,
            steps.FUNCTIONS,
            work_dir() / "logs",
            stages,
            jobs=jobs,
            where=self.engine,
            on_event=on_event,
            expected=it.timings.expected,
            **more,
        )
