"""`plan`: which stages a run would compute, which are done, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

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
    workers_of,
)
from harness.cli.pricing import (
    BudgetOption,
    GpuOption,
    GpusOption,
    MaxGpuHoursOption,
    PriceAsked,
)

if TYPE_CHECKING:
    from rich.console import Console

    from harness.catalogue.profile import Profile
    from harness.cost.pricing import Price
    from harness.engine import Plan
    from harness.store import Stage, State, Store
    from harness.trainer.figure_runs import FigureRuns
    from harness.trainer.table_runs import TableRuns


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("plan", epilog="Example: harness plan table4 --seeds 0-4")(plan)


def plan(
    table: TablesArgument,
    profile: ProfileOption = DEFAULT_PROFILE,
    rows: RowsOption = None,
    seeds: SeedsOption = DEFAULT_SEEDS,
    jobs: JobsOption = None,
    skip_unsupported: SkipUnsupportedOption = False,
    gpu: GpuOption = None,
    gpus: GpusOption = None,
    max_gpu_hours: MaxGpuHoursOption = None,
    budget_usd: BudgetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would compute: stages done, missing, failed, and the time left.

    For a profile with models from outside the embedded world it shows the price instead of the
    time: GPU hours, dollars and disk, and what they assume. `all` then takes in the figures, and
    leaves out what the profile cannot run. The exit code is 1 if a limit is passed.
    """
    from harness.cli.asking import named_profile, planned
    from harness.cli.figure_commands import is_figure, runnable_figure
    from harness.cli.pricing import has_price

    asked, priced = parse_seeds(seeds), PriceAsked(gpu, gpus, max_gpu_hours, budget_usd)
    if is_figure(table):
        show_plan(runnable_figure(table, profile, asked, rows), jobs, as_json, priced)
        return
    if not one_table(table, rows, skip_unsupported):
        from harness.cli.group_commands import show_group_plan
        from harness.cli.together import planned_together

        skip = skip_unsupported or has_price(named_profile(profile))
        together = planned_together(table, profile, asked, skip_unsupported=skip)
        show_group_plan(together, jobs, as_json, priced)
        return
    runs = planned(table, profile, asked, parse_names("--rows", rows))
    show_plan(runs, jobs, as_json, priced)


def show_plan(
    runs: TableRuns | FigureRuns, jobs: int | None, as_json: bool, asked: PriceAsked
) -> None:
    """Print the plan of the runs of a table or a figure, with its price if it has one.

    Args:
        runs: The runs.
        jobs: Number of workers; one per core where not given.
        as_json: Print JSON instead of a table.
        asked: What was asked about its price.

    Raises:
        UserError: `jobs` is less than 1, or an option of the price is wrong.
        HarnessError: The price passes a limit.
    """
    from harness.cli.output import print_json
    from harness.cli.pricing import end_if_over, price_of_plan, with_price
    from harness.engine import Plan
    from harness.project import store_dir
    from harness.store import Store

    plan, store = Plan(runs.targets), Store(store_dir())
    price = price_of_plan(plan, runs.profile, store, asked)
    summary = with_price(summarise(runs, plan, store, jobs), price)
    if as_json:
        print_json(summary)
    else:
        _print(summary, price, again(runs.id, runs.profile.name, runs.seeds, _rows_asked(runs)))
    end_if_over(price, asked)


def _rows_asked(runs: TableRuns | FigureRuns) -> list[str]:
    """Return the rows that a command must name; none where they are all there are."""
    from harness.trainer.table_runs import TableRuns

    some = isinstance(runs, TableRuns) and len(runs.rows) < len(runs.table.rows)
    return runs.row_ids if some else []


def summarise(
    runs: TableRuns | FigureRuns, plan: Plan, store: Store, jobs: int | None
) -> dict[str, Any]:
    """Return what is done and what is left of a plan, as JSON data.

    Raises:
        UserError: `jobs` is less than 1.
    """
    from harness.cli.asking import shared_stages

    return {
        "table": runs.id,
        "profile": runs.profile.name,
        "scale": runs.profile.scale,
        "seeds": list(runs.seeds),
        "rows": runs.row_ids,
        "runs": len(runs.runs),
        "shared": len(shared_stages(runs)),
        **progress_of(plan, store, jobs, runs.profile),
    }


