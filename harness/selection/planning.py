"""A plan: what a run would compute of a selection, how long the rest takes, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from harness.cost.limits import Limits, over_limits
from harness.engine import Event, Plan, StageFailed, StageFinished, StageProgress
from harness.errors import HarnessError, UserError
from harness.registry.profile import Profile
from harness.selection.names import again
from harness.selection.work import GroupRuns, Work, parts_of
from harness.store import STATES, Stage, State, Store
from harness.trainer import execution
from harness.trainer.runs import FigureRuns, TableRuns
from harness.words import counted, duration

if TYPE_CHECKING:
    from harness.cost.pricing import Price
    from harness.engine import Outcome
    from harness.selection.reporting import Report
    from harness.tracking import Tracker


@dataclass(frozen=True)
class PriceOptions:
    """What is asked about a price.

    Attributes:
        gpu: A GPU other than the profile's.
        gpus: Another number of them.
        max_gpu_hours: Most GPU hours.
        budget_usd: Most dollars.
    """

    gpu: str | None = None
    gpus: int | None = None
    max_gpu_hours: float | None = None
    budget_usd: float | None = None


def has_price(profile: Profile) -> bool:
    """Return whether a profile's plans have a price: its models come from outside, and are real."""
    from harness.worlds.lookup import world_of

    return not world_of(profile).self_contained


