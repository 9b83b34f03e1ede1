"""Live tracking: curves and states reach MLflow while stages run, without holding the run up.

Whoever runs the engine drops messages into a queue and goes on. One background thread imports
MLflow, gathers messages for a second at a time and writes them: points of running trainings as
they are, and a run's whole record again when one of its stages has finished or failed. The thread
never raises. When MLflow fails, it says so once and ignores all further messages.

Nothing depends on live tracking: what it missed, the next `sync` adds.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from harness.runtime import Stage
from harness.tracking.database import open_server, reached, write_lock
from harness.tracking.patience import sentence, too_slow
from harness.tracking.writer import LivePoint, LiveWriter

if TYPE_CHECKING:
    from harness.tracking.server import Server

SIGN_S = 60.0
"""Seconds between two signs of life of the runs that are computed."""

Message: TypeAlias = "LivePoint | str"
"""A point, or the fingerprint of a stage that has finished or failed."""


class Live:
    """A background thread that writes runs to MLflow while they are computed.

    Args:
        work_dir: Folder of the locks.
        uri: Tracking URI.
        writer: Knows the runs.
        warn: Takes the one sentence that says MLflow is not available; called in the thread.
        flush_s: Seconds between two writes.

    Attributes:
        failed: Set when MLflow has failed; everything after that is ignored.
    """

    def __init__(
        self,
        work_dir: Path,
        uri: str,
        writer: LiveWriter,
        warn: Callable[[str], None],
        flush_s: float,
    ) -> None:
        self._work_dir = work_dir
        self._uri = uri
        self._writer = writer
        self._warn = warn
        self._flush_s = flush_s
        self._server: Server | None = None
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.failed = threading.Event()

    def progress(self, stage: Stage, step: int, metrics: Mapping[str, float]) -> None:
        """Take one point of a running stage; returns at once."""
        if self._writer.has_curves(stage):
            self._put(LivePoint(stage.fingerprint, step, dict(metrics)))

    def stage_finished(self, stage: Stage) -> None:
        """Take that a stage is done; returns at once."""
        if self._writer.is_shown(stage):
            self._put(stage.fingerprint)

    def stage_failed(self, stage: Stage) -> None:
        """Take that a stage has failed; returns at once."""
        if self._writer.is_needed(stage):
            self._put(stage.fingerprint)

    def close(self, timeout_s: float) -> None:
        """Write what is left and stop.

        Args:
            timeout_s: Seconds to wait for it. A thread that needs longer is left behind and ends
                with the process.
        """
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                self._give_up(too_slow(self._uri))

    def _put(self, message: Message) -> None:
        if self.failed.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
            self._thread.start()
        self._queue.put(message)

    def _run(self) -> None:
        """Write batches of messages until told to stop."""
        try:
            closing, signed = False, time.monotonic()
            while not closing and not self.failed.is_set():
                batch, closing = self._gather()
                due = time.monotonic() - signed >= SIGN_S
                self._write(batch, sign=due, end=closing)
                if due:
                    signed = time.monotonic()
        except Exception as error:  # noqa: BLE001  a run goes on without MLflow, whatever it is
            self._give_up(sentence(error, self._work_dir, self._uri))

    def _gather(self) -> tuple[Sequence[Message], bool]:
        """Wait for a message, then a while for more; the flag says that there will be none.

        Without a message the wait ends when the next sign of life is due.
        """
        batch: list[Message] = []
        until = time.monotonic() + SIGN_S
        while (left := until - time.monotonic()) > 0:
            try:
                message = self._queue.get(timeout=left)
            except queue.Empty:
                break
            if message is None:
                return batch, True
            batch.append(message)
            until = min(until, time.monotonic() + self._flush_s)
        return batch, False

    def _write(self, batch: Sequence[Message], *, sign: bool, end: bool) -> None:
        """Write the points of a batch, then the runs whose stages have finished or failed.

        Args:
            batch: The messages.
            sign: Also say of the runs that are computed that they still are.
            end: Also write those that are not computed any more.
        """
        if self._server is None:
            if not batch:
                return
            self._server = open_server(self._uri, self._work_dir)
        with reached(self._uri), write_lock(self._work_dir, self._uri):
            points = (message for message in batch if isinstance(message, LivePoint))
            self._writer.write_points(self._server, points)
            settled = (message for message in batch if isinstance(message, str))
            self._writer.write_settled(self._server, settled)
            if sign:
                self._writer.write_signs(self._server)
            if end:
                self._writer.write_ends(self._server)

    def _give_up(self, why: str) -> None:
        """Say once that MLflow is not available, and ignore everything from now on."""
        if not self.failed.is_set():
            self.failed.set()
            self._warn(why)
