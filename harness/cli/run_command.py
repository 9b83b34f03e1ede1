"""`run`: compute what is missing of a table, track it, and report it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.options import (
    DEFAULT_PROFILE,
    DEFAULT_SEEDS,
    JobsOption,
    JsonOption,
    ProfileOption,
    RowsOption,
    SeedsOption,
    SkipUnsupportedOption,
    TablesArgument,
    again,
    one_table,
    parse_names,
    parse_seeds,
)
from harness.cli.pricing import BudgetOption, MaxGpuHoursOption, PriceAsked, refuse_over_limits

if TYPE_CHECKING:
    from pathlib import Path

    from harness.catalogue.profile import Profile
    from harness.engine import Event, Outcome, Plan
    from harness.store import Stage, Store
    from harness.tracking import Tracker
    from harness.trainer.table_runs import TableRuns

FailFastOption = Annotated[
    bool,
    typer.Option(
        "--fail-fast/--keep-going", help="Stop at the first failure, or go on with what can."
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan, compute nothing.")]

NEEDED_MODULES = {
    "generate": "harness.models.policy",
    "annotate": "harness.models.reward_model",
    "answer": "harness.models.policy",
    "rewrite": "harness.models.policy",
    "reward_model": "harness.models.reward_model",
    "held_out": "harness.models.reward_model",
    "train": "harness.training.dpo",
    "online": "harness.trainer.online_steps",
}
"""What a kind of stage imports that takes seconds; workers import it before their first stage."""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("run", epilog="Example: harness run table4 --seeds 0-4")(run)


def run(
    table: TablesArgument,
    profile: ProfileOption = DEFAULT_PROFILE,
    rows: RowsOption = None,
    seeds: SeedsOption = DEFAULT_SEEDS,
    jobs: JobsOption = None,
    fail_fast: FailFastOption = False,
    dry_run: DryRunOption = False,
    skip_unsupported: SkipUnsupportedOption = False,
    max_gpu_hours: MaxGpuHoursOption = None,
    budget_usd: BudgetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute what is missing of a table, track it in MLflow, and report it.

    What is done is kept: after Ctrl-C, a failure or with more seeds, the same command goes on.
    Several tables (`all-offline`, `all`) are planned together, so that what they share is computed
    once; at the end stands a line for each table instead of its report. If the estimate of what is
    left (`harness plan`) passes a limit, nothing is started.
    """
    limits = PriceAsked(max_gpu_hours=max_gpu_hours, budget_usd=budget_usd)
    refuse_over_limits(table, profile, rows, seeds, limits, skip_unsupported=skip_unsupported)
    if not one_table(table, rows, skip_unsupported):
        from harness.cli.group_commands import run_group
        from harness.cli.together import planned_together

        asked = parse_seeds(seeds)
        together = planned_together(table, profile, asked, skip_unsupported=skip_unsupported)
        run_group(together, jobs, fail_fast=fail_fast, dry_run=dry_run, as_json=as_json)
        return
    from harness.cli.asking import planned
    from harness.cli.figure_commands import is_figure, run_figure
    from harness.cli.output import console
    from harness.cli.plan_command import headline, show_plan, summarise
    from harness.cli.report_writing import Format, write_report
    from harness.cli.tracking_commands import states_of, tracker_of
    from harness.engine import Plan
    from harness.project import store_dir, work_dir
    from harness.report.asked import remember
    from harness.report.cells import build_cells
    from harness.store import Store

    if is_figure(table):
        run_figure(table, profile, rows, seeds, jobs, fail_fast, dry_run, as_json)
        return
    runs = planned(table, profile, parse_seeds(seeds), parse_names("--rows", rows))
    if dry_run:
        show_plan(runs, jobs, as_json, limits)
        return
    out = console(stderr=as_json)
    plan, store = Plan(runs.targets), Store(store_dir())
    summary = summarise(runs, plan, store, jobs)
    out.print(headline(summary), soft_wrap=True)
    remember(work_dir(), runs.table.id, runs.profile.name, runs.seeds)
    tracker, outcome = tracker_of(store), None
    if plan.pending(store):
        outcome = execute([runs], plan, store, tracker, summary["jobs"], fail_fast, stderr=as_json)
    cells = build_cells(runs, store)
    write_report(runs, cells, store, Format.json if as_json else Format.terminal, details=False)
    tracker.finish(lambda: states_of(runs, cells, store))
    if not as_json:
        out.print(
            f"\nMore: harness report {again(runs.id, runs.profile.name)} (distances, assumptions), "
            "harness ui (curves and rows side by side)"
        )
    if outcome is not None and not outcome.ok:
        print_failures(outcome, store.root, work_dir() / "logs")
        raise typer.Exit(1)