@dataclass(frozen=True, repr=False)
class RunPlan:
    """What a run of a selection would compute, and what is done of it.

    Attributes:
        work: The runs.
        store: What has been computed.
        name: What a command takes for the selection.
        jobs: Number of workers.
        options: What is asked about the price.
        figures: Figures that are planned with a group.
        lacking: Why rows of such figures cannot run.
    """

    work: Work
    store: Store
    name: str
    jobs: int
    options: PriceOptions = PriceOptions()
    figures: tuple[FigureRuns, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def stages(self) -> Plan:
        """All stages, each once, inputs first."""
        beside = (stage for figure in self.figures for stage in figure.targets)
        return Plan([*self.work.targets, *beside])

    @cached_property
    def price(self) -> Price | None:
        """The price of what is left; None for a profile that has no prices.

        Raises:
            UserError: An option is wrong, or is given for a profile that has no prices.
        """
        profile = self.work.profile
        if not has_price(profile):
            if self.options != PriceOptions():
                raise UserError(
                    f"`{profile.name}` runs on this machine and costs nothing; leave out `--gpu`, "
                    "`--gpus`, `--max-gpu-hours` and `--budget-usd`"
                )
            return None
        from harness.cost.hardware import hardware_of
        from harness.cost.pricing import price

        hardware = hardware_of(profile, self.options.gpu, self.options.gpus)
        stages = list(self.stages)
        done = [s.fingerprint for s in stages if self.store.status(s.fingerprint) == "done"]
        return price(stages, profile, hardware, done)

    def refuse_over_limits(self) -> None:
        """Refuse a plan whose price passes a limit.

        Raises:
            HarnessError: It does; the message says which.
            UserError: A limit is none.
        """
        limits = Limits(self.options.max_gpu_hours, self.options.budget_usd)
        sentence = None if self.price is None else over_limits(self.price, limits)
        if sentence is not None:
            raise HarnessError(sentence)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What is done and what is left, as JSON data."""
        price = self.price
        states = self.stages.states(self.store)
        own = _of_group(self.work, states) if isinstance(self.work, GroupRuns) else _of(self.work)
        found = own | self._progress(states)
        if price is None:
            return found
        found["price"] = price.as_json()
        if isinstance(self.work, GroupRuns):
            found["figures"] = [figure.id for figure in self.figures]
            found["left_out"] += [
                {"figure": n, "reasons": [why]} for n, why in self.lacking.items()
            ]
        return found

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

    def _progress(self, states: Mapping[str, State]) -> dict[str, Any]:
        """Return how far the plan is, how long the rest takes, and what failed.

        How long is told of the embedded profile alone, on which stages were timed; others have a
        price.
        """
        plan, store = self.stages, self.store
        priced = has_price(self.work.profile)
        return {
            "stages": state_counts(plan, states),
            "training_stages": state_counts(training_stages(plan), states),
            "kinds": [
                {"kind": kind} | state_counts([s for s in plan if s.kind == kind], states)
                for kind in dict.fromkeys(stage.kind for stage in plan)
            ],
            "jobs": self.jobs,
            "estimated_s": None
            if priced
            else round(plan.remaining_s(store, self.jobs, execution.EXPECTED_S), 1),
            "failures": [
                {
                    "stage": stage.label,
                    "kind": stage.kind,
                    "fingerprint": stage.fingerprint,
                    "reason": failure["reason"] if failure else "the reason was not recorded",
                }
                for stage in plan
                if states[stage.fingerprint] == "failed"
                for failure in [store.failure(stage.fingerprint)]
            ],
        }

    def run(
        self,
        *,
        fail_fast: bool = False,
        watch: AbstractContextManager[Callable[[Event], None]] | None = None,
        on_warning: Callable[[str], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        on_report: Callable[[Report], None] | None = None,
    ) -> Report:
        """Compute what is missing, track it in MLflow, and report it.

        What is done is kept: after an interruption or a failure, the same plan goes on.

        Args:
            fail_fast: Stop at the first failure instead of going on with what can.
            watch: Entered while stages are computed, if any are; what it yields takes the engine's
                events, as they happen.
            on_warning: Takes sentences about models that are retired, and a server that cannot be
                had.
            on_note: Takes sentences about what will not be measured, before the run.
            on_report: Takes the report before tracking, which may wait for a server, is done.

        Returns:
            The report; its `failed` are the stages that failed, with the reasons.

        Raises:
            Interrupted: Ctrl-C.
            UserError: A model, prompts or a benchmark that a stage needs are not on this machine.
        """
        from harness.project import work_dir
        from harness.report.asked import remember
        from harness.selection import tracked
        from harness.selection.reporting import report_of

        work, parts = self.work, parts_of(self.work)
        for asked in [work] if not isinstance(work, GroupRuns) else parts:
            remember(work_dir(), asked.id, asked.profile.name, asked.seeds)
        warn = on_warning or _ignore
        tracker, outcome = tracked.tracker_of(self.store, warn), None
        if self.stages.pending(self.store):
            self._check(warn, on_note or _ignore)
            outcome = self._execute(tracker, fail_fast, watch or nullcontext(_ignore))
        report = report_of(work, self.store)
        if outcome is not None:
            report = replace(report, outcome=outcome)
        if on_report is not None:
            on_report(report)
        tracker.finish(lambda: tracked.states_after(work, report))
        return report

    def _check(self, on_warning: Callable[[str], None], on_note: Callable[[str], None]) -> None:
        """Refuse to start without what stages need, and say what else should be known."""
        from harness.preflight.outside import retirements
        from harness.worlds.lookup import world_of

        pending, profile = self.stages.pending(self.store), self.work.profile
        if has_price(profile):
            for need in retirements(profile):
                on_warning(need.line)
        for gap in world_of(profile).preflight(pending):
            on_note(gap)

    def _execute(
        self,
        tracker: Tracker,
        fail_fast: bool,
        watch: AbstractContextManager[Callable[[Event], None]],
    ) -> Outcome:
        from harness.project import work_dir

        tracker.start(parts_of(self.work))
        try:
            with watch as observe:

                def on_event(event: Event) -> None:
                    observe(event)
                    _follow(tracker, event)

                return execution.execute(
                    self.stages,
                    self.store,
                    self.work.profile,
                    work_dir() / "logs",
                    self.jobs,
                    fail_fast=fail_fast,
                    on_event=on_event,
                )
        except BaseException:
            # What is stored is safe; the next run or sync writes what MLflow lacks.
            tracker.close(timeout_s=2.0)
            raise

    def __repr__(self) -> str:
        return f"<plan: {self.headline}>"

    def _repr_html_(self) -> str:
        """Return the plan for a notebook: what it says of itself, and its stages by kind."""
        columns = ("kind", "total", "done", "missing", "failed")
        lines = [*self.summary["kinds"], {"kind": "all"} | self.summary["stages"]]
        head = "".join(f"<th>{name}</th>" for name in ("stages", *columns[1:]))
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(str(line[name]))}</td>' for name in columns)}</tr>"
            for line in lines
        )
        return f"<p>{escape(self.headline)}</p><table><tr>{head}</tr>{body}</table>"


def headline(summary: Mapping[str, Any]) -> str:
    """Return the summary of a plan in two or three sentences."""
    from harness.report.view import seeds_text

    stages, seeds = summary["stages"]["total"], seeds_text(summary["seeds"])
    if "group" not in summary:
        return (
            f"{summary['table']} on {summary['profile']} ({summary['scale']} scale), "
            f"{counted(len(summary['rows']), 'row')}, seeds {seeds}: "
            f"{counted(summary['runs'], 'run')} of {counted(stages, 'distinct stage')}, "
            f"{summary['shared']} of them shared by runs. {_what_is_left(summary)}"
        )
    alone, trainings = summary["alone"], summary["training_stages"]["total"]
    return (
        f"{summary['group']} on {summary['profile']} ({summary['scale']} scale), "
        f"{counted(len(summary['tables']), 'table')}, seeds {seeds}: "
        f"{counted(summary['runs'], 'distinct run')}. Each table by itself would take "
        f"{counted(alone['stages'], 'stage')} ({counted(alone['training_stages'], 'training')}) "
        f"in all; together they take {counted(stages, 'distinct stage')} "
        f"({counted(trainings, 'training')}). {_what_is_left(summary)}"
    )


def _what_is_left(summary: Mapping[str, Any]) -> str:
    """Return how much of a plan is to be computed, and how long it takes, in a sentence."""
    stages = summary["stages"]
    left = stages["total"] - stages["done"]
    if not left:
        return "All stages are done."
    retried = f" ({stages['failed']} failed before)" if stages["failed"] else ""
    done = f"{stages['done']} done, {left} to compute{retried}"
    if summary["estimated_s"] is None:
        return f"{done}."
    workers = counted(summary["jobs"], "worker")
    return f"{done}: about {duration(summary['estimated_s'])} with {workers}."


def state_counts(stages: Iterable[Stage], states: Mapping[str, State]) -> dict[str, int]:
    """Return how many stages there are, in all and in each state.

    Args:
        stages: The stages to count.
        states: State of each stage by fingerprint.
    """
    found = [states[stage.fingerprint] for stage in stages]
    return {"total": len(found)} | {state: found.count(state) for state in STATES}


def training_stages(plan: Plan) -> list[Stage]:
    """Return the stages of a plan that train a policy, offline or online."""
    return [stage for stage in plan if stage.kind in ("train", "online")]


def _of(runs: TableRuns | FigureRuns) -> dict[str, Any]:
    """Return what the runs of one table or figure are, as JSON data."""
    needed = Counter(s.fingerprint for run in runs.runs.values() for s in Plan(run.targets))
    return {
        "table": runs.id,
        "profile": runs.profile.name,
        "scale": runs.profile.scale,
        "seeds": list(runs.seeds),
        "rows": runs.row_ids,
        "runs": len(runs.runs),
        "shared": sum(times > 1 for times in needed.values()),
    }


def _of_group(group: GroupRuns, states: Mapping[str, State]) -> dict[str, Any]:
    """Return what the runs of a group are, as JSON data.

    `alone` counts, over the tables, what each would need if it were run by itself; a table's `own`
    stages are those that no other table needs.
    """
    alone = [Plan(runs.targets) for runs in group.tables]
    needed = Counter(stage.fingerprint for own in alone for stage in own)
    return {
        "group": group.id,
        "profile": group.profile.name,
        "scale": group.profile.scale,
        "seeds": list(group.seeds),
        "tables": [
            {
                "table": runs.table.id,
                "rows": len(runs.rows),
                "runs": len(runs.runs),
                "stages": state_counts(own, states),
                "own": sum(needed[stage.fingerprint] == 1 for stage in own),
                "training_stages": state_counts(training_stages(own), states),
            }
            for runs, own in zip(group.tables, alone, strict=True)
        ],
        "left_out": [
            {"table": name, "reasons": list(reasons)} for name, reasons in group.left_out.items()
        ],
        "runs": len(group.runs),
        "alone": {
            "stages": sum(len(own) for own in alone),
            "training_stages": sum(len(training_stages(own)) for own in alone),
        },
    }


def _follow(tracker: Tracker, event: Event) -> None:
    """Tell a tracker of an event of the engine."""
    match event:
        case StageProgress(stage, step, metrics):
            tracker.progress(stage, step, metrics)
        case StageFinished(stage):
            tracker.stage_finished(stage)
        case StageFailed(stage):
            tracker.stage_failed(stage)


def _ignore(_: object) -> None:
    """Take what nobody wants to hear."""
