"""What running an experiment computes, how long the rest takes, and what it asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.pipeline.estimate import PaidRequests, requests_of
from harness.pipeline.factory import needs_of
from harness.runtime import Plan, Stage
from harness.runtime.store import STATES
from harness.selection.request import Request
from harness.strict import Strict
from harness.words import counted, duration, seeds_text


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


class TableCounts(Counts):
    """Number of stages of one table in a group."""

    table: str
    rows: int
    runs: int


class PlanSummary(Strict):
    """What a plan contains, what is done, and what the rest takes."""

    table: str
    """The table, figure or group."""
    profile: str
    scale: str
    seeds: list[int]
    rows: list[str]
    """Rows of the table or figure; empty for a group."""
    tables: list[TableCounts]
    """The tables of a group."""
    left_out: dict[str, str]
    """Why tables of a group are left out."""
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

    def __repr__(self) -> str:
        return self.headline

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


def summary_of(experiment: Request) -> PlanSummary:
    """Return what is done and what is left of an experiment."""
    states = experiment.stages.states(experiment.store)

    def counts(stages: Iterable[Stage]) -> dict[str, int]:
        found = [states[stage] for stage in stages]
        return {"total": len(found)} | {state: found.count(state) for state in STATES}

    by_kind: dict[str, list[Stage]] = {}
    for stage in experiment.stages:
        by_kind.setdefault(stage.kind, []).append(stage)
    seconds, untimed = _estimate(experiment)
    runs, parts, group = experiment.runs.values(), experiment.parts, experiment.is_group
    needed = Counter(stage for run in runs for stage in Plan(run.targets))
    figure = experiment.figure_runs
    return PlanSummary(
        table=experiment.id,
        profile=experiment.profile.name,
        scale=experiment.profile.scale,
        seeds=list(experiment.planned_seeds),
        rows=[] if group else parts[0].row_ids if figure is None else figure.row_ids,
        tables=[
            TableCounts(
                table=it.table.id, rows=len(it.rows), runs=len(it.runs), **counts(Plan(it.targets))
            )
            for it in (parts if group else ())
        ],
        left_out=experiment.left_out,
        runs=len(runs),
        shared=sum(times > 1 for times in needed.values()),
        stages=Counts(**counts(experiment.stages)),
        kinds=[KindCounts(kind=kind, **counts(own)) for kind, own in by_kind.items()],
        jobs=experiment.workers,
        estimated_s=None if seconds is None else round(seconds, 1),
        untimed=untimed,
        failures=[
            Failure(
                stage=it.label, kind=it.kind, fingerprint=it.fingerprint, reason=found["reason"]
            )
            for it in experiment.stages
            if states[it] == "failed"
            if (found := experiment.store.failure(it.fingerprint))
        ],
        requests=requests_of(experiment.profile, experiment.pending),
    )


def _estimate(experiment: Request) -> tuple[float | None, list[str]]:
    """Return the seconds until everything is done, or None and the kinds never timed."""
    left = experiment.pending
    if not left:
        return 0.0, []
    timings = experiment.timings
    known = {it: seconds for it in left if (seconds := timings.seconds(it)) is not None}
    if untimed := dict.fromkeys(stage.kind for stage in left if stage not in known):
        return None, list(untimed)
    needs = needs_of(experiment.profile)
    work = sum(known[it] * (needs.of(it.kind).gpus or 1) for it in left)
    chains = experiment.stages.chains(left, known.__getitem__)
    return max(work / experiment.workers, max(chains.values())), []
