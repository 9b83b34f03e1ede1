"""`plan`: what a run would compute, how long that takes, and which paid requests it sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from harness.cli import common
from harness.cli.common import emit, text_table, unbroken
from harness.selection.names import DEFAULT_PROFILE, DEFAULT_SEEDS

if TYPE_CHECKING:
    from harness.selection.planning import PlanSummary

app = typer.Typer(rich_markup_mode=None)


MOST_FAILURES = 3
"""Failed stages that are named without `--full`."""


@app.command("plan", epilog="Example: harness plan table4 --seeds 0-4")
def plan(
    table: common.AnyTableArgument,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    rows: common.RowsOption = None,
    seeds: common.SeedsOption = DEFAULT_SEEDS,
    jobs: common.JobsOption = None,
    settings: common.SettingsOption = None,
    full: common.FullOption = False,
    as_json: common.JsonOption = False,
) -> None:
    """Show what a run would compute: stages done, missing and failed, and what the rest takes.

    The time is scaled from finished stages in this store. Requests to paid endpoints are listed
    with their price. `all-offline` and `all` skip the tables that the profile can't run.
    """
    from harness.selection.experiment import select

    planned = select(table, profile, rows, seeds, settings).plan(jobs=jobs)
    emit(planned.summary, as_json, lambda summary: _text(summary, planned.again, full))


def _text(summary: PlanSummary, again: str, full: bool) -> Iterator[Any]:
    yield summary.headline
    if summary.left_out and not full:
        yield f"Left out: {', '.join(summary.left_out)}."
    failures = summary.failures if full else summary.failures[:MOST_FAILURES]
    for failure in failures:
        yield f"failed: {failure.stage} ({failure.fingerprint[:12]}): {failure.reason}"
    if summary.requests:
        yield from _requests(summary)
    if full:
        yield from _parts(summary)
    yield "" if full else "\nEach kind of stage, table and failure: --full"
    if summary.stages.done < summary.stages.total:
        yield unbroken(f"Compute it: harness run {again}")


def _parts(summary: PlanSummary) -> Iterator[Any]:
    if summary.tables:
        lines = [
            (line.table, *map(str, (line.rows, line.runs, line.total, line.done)))
            for line in summary.tables
        ]
        yield ""
        yield text_table(("table", "rows", "runs", "stages", "done"), lines, right=range(1, 5))
    yield from left_out(summary)
    yield ""
    counts = [*((kind.kind, kind) for kind in summary.kinds), ("all", summary.stages)]
    cells = [(name, str(c.total), str(c.done), str(c.missing), str(c.failed)) for name, c in counts]
    yield text_table(("stages", "total", "done", "missing", "failed"), cells, right=range(1, 5))
    if summary.untimed:
        yield f"never timed in this store: {', '.join(summary.untimed)}"


def left_out(summary: PlanSummary) -> Iterator[str]:
    for table, reasons in summary.left_out.items():
        yield f"left out: {table}: {reasons}"


def _requests(summary: PlanSummary) -> Iterator[Any]:
    from harness.endpoint.prices import price_list

    rows = [
        (
            it.role,
            it.model,
            f"{it.requests:,}",
            "{:g}, {:g}".format(*it.usd_per_million) if it.usd_per_million else "unknown",
            "unknown" if it.usd is None else f"{it.usd:,.0f}",
        )
        for it in summary.requests
    ]
    yield ""
    head = ("asked", "model", "requests", "$ per M in, out", "dollars")
    yield text_table(head, rows, right=range(2, 5))
    dated = price_list()["as_of"]
    yield f"Typical lengths, prices of {dated}; `harness run --budget-usd` is a hard limit."