def execute(
    tables: Sequence[TableRuns],
    plan: Plan,
    store: Store,
    tracker: Tracker,
    jobs: int,
    fail_fast: bool,
    *,
    stderr: bool,
) -> Outcome:
    """Compute the stages of a plan that are not done, showing and tracking how it goes.

    Args:
        tables: The runs the plan completes, all at one profile.
        plan: The plan.
        store: Where outputs go.
        tracker: Takes the events, for MLflow.
        jobs: Number of workers.
        fail_fast: Stop at the first failure.
        stderr: Show progress on stderr instead of stdout.

    Raises:
        Interrupted: Ctrl-C.
        UserError: A model, prompts or a benchmark that a stage needs are not on this machine.
    """
    from harness.cli.asking import EXPECTED_S
    from harness.cli.live import progress
    from harness.cli.needs_outside import retirements
    from harness.cli.output import console, note, warn
    from harness.engine import LocalEngine, Tally
    from harness.project import work_dir
    from harness.trainer.steps import FUNCTIONS
    from harness.worlds.lookup import world_of

    world = world_of(tables[0].profile)
    if not world.self_contained:
        for need in retirements(tables[0].profile):
            warn(need.line)
    for gap in world.preflight(plan.pending(store)):
        note(gap)
    tally = Tally(plan, store, jobs, EXPECTED_S)
    tracker.start(tables)
    try:
        with progress(console(stderr=stderr), tally) as shown:

            def on_event(event: Event) -> None:
                shown.observe(event)
                follow(tracker, event)

            engine = LocalEngine(
                store,
                FUNCTIONS,
                work_dir() / "logs",
                # Stages of large models use all devices at once.
                jobs=jobs if tables[0].profile.hardware is None else 1,
                fail_fast=fail_fast,
                on_event=on_event,
                preload=needed_modules(plan.pending(store)),
                fallback=EXPECTED_S,
                threads=tables[0].profile.threads,
                hardware=hardware_of(tables[0].profile),
            )
            with world.serving():
                return engine.run(plan)
    except BaseException:
        # What is stored is safe; the next run or sync writes what MLflow lacks.
        tracker.close(timeout_s=2.0)
        raise


def hardware_of(profile: Profile) -> dict[str, Any]:
    """Return how stages are to use this machine: what a profile says, and no part of a number."""
    if profile.hardware is None:
        return {}
    return {"training": profile.hardware.model_dump(mode="json")}


def follow(tracker: Tracker, event: Event) -> None:
    """Tell a tracker of an event of the engine."""
    from harness.engine import StageFailed, StageFinished, StageProgress

    match event:
        case StageProgress(stage, step, metrics):
            tracker.progress(stage, step, metrics)
        case StageFinished(stage):
            tracker.stage_finished(stage)
        case StageFailed(stage):
            tracker.stage_failed(stage)


def needed_modules(stages: Sequence[Stage]) -> list[str]:
    """Return the slow modules that some stages import, in a fixed order."""
    kinds = {stage.kind for stage in stages}
    return sorted({module for kind, module in NEEDED_MODULES.items() if kind in kinds})


def print_failures(outcome: Outcome, store: Path, logs: Path) -> None:
    """Print what failed and why, and where more is written, on stderr."""
    from harness.cli.output import counted, note

    for stage, reason in outcome.failed.items():
        note(f"failed: {stage.title}: {reason}")
    skipped = f", {len(outcome.skipped)} skipped" if outcome.skipped else ""
    note(
        f"{counted(len(outcome.failed), 'stage')} failed{skipped}: tracebacks are in "
        f"{store / 'failures'}, the workers' output in {logs}; run the same command to try again"
    )
