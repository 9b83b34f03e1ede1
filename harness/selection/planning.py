"""Plans: what running a selection would compute, how long the rest takes, and what it costs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness import runtime
from harness.cost.price import Limits, PlanPrice, over_limits
from harness.errors import HarnessError, UserError
from harness.pipeline import factory
from harness.pipeline.factory import Turns, engine_of
from harness.pipeline.runs import GroupRuns, TableRuns, Work, parts_of
from harness.project import work_dir
from harness.registry.declared import own_file
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

NO_LIMITS = Limits()


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
    """What a plan contains, what is done, and the time or cost of the rest."""

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
    """Estimated seconds until everything is done; null if there is a price instead, or if a kind of
    stage that is left was never timed at the profile."""
    failures: list[Failure]
    price: PlanPrice | None
    """Cost of what is left; null at a profile that costs nothing."""

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
        if self.price is not None:
            return f"{done}."
        if self.estimated_s is None:
            return f"{done}; nothing was timed at {self.profile} yet to say how long that takes."
        return f"{done}: about {duration(self.estimated_s)} with {counted(self.jobs, 'worker')}."


@dataclass(frozen=True, repr=False)
class RunPlan:
    """What running a selection would compute, and how much is done.

    Attributes:
        work: The runs.
        store: What has been computed.
        name: The selection's name on the command line.
        jobs: Maximum concurrent stages, if requested.
        limits: Spending limits, for a profile whose plans have a price.
    """

    work: Work
    store: runtime.Store
    name: str
    jobs: int | None = None
    limits: Limits = NO_LIMITS

    def __repr__(self) -> str:
        return f"<plan: {self.headline}>"

    @cached_property
    def workers(self) -> int:
        """Number of workers the estimate assumes."""
        return workers_of(self.jobs)

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
    def _is_priced(self) -> bool:
        """Whether the profile uses external models, so that plans have a price, not a time."""
        from harness.worlds.lookup import world_of

        return not world_of(self.work.profile).self_contained

    @cached_property
    def price(self) -> PlanPrice | None:
        """The price of what is left; None for a profile without prices.

        Raises:
            UserError: There are limits, and the profile costs nothing.
        """
        profile = self.work.profile
        if not self._is_priced:
            if self.limits != NO_LIMITS:
                raise UserError(
                    f"`{profile.name}` runs on this machine and costs nothing; leave out the "
                    "limits on what it may cost"
                )
            return None
        from harness.cost.assumptions import priced_gpus
        from harness.cost.pricing import price

        done = {
            name: self.store.manifest(name).get("wall_s")
            for name, state in self._states.items()
            if state == "done"
        }
        return price(self.stages, profile, priced_gpus(profile), done)

    def refuse_over_limits(self) -> None:
        """Raise HarnessError if the price exceeds a limit."""
        price = self.price
        sentence = None if price is None else over_limits(price, self.limits)
        if sentence is not None:
            raise HarnessError(sentence)

    @cached_property
    def summary(self) -> PlanSummary:
        """What is done and what is left."""
        work, price = self.work, self.price
        group = work if isinstance(work, GroupRuns) else None
        by_kind: dict[str, list[Stage]] = {}
        for stage in self.stages:
            by_kind.setdefault(stage.kind, []).append(stage)
        left_s = self._left_s(by_kind) if price is None else None
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
            estimated_s=None if left_s is None else round(left_s, 1),
            failures=[self._failure(s) for s in self.stages if self._state(s) == "failed"],
            price=price,
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

    def _left_s(self, by_kind: Mapping[str, Sequence[Stage]]) -> float | None:
        """Estimate the seconds until everything is done; None if that would be a guess.

        The shipped timings are for `micro`. At another profile, a kind of stage is timed once one
        of its stages is done.
        """
        states = {kind: {self._state(stage) for stage in own} for kind, own in by_kind.items()}
        untimed = any("done" not in found for found in states.values())
        if untimed and self.work.profile.name != DEFAULT_PROFILE:
            return None
        if all(found == {"done"} for found in states.values()):
            return 0.0
        tally = runtime.Tally(self.stages, self.store, self.workers, factory.EXPECTED_S)
        return tally.remaining_s()

    def run(
        self,
        *,
        engine: runtime.EngineOptions = runtime.HERE,
        fail_fast: bool = False,
        watch: AbstractContextManager[Observe] | None = None,
        on_note: Say = ignore,
        on_report: Callable[[Reports], None] | None = None,
        level: float | None = None,
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
            on_report: Called with the reports before tracking finishes, which may wait for a
                server.
            level: Significance level for claims, 5% by default; with several interim looks, that of
                this look.

        Returns:
            The reports; `failed` maps failed stages to reasons.

        Raises:
            Interrupted: Ctrl-C.
        """
        from harness.report.asked import remember
        from harness.selection import stored
        from harness.selection.reporting import reports_of_run, stored_tables

        work = self.work
        for asked in parts_of(work) if isinstance(work, GroupRuns) else [work]:
            remember(work_dir(), asked.id, asked.profile.name, asked.seeds, self._own_files())
        tracker, outcome = stored.tracker_of(self.store, on_note), None
        if self.stages.pending(self.store):
            self.stages.reclaim(self.store)
            self._prepare(on_note, here=engine.engine == "local")
            with self._tracked(tracker, watch or nullcontext(ignore)) as observe:
                outcome = self._compute(engine, fail_fast, observe)
        tables = stored_tables(work, self.store, level)
        reports = reports_of_run(work, tables, self.store, outcome)
        if on_report is not None:
            on_report(reports)
        tracker.finish(lambda: stored.states_after(work, tables))
        return reports

    def batch_scripts(self, engine: runtime.EngineOptions) -> list[str]:
        """Return the batch scripts of stages that could start now; empty unless for Slurm."""
        pending = self.stages.pending(self.store)
        return self._engine(engine, pending).batch_scripts(self.stages)

    def _own_files(self) -> dict[str, str]:
        """Return the user's own files, if any, that declare the table and the profile."""
        profile = self.work.profile
        own = None if profile.asked_as == profile.name else profile.file
        files = {"table": own_file(self.name), "profile": own}
        return {what: str(file) for what, file in files.items() if file is not None}

    def _prepare(self, on_note: Say, *, here: bool) -> None:
        """Check everything that stages need, and tell the workers their budget."""
        from harness.preflight import refuse_to_start

        left = self.stages.pending(self.store)
        for advice in refuse_to_start(self.work.profile, left, self.name, here=here):
            on_note(advice)
        if self.limits.usd is not None:
            os.environ["HARNESS_BUDGET_USD"] = f"{self.limits.usd!r}"

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
            tracker.close(timeout_s=2.0)
            raise

    def _compute(
        self, where: runtime.EngineOptions, fail_fast: bool, on_event: Observe
    ) -> RunOutcome:
        profile, pending = self.work.profile, self.stages.pending(self.store)
        if profile.serving is None or where.engine != "local":
            engine = self._engine(where, pending, fail_fast=fail_fast, on_event=on_event)
            return engine.run(self.stages)
        from harness.selection.turning import Turning

        def compute(stages: Sequence[Stage], observe: Observe) -> RunOutcome:
            engine = self._engine(where, stages, fail_fast=fail_fast, on_event=observe)
            return engine.run(runtime.Plan(stages))

        turns = Turns(profile, max(1, len(visible_gpus())))
        logs = work_dir() / "logs" / "servers" / f"{os.getpid()}"
        return Turning(turns, self.store, logs, compute, on_event, fail_fast).run(pending)

    def _engine(
        self, where: runtime.EngineOptions, stages: Sequence[Stage], **more: Any
    ) -> runtime.Engine:
        from harness.pipeline import steps

        profile, jobs = self.work.profile, self.jobs
        if not jobs and profile.serving is not None and profile.priced_for is None:
            # Large models on CPU each need the profile's number of threads.
            jobs = max(1, runtime.available_cores() // profile.threads)
        logs = work_dir() / "logs"
        functions = steps.FUNCTIONS
        return engine_of(
            profile, self.store, functions, logs, stages, jobs=jobs, where=where, **more
        )
