"""A plan: what a run would compute of a selection, how long the rest takes, and what it costs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness import runtime
from harness.cost.pricing import Limits, Price, over_limits
from harness.errors import HarnessError, UserError
from harness.pipeline import factory
from harness.pipeline.runs import FigureRuns, GroupRuns, TableRuns, Work, parts_of
from harness.pipeline.turns import Turns
from harness.registry.declared import own_file
from harness.registry.profile import Profile
from harness.runtime.pool import visible_gpus
from harness.selection.names import DEFAULT_PROFILE, again, ignore
from harness.strict import Output, Strict
from harness.words import counted, duration

if TYPE_CHECKING:
    from harness.runtime import RunOutcome
    from harness.selection.reporting import Reports
    from harness.tracking import Tracker


class Counts(Strict):
    """How many stages there are, in all and in each state."""

    total: int
    done: int
    missing: int
    failed: int


class KindCounts(Counts):
    """How many stages of one kind there are."""

    kind: str


class Failure(Strict):
    """A stage that failed when it was last computed."""

    stage: str
    kind: str
    fingerprint: str
    reason: str


class Summary(Output):
    """What a plan has, what of it is done, and how long or how dear the rest is."""

    profile: str
    scale: str
    seeds: list[int]
    runs: int
    """Distinct runs."""
    stages: Counts
    training_stages: Counts
    kinds: list[KindCounts]
    jobs: int
    """Workers that the estimate assumes."""
    estimated_s: float | None
    """Expected seconds until all is done; null where there is a price instead, and where no stage
    of a kind that is left was ever timed at the profile."""
    failures: list[Failure]
    price: Price | None
    """What is left costs; null at a profile that costs nothing."""


class PlanSummary(Summary):
    """The plan of a table or a figure."""

    table: str
    rows: list[str]
    shared: int
    """Stages that several runs need; each is computed once."""


class GroupedTable(Strict):
    """A table in the plan of a group."""

    table: str
    rows: int
    runs: int
    stages: Counts


class LeftOutTable(Strict):
    """A table that the profile cannot run."""

    table: str
    reasons: list[str]


class GroupSummary(Summary):
    """The plan of several tables together."""

    group: str
    tables: list[GroupedTable]
    left_out: list[LeftOutTable]


@dataclass(frozen=True)
class PriceOptions:
    """What is asked about a price.

    Attributes:
        gpu: A GPU other than the profile's.
        gpus: Another number of them.
        limits: What may be spent.
    """

    gpu: str | None = None
    gpus: int | None = None
    limits: Limits = field(default_factory=Limits)


def has_price(profile: Profile) -> bool:
    """Return whether a profile's plans have a price: its models come from outside."""
    from harness.worlds.lookup import world_of

    return not world_of(profile).self_contained


