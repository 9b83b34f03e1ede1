"""Live progress of a run: a display that is redrawn on a terminal, single lines elsewhere.

Both feed a `Tally` with the engine's events and show what it says: stages done, what is running,
the time left. Failures are printed when they happen and stay on the screen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, Self

from harness.runtime import Event, StageElsewhere, StageFailed, StageProgress, Tally
from harness.words import counted, duration

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType

LINE_EVERY_S = 5.0
"""Seconds between two lines where nothing can be redrawn."""

REDRAWN_A_SECOND = 2


class Progress(Protocol):
    """Takes events while its block runs, and shows them."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None: ...

    def observe(self, event: Event) -> None:
        """Take in one event."""
        ...


def progress(out: Console, tally: Tally) -> Progress:
    """Return the progress display that suits a console."""
    return Redrawn(out, tally) if out.is_terminal else Lines(out, tally)


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
        lines.append(stage.label + ("" if point is None else f" · {_point(point)}"))
    return lines


def _point(point: StageProgress) -> str:
    shown = [(name, point.metrics[name]) for name in ("loss",) if name in point.metrics]
    return " ".join([f"step {point.step}", *(f"{name} {value:.3f}" for name, value in shown)])


class Lines:
    """Progress where nothing can be redrawn: a line every few seconds, and each failure."""

    def __init__(
        self, out: Console, tally: Tally, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._tally = tally
        self._clock = clock
        self._last = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._print()

    def observe(self, event: Event) -> None:
        """Take in one event."""
        self._tally.observe(event)
        if isinstance(event, StageFailed):
            self._out.print(f"failed: {event.stage.title}: {event.reason}", soft_wrap=True)
        waits = isinstance(event, StageElsewhere) and not self._tally.running
        if waits or self._clock() - self._last >= LINE_EVERY_S:
            self._print()

    def _print(self) -> None:
        self._last = self._clock()
        self._out.print(headline(self._tally), soft_wrap=True)
        # A pipe is read while the run goes on.
        self._out.file.flush()


class Redrawn:
    """Progress on a terminal: a bar, where the run stands, and what is running."""

    def __init__(self, out: Console, tally: Tally) -> None:
        self._out = out
        self._tally = tally
        # The display is redrawn by a thread of its own while events arrive in this one.
        self._lock = threading.Lock()
        self._live: AbstractContextManager[object] | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(
            console=self._out, get_renderable=self._render, refresh_per_second=REDRAWN_A_SECOND
        )
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def observe(self, event: Event) -> None:
        """Take in one event."""
        with self._lock:
            self._tally.observe(event)
        if isinstance(event, StageFailed):
            # Printed outside the lock: printing redraws the display, which takes it.
            self._out.print(f"failed: {event.stage.title}: {event.reason}", style="red")

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        with self._lock:
            tally = self._tally
            settled = tally.done + tally.failed + tally.skipped
            bar = ProgressBar(total=tally.total, completed=settled, width=40)
            lines = [headline(tally), *(f"  {line}" for line in _running(tally))]
        return Group(bar, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))
