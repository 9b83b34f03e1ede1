"""Plans: what running a selection computes, how long the rest takes, and what it asks for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness import runtime
from harness.errors import UserError
from harness.pipeline.estimate import (
    PaidRequests,
    Timings,
    finished_stages,
    left_s,
    requests_of,
)
from harness.pipeline.factory import Turns, engine_of, needs_of
from harness.pipeline.runs import GroupRuns, TableRuns, Work, parts_of
from harness.project import work_dir
from harness.registry.serving import variable
from harness.runtime import Event, Stage
from harness.runtime.crew import visible_gpus
from harness.selection.names import DEFAULT_PROFILE, Say, again, ignore, workers_of
from harness.strict import Output, Strict
from harness.words import counted, duration, seeds_text

if TYPE_CHECKING:
    from harness.runtime import RunOutcome
    from harness.selection.reporting import Reports
    from harness.tracking import Tracker

Observe = Callable[[Event], None]


class Counts(Strict):
    """Number of stages, in total and by state."""

    total: int
    done: int
    missing: int
    failed: int


class KindCounts(Counts):
    """Number of stages of one kind."""

    kind: str


class Failure(Strict):
    """A stage that failed when it was last computed."""

    stage: str
    kind: str
    fingerprint: str
    reason: str


class PlannedTable(Strict):
    """One table in a group plan."""

    table: str
    rows: int
    runs: int
    stages: Counts


class LeftOutTable(Strict):
    """A table that the profile cannot run."""

    table: str
    reasons: list[str]


class PlanSummary(Output):
    """What a plan contains, what is done, and what the rest takes."""

    table: str
    """The table, figure or group."""
    profile: str
    scale: str
    seeds: list[int]
    rows: list[str]
    """Rows of the table or figure; empty for a group."""
    tables: list[PlannedTable]
    """The tables of a group."""
    left_out: list[LeftOutTable]
    runs: int
    """Distinct runs."""
    shared: int
    """Stages needed by several runs; each is computed once."""
    stages: Counts
    kinds: list[KindCounts]
    jobs: int
    """Number of workers the estimate assumes."""
    estimated_s: float | None
    """Estimated seconds until everything is done; null if a kind of stage was never timed."""
    untimed: list[str]
    """Kinds of stages that are left and were never timed in this store at this profile."""
    failures: list[Failure]
    requests: list[PaidRequests]
    """Requests of what is left to models that the harness does not serve itself."""

    @property
    def headline(self) -> str:
        """The plan in two or three sentences."""
        size = counted(len(self.tables), "table") if self.tables else counted(len(self.rows), "row")
        return (
            f"{self.table} on {self.profile} ({self.scale} scale), {size}, seeds "
            f"{seeds_text(self.seeds)}: {counted(self.runs, 'run')} of "
            f"{counted(self.stages.total, 'distinct stage')}, {self.shared} of them shared by "
            f"runs. {self._left}"
        )

    @property
    def _left(self) -> str:
        stages = self.stages
        left = stages.total - stages.done
        if not left:
            return "All stages are done."
        retried = f" ({stages.failed} failed before)" if stages.failed else ""
        done = f"{stages.done} done, {left} to compute{retried}"
        if self.estimated_s is None:
            return (
                f"{done}; no estimate of the time before each kind of stage has run once at "
                f"{self.profile}."
            )
        return f"{done}: about {duration(self.estimated_s)} with {counted(self.jobs, 'worker')}."


@dataclass(frozen=True, repr=False)
class RunPlan:
    """What running a selection would compute, and how much is done.

    Attributes:
        work: The runs.
        store: What has been computed.
        name: The selection's name on the command line.
        jobs: Maximum concurrent stages, if requested.
        budget_usd: Dollars after which no request is sent to an endpoint, if limited.
    """

    work: Work
    store: runtime.Store
    name: str
    jobs: int | None = None
    budget_usd: float | None = None

    def __repr__(self) -> str:
        return f"<plan: {self.headline}>"

    @cached_property
    def workers(self) -> int:
        """Number of stages computed at once, by default as many as there are GPUs or cores for."""
        profile, cores = self.work.profile, workers_of(self.jobs)
        if self.jobs:
            return self.jobs
        if profile.hardware is not None and not profile.hardware.on_cpu:
            return max(1, len(visible_gpus()))
        return max(1, cores // profile.threads)

    @cached_property
    def stages(self) -> runtime.Plan:
        """All distinct stages, inputs first."""
        return runtime.Plan(self.work.targets)

    @cached_property
    def _states(self) -> Mapping[str, runtime.State]:
        return self.stages.states(self.store)

    @property
    def headline(self) -> str:
        """The plan in two or three sentences."""
        return self.summary.headline

    @property
    def again(self) -> str:
        """The `harness run` arguments that compute it."""
        work = self.work
        some = isinstance(work, TableRuns) and len(work.rows) < len(work.table.rows)
        rows = work.row_ids if isinstance(work, TableRuns) and some else ()
        return again(self.name, work.profile.asked_as, work.seeds, rows)

    @cached_property
    def _left(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if self._state(stage) != "done")

    @cached_property
    def summary(self) -> PlanSummary:
        """What is done and what is left."""
        work = self.work
        group = work if isinstance(work, GroupRuns) else None
        by_kind: dict[str, list[Stage]] = {}
        for stage in self.stages:
            by_kind.setdefault(stage.kind, []).append(stage)
        seconds, untimed = self._estimate
        runs = work.runs.values()
        needed = Counter([s.fingerprint for run in runs for s in runtime.Plan(run.targets)])
        return PlanSummary(
            table=work.id,
            profile=work.profile.name,
            scale=work.profile.scale,
            seeds=list(work.seeds),
            rows=[] if isinstance(work, GroupRuns) else work.row_ids,
            tables=[] if group is None else [self._table(runs) for runs in group.tables],
            left_out=[
                LeftOutTable(table=name, reasons=list(reasons))
                for name, reasons in (group.left_out if group else {}).items()
            ],
            runs=len(runs),
            shared=sum(times > 1 for times in needed.values()),
            stages=Counts(**self._counts(self.stages)),
            kinds=[KindCounts(kind=kind, **self._counts(own)) for kind, own in by_kind.items()],
            jobs=self.workers,
            estimated_s=None if seconds is None else round(seconds, 1),
            untimed=untimed,
            failures=[self._failure(s) for s in self.stages if self._state(s) == "failed"],
            requests=self._requests,
        )

    def _state(self, stage: Stage) -> runtime.State:
        return self._states[stage.fingerprint]

    def _counts(self, stages: Iterable[Stage]) -> dict[str, int]:
        states = self._states
        found = [states[stage.fingerprint] for stage in stages]
        return {"total": len(found)} | {state: found.count(state) for state in runtime.STATES}

    def _table(self, runs: TableRuns) -> PlannedTable:
        counts = Counts(**self._counts(runtime.Plan(runs.targets)))
        return PlannedTable(table=runs.id, rows=len(runs.rows), runs=len(runs.runs), stages=counts)

    def _failure(self, stage: Stage) -> Failure:
        recorded = self.store.failure(stage.fingerprint)
        return Failure(
            stage=stage.label,
            kind=stage.kind,
            fingerprint=stage.fingerprint,
            reason=recorded["reason"] if recorded else "the reason was not recorded",
        )

    @cached_property
    def _requests(self) -> list[PaidRequests]:
        return requests_of(self.work.profile, self._left)

    @cached_property
    def _estimate(self) -> tuple[float | None, list[str]]:
        """Seconds until everything is done, or None and the kinds that were never timed."""
        profile, shipped = self.work.profile, self.work.profile.name == DEFAULT_PROFILE
        own = [
            (stage, self.store.manifest(stage.fingerprint)["wall_s"])
            for stage in self.stages
            if self._state(stage) == "done"
        ]
        seconds = self._seconds(Timings(own, shipped=shipped))
        if None in seconds.values() or not own:
            # Others' stages are read only if they are needed: a store may have many.
            seconds = self._seconds(Timings(finished_stages(self.store), shipped=shipped))
        known = {name: it for name, it in seconds.items() if it is not None}
        if untimed := {stage.kind: None for stage in self._left if stage.fingerprint not in known}:
            return None, list(untimed)
        needs = needs_of(profile)
        held = {stage.kind: needs.of(stage.kind).gpus or 1 for stage in self._left}
        return left_s(self._left, known, held, self.workers), []

    def _seconds(self, timings: Timings) -> dict[str, float | None]:
        return {stage.fingerprint: timings.seconds(stage) for stage in self._left}

    def _refuse_unknown_prices(self) -> None:
        """Raise a UserError if there is a budget that cannot be kept."""
        if self.budget_usd is None:
            return
        for of in (it for it in self._requests if it.usd is None):
            raise UserError(
                f"--budget-usd needs the price of {of.model}, which is not known; give it in "
                f"{variable(of.role, 'PRICE')}, as dollars for a million tokens in and out "
                "(`1.25,5`; `0,0` for a model of your own)"
            )

    def run(
        self,
        *,
        engine: runtime.EngineOptions = runtime.LOCAL,
        fail_fast: bool = False,
        watch: AbstractContextManager[Observe] | None = None,
        on_note: Say = ignore,
        on_tracking: Say = ignore,
        on_report: Callable[[Reports], None] | None = None,
    ) -> Reports:
        """Compute what is missing, track it in MLflow, and report it.

        Completed stages are kept: after an interruption or a failure, the same plan resumes.

        Args:
            engine: Where stages are computed.
            fail_fast: Stop at the first failure instead of continuing with independent stages.
            watch: Entered while stages are computed, if any; yields a callback for the engine's
                events.
            on_note: Called with messages about what will not be measured, and an unavailable
                tracking server.
            on_tracking: Called with how far the last writing to MLflow has come.
            on_report: Called with the reports before tracking finishes, which may wait for a
                server.

        Returns:
            The reports; `failed` maps failed stages to reasons.

        Raises:
            Interrupted: Ctrl-C.
        """
        from harness.selection import stored
        from harness.selection.reporting import reports_of_run, stored_tables

        work = self.work
        tracker, outcome = stored.tracker_of(self.store, on_note, on_tracking), None
        if self.stages.pending(self.store):
            self._prepare(on_note, here=engine.engine == "local")
            with self._tracked(tracker, watch or nullcontext(ignore)) as observe:
                outcome = self._compute(engine, fail_fast, observe)
        tables = stored_tables(work, self.store)
        reports = reports_of_run(work, tables, self.store, outcome)
        if on_report is not None:
            on_report(reports)
        tracker.finish(lambda: stored.states_after(work, tables))
        return reports

    def _prepare(self, on_note: Say, *, here: bool) -> None:
        """Check everything that stages need, and that a budget can be kept."""
        from harness.worlds.needs import refuse_missing

        self._refuse_unknown_prices()
        left = self.stages.pending(self.store)
        for advice in refuse_missing(self.work.profile, left, self.name, here=here):
            on_note(advice)

    @contextmanager
    def _tracked(
        self, tracker: Tracker, watch: AbstractContextManager[Observe]
    ) -> Iterator[Observe]:
        """Yield a callback that displays and tracks the engine's events."""
        tracker.start(parts_of(self.work))
        try:
            with watch as observe:

                def on_event(event: Event) -> None:
                    observe(event)
                    tracker.observe(event)

                yield on_event
        except BaseException:
            # What is stored is safe; the next run or sync writes what MLflow lacks.
            tracker.close()
            raise

    def _compute(
        self, where: runtime.EngineOptions, fail_fast: bool, on_event: Observe
    ) -> RunOutcome:
        profile, pending = self.work.profile, self.stages.pending(self.store)
        if profile.serving is None or where.engine != "local":
            engine = self._engine(where, pending, fail_fast=fail_fast, on_event=on_event)
            return engine.run(self.stages)
        from harness.selection.served_run import ServedRun

        def compute(stages: Sequence[Stage], observe: Observe) -> RunOutcome:
            engine = self._engine(where, stages, fail_fast=fail_fast, on_event=observe)
            return engine.run(runtime.Plan(stages))

        turns = Turns(profile, max(1, len(visible_gpus())))
        logs = work_dir() / "logs" / "servers" / f"{os.getpid()}"
        return ServedRun(turns, self.store, logs, compute, on_event, fail_fast).run(pending)

    def _engine(
        self, where: runtime.EngineOptions, stages: Sequence[Stage], **more: Any
    ) -> runtime.Engine:
        from harness.pipeline import steps

        profile, jobs, logs = self.work.profile, self.jobs, work_dir() / "logs"
        if profile.hardware is None or profile.hardware.on_cpu:
            jobs = self.workers  # on GPUs, those limit what runs at once
        if self.budget_usd is not None:
            more["environment"] = {"HARNESS_BUDGET_USD": repr(self.budget_usd)}
        functions = steps.FUNCTIONS
        return engine_of(
            profile, self.store, functions, logs, stages, jobs=jobs, where=where, **more
        )