@dataclass(frozen=True, repr=False)
class RunPlan:
    """What a run of a selection would compute, and what is done of it.

    Attributes:
        work: The runs.
        store: What has been computed.
        name: What a command takes for the selection.
        jobs: Number of workers that the estimate assumes.
        asked_jobs: Most stages at once, where that is asked for.
        options: What is asked about the price.
    """

    work: Work
    store: runtime.Store
    name: str
    jobs: int
    asked_jobs: int | None = None
    options: PriceOptions = PriceOptions()

    @cached_property
    def stages(self) -> runtime.Plan:
        """All stages, each once, inputs first."""
        return runtime.Plan(self.work.targets)

    @cached_property
    def price(self) -> Price | None:
        """The price of what is left; None for a profile that has no prices."""
        profile = self.work.profile
        if not has_price(profile):
            if self.options != PriceOptions():
                raise UserError(
                    f"`{profile.name}` runs on this machine and costs nothing; leave out GPUs and "
                    "limits on what it may cost"
                )
            return None
        from harness.cost.assumptions import hardware_of
        from harness.cost.pricing import price

        hardware = hardware_of(profile, self.options.gpu, self.options.gpus)
        # What was computed tells the speed of the profile's GPUs, and not of others.
        timed = self.options.gpu is None
        done = {
            name: self.store.manifest(name).get("wall_s") if timed else None
            for name, state in self._states.items()
            if state == "done"
        }
        return price(self.stages, profile, hardware, done)

    def refuse_over_limits(self) -> None:
        """Refuse a plan whose price passes a limit."""
        price = self.price
        sentence = None if price is None else over_limits(price, self.options.limits)
        if sentence is not None:
            raise HarnessError(sentence)

    @cached_property
    def summary(self) -> PlanSummary | GroupSummary:
        """What is done and what is left."""
        if not isinstance(self.work, GroupRuns):
            runs = self.work
            times = Counter(
                s.fingerprint for run in runs.runs.values() for s in runtime.Plan(run.targets)
            )
            return PlanSummary(
                table=runs.id,
                rows=runs.row_ids,
                shared=sum(needed > 1 for needed in times.values()),
                **self._progress,
            )
        return GroupSummary(
            group=self.work.id,
            tables=[self._grouped(runs) for runs in self.work.tables],
            left_out=[
                LeftOutTable(table=name, reasons=list(why))
                for name, why in self.work.left_out.items()
            ],
            **self._progress,
        )

    @cached_property
    def _states(self) -> Mapping[str, runtime.State]:
        return self.stages.states(self.store)

    def _counts(self, stages: Iterable[runtime.Stage]) -> dict[str, int]:
        found = [self._states[stage.fingerprint] for stage in stages]
        return {"total": len(found)} | {state: found.count(state) for state in runtime.STATES}

    def _grouped(self, runs: TableRuns) -> GroupedTable:
        return GroupedTable(
            table=runs.table.id,
            rows=len(runs.rows),
            runs=len(runs.runs),
            stages=Counts(**self._counts(runtime.Plan(runs.targets))),
        )

    @property
    def headline(self) -> str:
        """The plan in two or three sentences."""
        return headline(self.summary)

    @property
    def again(self) -> str:
        """What `harness run` takes to compute it."""
        work = self.work
        some = isinstance(work, TableRuns) and len(work.rows) < len(work.table.rows)
        rows = work.row_ids if isinstance(work, TableRuns) and some else ()
        skipping = isinstance(work, GroupRuns) and work.left_out
        asked = again(self.name, work.profile.asked_as, work.seeds, rows)
        return f"{asked} --skip-unsupported" if skipping else asked

    @property
    def _progress(self) -> dict[str, Any]:
        """What every summary says."""
        plan, store, price = self.stages, self.store, self.price
        kinds = dict.fromkeys(stage.kind for stage in plan)
        of_kind = {kind: self._counts(s for s in plan if s.kind == kind) for kind in kinds}
        left_s = self._left_s if price is None else None
        failed = [stage for stage in plan if self._states[stage.fingerprint] == "failed"]
        return {
            "profile": self.work.profile.name,
            "scale": self.work.profile.scale,
            "seeds": list(self.work.seeds),
            "runs": len(self.work.runs),
            "stages": Counts(**self._counts(plan)),
            "training_stages": Counts(**self._counts(training_stages(plan))),
            "kinds": [KindCounts(kind=kind, **counts) for kind, counts in of_kind.items()],
            "jobs": self.jobs,
            "estimated_s": None if left_s is None else round(left_s, 1),
            "failures": [_failure(stage, store) for stage in failed],
            "price": price,
        }

    @property
    def _left_s(self) -> float | None:
        """Expected seconds until all is done; None where that would be a guess.

        The times that ship with the project are those of `micro`. At another profile a kind of
        stage is timed once one of its stages is done.
        """
        kinds: dict[bool, set[str]] = {True: set(), False: set()}
        for stage in self.stages:
            kinds[self._states[stage.fingerprint] == "done"].add(stage.kind)
        if not kinds[False]:
            return 0.0
        if kinds[False] - kinds[True] and self.work.profile.name != DEFAULT_PROFILE:
            return None
        tally = runtime.Tally(self.stages, self.store, self.jobs, factory.EXPECTED_S)
        return tally.remaining_s()

    def run(
        self,
        *,
        engine: runtime.EngineOptions = runtime.HERE,
        fail_fast: bool = False,
        watch: AbstractContextManager[Callable[[runtime.Event], None]] | None = None,
        on_warning: Callable[[str], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        on_report: Callable[[Reports], None] | None = None,
        level: float | None = None,
    ) -> Reports:
        """Compute what is missing, track it in MLflow, and report it.

        What is done is kept: after an interruption or a failure, the same plan goes on.

        Args:
            engine: Where stages are computed.
            fail_fast: Stop at the first failure instead of going on with what can.
            watch: Entered while stages are computed, if any are; what it yields takes the engine's
                events, as they happen.
            on_warning: Takes sentences about a server that cannot be had.
            on_note: Takes sentences about models that will be retired and what will not be
                measured, before the run.
            on_report: Takes the report before tracking, which may wait for a server, is done.
            level: Level at which claims are decided, 5% by default; where a run looks at them more
                than once, that of this look.

        Returns:
            The reports; their `failed` are the stages that failed, with the reasons.

        Raises:
            Interrupted: Ctrl-C.
        """
        from harness.project import work_dir
        from harness.report.asked import remember
        from harness.selection import stored
        from harness.selection.reporting import Reports, figure_report, page_of, stored_tables

        engine.check()
        work, parts = self.work, parts_of(self.work)
        for asked in [work] if not isinstance(work, GroupRuns) else parts:
            remember(work_dir(), asked.id, asked.profile.name, asked.seeds, self._own_files())
        warn = on_warning or ignore
        tracker, outcome = stored.tracker_of(self.store, warn), None
        if self.stages.pending(self.store):
            self.stages.reclaim(self.store)
            self._check(on_note or ignore, here=engine.engine == "local")
            self._open_budget()
            watched = watch or nullcontext(ignore)
            outcome = self._execute(tracker, fail_fast, watched, engine)
        tables = stored_tables(work, self.store, level)
        reports = Reports(
            tuple(table.report for table in tables),
            figure_report(work, self.store) if isinstance(work, FigureRuns) else None,
            work.left_out if isinstance(work, GroupRuns) else {},
            outcome,
            lambda: page_of(
                [table.runs.table for table in tables],
                work.profile,
                lambda _: work.seeds,
                self.store,
            ),
        )
        if on_report is not None:
            on_report(reports)
        tracker.finish(lambda: stored.states_after(work, tables))
        return reports

    def _open_budget(self) -> None:
        """Let all workers of the run draw on one budget, wherever they run."""
        if not has_price(self.work.profile):
            return
        from harness.endpoint.budget import share
        from harness.project import spending_dir

        share(spending_dir())
        if self.options.limits.usd is not None:
            os.environ["HARNESS_BUDGET_USD"] = f"{self.options.limits.usd!r}"

    def _check(self, on_note: Callable[[str], None], *, here: bool) -> None:
        """Refuse to start without all that stages need, and say what else should be known."""
        from harness.preflight import refuse_to_start

        left = self.stages.pending(self.store)
        for advice in refuse_to_start(self.work.profile, left, self.name, here=here):
            on_note(advice)

    def _own_files(self) -> dict[str, str]:
        """Return the files of the user's own that declare the table and the profile."""
        profile = self.work.profile
        files = {"table": own_file(self.name)}
        files["profile"] = None if profile.asked_as == profile.name else profile.file
        return {what: str(file) for what, file in files.items() if file is not None}

    def _execute(
        self,
        tracker: Tracker,
        fail_fast: bool,
        watch: AbstractContextManager[Callable[[runtime.Event], None]],
        engine: runtime.EngineOptions,
    ) -> RunOutcome:
        tracker.start(parts_of(self.work))
        try:
            with watch as observe:

                def on_event(event: runtime.Event) -> None:
                    observe(event)
                    tracker.observe(event)

                if self.work.profile.serving is not None and engine.engine == "local":
                    return self._by_turns(engine, fail_fast, on_event)
                made = self._engine(engine, fail_fast=fail_fast, on_event=on_event)
                return made.run(self.stages)
        except BaseException:
            # What is stored is safe; the next run or sync writes what MLflow lacks.
            tracker.close(timeout_s=2.0)
            raise

    def _by_turns(
        self,
        engine: runtime.EngineOptions,
        fail_fast: bool,
        on_event: Callable[[runtime.Event], None],
    ) -> RunOutcome:
        """Compute with servers of our own, which take turns on the GPU."""
        from harness.project import work_dir
        from harness.selection.turning import Turning

        def compute(
            stages: Sequence[runtime.Stage], observe: Callable[[runtime.Event], None]
        ) -> RunOutcome:
            made = self._engine(engine, stages, fail_fast=fail_fast, on_event=observe)
            return made.run(runtime.Plan(stages))

        turns = Turns(self.work.profile, max(1, len(visible_gpus())))
        logs = work_dir() / "logs" / "servers" / f"{os.getpid()}"
        turning = Turning(turns, self.store, logs, compute, on_event, fail_fast)
        return turning.run(self.stages.pending(self.store))

    def batch_scripts(self, engine: runtime.EngineOptions) -> list[str]:
        """Return the batch scripts of what could start now; none where it is not for Slurm."""
        return self._engine(engine).batch_scripts(self.stages)

    @property
    def _at_once(self) -> int | None:
        """Most stages at once; None for what the engine chooses.

        Where large models run on the processor, each wants the threads that the profile says.
        """
        profile = self.work.profile
        if self.asked_jobs or profile.serving is None or profile.priced_for is not None:
            return self.asked_jobs
        return max(1, runtime.available_cores() // profile.threads)

    def _engine(
        self,
        asked: runtime.EngineOptions,
        stages: Iterable[runtime.Stage] | None = None,
        **more: Any,
    ) -> runtime.Engine:
        from harness.pipeline import steps
        from harness.project import work_dir

        profile = self.work.profile
        return asked.make(
            self.store,
            dict(steps.FUNCTIONS),
            work_dir() / "logs",
            jobs=self._at_once,
            preload=factory.needed_modules(
                self.stages.pending(self.store) if stages is None else stages
            ),
            fallback=factory.EXPECTED_S,
            threads=profile.threads,
            hardware=factory.hardware_of(profile),
            needs=factory.needs_of(profile),
            **more,
        )

    def __repr__(self) -> str:
        return f"<plan: {self.headline}>"


def headline(summary: PlanSummary | GroupSummary) -> str:
    """Return the summary of a plan in two or three sentences."""
    from harness.report.view import seeds_text

    stages, seeds = summary.stages.total, seeds_text(summary.seeds)
    if isinstance(summary, PlanSummary):
        return (
            f"{summary.table} on {summary.profile} ({summary.scale} scale), "
            f"{counted(len(summary.rows), 'row')}, seeds {seeds}: "
            f"{counted(summary.runs, 'run')} of {counted(stages, 'distinct stage')}, "
            f"{summary.shared} of them shared by runs. {_what_is_left(summary)}"
        )
    return (
        f"{summary.group} on {summary.profile} ({summary.scale} scale), "
        f"{counted(len(summary.tables), 'table')}, seeds {seeds}: "
        f"{counted(summary.runs, 'distinct run')} of {counted(stages, 'distinct stage')} "
        f"({counted(summary.training_stages.total, 'training')}). {_what_is_left(summary)}"
    )


def _what_is_left(summary: Summary) -> str:
    """Return how much of a plan is to be computed, and how long it takes, in a sentence."""
    stages = summary.stages
    left = stages.total - stages.done
    if not left:
        return "All stages are done."
    retried = f" ({stages.failed} failed before)" if stages.failed else ""
    done = f"{stages.done} done, {left} to compute{retried}"
    if summary.price is not None:
        return f"{done}."
    if summary.estimated_s is None:
        return f"{done}; nothing was timed at {summary.profile} yet to say how long that takes."
    workers = counted(summary.jobs, "worker")
    return f"{done}: about {duration(summary.estimated_s)} with {workers}."


def _failure(stage: runtime.Stage, store: runtime.Store) -> Failure:
    recorded = store.failure(stage.fingerprint)
    return Failure(
        stage=stage.label,
        kind=stage.kind,
        fingerprint=stage.fingerprint,
        reason=recorded["reason"] if recorded else "the reason was not recorded",
    )


def training_stages(plan: runtime.Plan) -> list[runtime.Stage]:
    """Return the stages of a plan that train a policy, offline or online."""
    return [stage for stage in plan if stage.kind in ("train", "online")]
