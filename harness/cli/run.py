"""`run`: computes what is missing, with progress output.

The display shows stages done, what is running, and time left. The bar measures work, most of which
is in few stages. Failures are printed as they happen and stay on the screen.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from harness.cli import common
from harness.cli.common import console, note, unbroken
from harness.cli.plan import left_out
from harness.cli.report import show as show_report
from harness.project import work_dir
from harness.selection.names import DEFAULT_PROFILE, DEFAULT_SEEDS, Format, again
from harness.words import counted, duration, time_left

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from harness.runtime import Event
    from harness.runtime.plan import Awaited, Tally
    from harness.selection.experiment import Experiment
    from harness.selection.reporting import Reports
    from harness.selection.served_run import Observe

app = typer.Typer(rich_markup_mode=None)


@app.command("run", epilog="Example: harness run table4 --seeds 0-4")
def run(
    table: common.AnyTableArgument,
    profile: common.ProfileOption = DEFAULT_PROFILE,
    rows: common.RowsOption = None,
    seeds: common.SeedsOption = DEFAULT_SEEDS,
    jobs: common.JobsOption = None,
    settings: common.SettingsOption = None,
    budget_usd: common.BudgetOption = None,
    engine: common.EngineOption = "local",
    ray_address: common.RayAddressOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Run what is missing of a table, track it in MLflow, and report it.

    Finished stages are kept: after Ctrl-C, after a failure or with more seeds, the same command
    continues. `all-offline` and `all` plan their tables together, so that shared stages run once,
    skip the tables that the profile can't run, and end with one line per table instead of its
    report.
    """
    from harness.runtime import EngineOptions
    from harness.runtime.plan import Tally
    from harness.selection.experiment import select

    asked = select(table, profile, rows, seeds, settings)
    planned = asked.plan(jobs=jobs, budget_usd=budget_usd)
    out = console(stderr=as_json)
    common.print_all([planned.summary.headline, *left_out(planned.summary)], out)
    timings = planned.timings
    tally = Tally(
        planned.stages, planned.store, planned.workers, timings.expected, timings.is_timed
    )
    with common.watching() as show:
        report = planned.run(
            engine=EngineOptions(engine=engine, ray_address=ray_address),
            watch=progress(out, tally),
            on_note=note,
            on_tracking=show,
            on_report=lambda report: _print_report(report, out, planned, as_json),
        )
    if report.failed:
        _print_failures(report, planned)
        raise typer.Exit(1)


def _print_report(report: Reports, out: Console, planned: Experiment, as_json: bool) -> None:
    """Print a report, or a line per table if there are several."""
    if as_json:
        sys.stdout.write(report.text(Format.json))
        return
    out.print()
    show_report(report, out)
    profile = planned.profile.asked_as
    if len(report.tables) == 1:
        more = (
            f"harness report {again(planned.name, profile)} --full (all columns, assumptions), "
            "harness ui (curves and rows side by side)"
        )
    else:
        of_table = again("TABLE", profile)
        more = f"harness report {of_table}, harness claims {of_table}, harness ui"
    if report.figure is None:
        common.print_all([*left_out(planned.summary), unbroken(f"\nMore: {more}")], out)


def _print_failures(report: Reports, planned: Experiment) -> None:
    for title, reason in report.failed.items():
        note(f"failed: {title}: {reason}")
    number = 0 if report.outcome is None else len(report.outcome.skipped)
    skipped = f", {number} skipped" if number else ""
    note(
        f"{counted(len(report.failed), 'stage')} failed{skipped}: tracebacks are in "
        f"{planned.store.root / 'failures'}, the workers' output in {work_dir() / 'logs'}; run the "
        "same command to try again"
    )


def headline(tally: Tally) -> str:
    """Return a run's progress: `12 of 354 stages done, about 6 min left after 2 min`."""
    words = [f"{tally.done} of {counted(tally.total, 'stage')} done"]
    words += [f"{tally.failed} failed"] if tally.failed else []
    words += [f"{tally.skipped} skipped"] if tally.skipped else []
    words += [f"{len(tally.running)} running"] if tally.running else []
    words += [f"{len(tally.elsewhere)} in another run"] if tally.elsewhere else []
    words += [f"waiting for {_awaited(tally.awaited)}"] if tally.awaited else []
    if tally.done + tally.failed + tally.skipped < tally.total:
        left = time_left(tally.remaining_s(), tally.least_s())
        words.append(f"{left} after {duration(tally.elapsed_s)}")
    return ", ".join(words)


def _awaited(event: Awaited) -> str:
    return f"{event.what} ({duration(event.seconds)})"


@contextmanager
def progress(
    out: Console, tally: Tally, clock: Callable[[], float] = time.monotonic
) -> Iterator[Observe]:
    """Show a run's progress: redrawn on a terminal, elsewhere a line every few seconds."""
    from rich.live import Live

    from harness.runtime.plan import StageElsewhere, StageFailed

    # A separate thread redraws the display while events arrive in this one.
    lock, last = threading.Lock(), clock()

    def render() -> RenderableType:
        with lock:
            return rendered(tally)

    def observe(event: Event) -> None:
        nonlocal last
        with lock:
            tally.observe(event)
        if isinstance(event, StageFailed):
            # Outside the lock: printing redraws the display, which acquires it.
            out.print(f"failed: {event.stage.title}: {event.reason}", style="red", soft_wrap=True)
        waits = isinstance(event, StageElsewhere) and not tally.running
        if not out.is_terminal and (waits or clock() - last >= common.LINE_EVERY_S):
            last = clock()
            out.print(headline(tally), soft_wrap=True)

    if out.is_terminal:
        with Live(console=out, get_renderable=render, refresh_per_second=2):
            yield observe
        return
    try:
        yield observe
    finally:
        out.print(headline(tally), soft_wrap=True)


def rendered(tally: Tally) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bar = Table.grid(padding=(0, 1))  # a bare ProgressBar does not end its line
    bar.add_row(
        ProgressBar(total=1.0, completed=tally.share, width=40), f"{100 * tally.share:.0f}%"
    )
    if tally.awaited is not None:
        waits = ProgressBar(total=None, pulse=True, width=40)
        bar.add_row(waits, f"starting {_awaited(tally.awaited)}")
    points = ((stage, tally.latest.get(stage)) for stage in tally.running)
    running = (f"  {stage.label}{f' · {at.words}' if at else ''}" for stage, at in points)
    return Group(
        bar,
        Text(headline(tally)),
        *(Text(line, no_wrap=True, overflow="ellipsis") for line in running),
    )