def state_counts(stages: Iterable[Stage], states: Mapping[str, State]) -> dict[str, int]:
    """Return how many stages there are, in all and in each state.

    Args:
        stages: The stages to count.
        states: State of each stage by fingerprint.
    """
    from harness.store import STATES

    found = [states[stage.fingerprint] for stage in stages]
    return {"total": len(found)} | {state: found.count(state) for state in STATES}


def progress_of(plan: Plan, store: Store, jobs: int | None, profile: Profile) -> dict[str, Any]:
    """Return how far a plan is, how long the rest takes, and what failed, as JSON data.

    How long is told of the embedded profile alone, on which stages were timed; others have a price.

    Raises:
        UserError: `jobs` is less than 1.
    """
    from harness.cli.asking import EXPECTED_S, training_stages
    from harness.cli.pricing import has_price

    workers = workers_of(jobs)
    states = plan.states(store)
    return {
        "stages": state_counts(plan, states),
        "training_stages": state_counts(training_stages(plan), states),
        "kinds": [
            {"kind": kind} | state_counts([s for s in plan if s.kind == kind], states)
            for kind in dict.fromkeys(stage.kind for stage in plan)
        ],
        "jobs": workers,
        "estimated_s": None
        if has_price(profile)
        else round(plan.remaining_s(store, workers, EXPECTED_S), 1),
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


def headline(summary: dict[str, Any]) -> str:
    """Return a plan in two sentences."""
    from harness.cli.output import counted
    from harness.report.view import seeds_text

    rows = counted(len(summary["rows"]), "row")
    return (
        f"{summary['table']} on {summary['profile']} ({summary['scale']} scale), {rows}, "
        f"seeds {seeds_text(summary['seeds'])}: {counted(summary['runs'], 'run')} of "
        f"{counted(summary['stages']['total'], 'distinct stage')}, {summary['shared']} of them "
        f"shared by runs. {what_is_left(summary)}"
    )


def what_is_left(summary: dict[str, Any]) -> str:
    """Return how much of a plan is to be computed, and how long it takes, in a sentence."""
    from harness.cli.output import counted, duration

    stages = summary["stages"]
    left = stages["total"] - stages["done"]
    if not left:
        return "All stages are done."
    workers = counted(summary["jobs"], "worker")
    retried = f" ({stages['failed']} failed before)" if stages["failed"] else ""
    if summary["estimated_s"] is None:
        return f"{stages['done']} done, {left} to compute{retried}."
    return (
        f"{stages['done']} done, {left} to compute{retried}: "
        f"about {duration(summary['estimated_s'])} with {workers}."
    )


def _print(summary: dict[str, Any], price: Price | None, asked: str) -> None:
    from harness.cli.output import console

    out = console()
    out.print(headline(summary), soft_wrap=True)
    print_progress(out, summary, asked, price)


def print_progress(out: Console, summary: dict[str, Any], asked: str, price: Price | None) -> None:
    """Print how many stages of each kind are in each state, which failed, and the price.

    Args:
        out: Where to.
        summary: The summary of a plan.
        asked: What `harness run` computes it by.
        price: The price of what is left, if it has one.
    """
    from harness.cli.output import grid
    from harness.cli.price_printing import print_price

    out.print()
    lines = [*summary["kinds"], {"kind": "all"} | summary["stages"]]
    columns = ("kind", "total", "done", "missing", "failed")
    cells = [tuple(str(line[column]) for column in columns) for line in lines]
    out.print(grid(("stages", *columns[1:]), cells, right="1234"))
    for failure in summary["failures"]:
        where = f"{failure['stage']} ({failure['fingerprint'][:12]})"
        out.print(f"failed: {where}: {failure['reason']}", soft_wrap=True)
    if price is not None:
        print_price(out, price)
    if summary["stages"]["done"] < summary["stages"]["total"]:
        out.print(f"\nCompute it: harness run {asked}", soft_wrap=True)
