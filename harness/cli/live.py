"""Live progress of a run: a display that is redrawn on a terminal, single lines elsewhere.

Both feed a `Tally` with the engine's events and show what it says: stages done, what is running,
the time left. Failures are printed when they happen and stay on the screen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from harness.runtime import Event, StageElsewhere, StageFailed, Tally
from harness.words import counted, duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_EVERY_S = 5.0
"""Seconds between two lines where nothing can be redrawn."""

REDRAWN_A_SECOND = 2


Observe = Callable[[Event], None]
"""Takes in one event of a run."""


def progress(out: Console, tally: Tally) -> AbstractContextManager[Observe]:
    """Yield what takes a run's events, and show them as it suits a console."""
    return redrawn(out, tally) if out.is_terminal else lines(out, tally)


def headline(tally: Tally) -> str:
    """Return where a run stands: `12 of 354 stages done, 2 running, about 6 min left`."""
    words = [f"{tally.done} of {counted(tally.total, 'stage')} done"]
    words += [f"{tally.failed} failed"] if tally.failed else []
    words += [f"{tally.skipped} skipped"] if tally.skipped else []
    words += [f"{len(tally.running)} running"] if tally.running else []
    words += [f"{len(tally.elsewhere)} in another run"] if tally.elsewhere else []
    if tally.done + tally.failed + tally.skipped < tally.total:
        words.append(f"about {duration(tally.remaining_s())} left")
    return ", ".join(words)


def _running(tally: Tally) -> list[str]:
    """Return a line for each running stage, with the last point of its curves."""
    lines = []
    for stage in tally.running:
        point = tally.latest.get(stage.fingerprint)
        lines.append(stage.label + ("" if point is None else f" · {point.words}"))
    return lines


@contextmanager
def lines(
    out: Console, tally: Tally, clock: Callable[[], float] = time.monotonic
) -> Iterator[Observe]:
    """Show progress where nothing can be redrawn: a line every few seconds, and each failure."""
    last = clock()

    def show() -> None:
        nonlocal last
        last = clock()
        out.print(headline(tally), soft_wrap=True)
        # A pipe is read while the run goes on.
        out.file.flush()

    def observe(event: Event) -> None:
        tally.observe(event)
        if isinstance(event, StageFailed):
            out.print(f"failed: {event.stage.title}: {event.reason}", soft_wrap=True)
        waits = isinstance(event, StageElsewhere) and not tally.running
        if waits or clock() - last >= LINE_EVERY_S:
            show()

    try:
        yield observe
    finally:
        show()


@contextmanager
def redrawn(out: Console, tally: Tally) -> Iterator[Observe]:
    """Show progress on a terminal: a bar, where the run stands, and what is running."""
    from rich.live import Live

    # The display is redrawn by a thread of its own while events arrive in this one.
    lock = threading.Lock()

    def render() -> RenderableType:
        with lock:
            return rendered(tally)

    def observe(event: Event) -> None:
        with lock:
            tally.observe(event)
        if isinstance(event, StageFailed):
            # Printed outside the lock: printing redraws the display, which takes it.
            out.print(f"failed: {event.stage.title}: {event.reason}", style="red")

    with Live(console=out, get_renderable=render, refresh_per_second=REDRAWN_A_SECOND):
        yield observe


def rendered(tally: Tally) -> RenderableType:
    """Return the display of a run as it stands."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    settled = tally.done + tally.failed + tally.skipped
    bar = Table.grid(padding=(0, 1))  # a bar alone ends no line
    bar.add_row(
        ProgressBar(total=tally.total, completed=settled, width=40),
        f"{100 * settled // max(tally.total, 1)}%",
    )
    running = (f"  {line}" for line in _running(tally))
    return Group(
        bar,
        Text(headline(tally)),
        *(Text(line, no_wrap=True, overflow="ellipsis") for line in running),
    )
