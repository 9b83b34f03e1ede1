"""The pool: worker processes that stay warm between stages, started when there is work for them.

Each worker is a child (`harness.runtime.processes`) with the environment of `harness.quiet`. Its
output goes to a log file. A worker's death is seen as the end of its socket.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from multiprocessing import connection as sockets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.runtime.files import explained
from harness.runtime.leases import hold
from harness.runtime.processes import Child
from harness.runtime.stage import Stage

if TYPE_CHECKING:
    from harness.runtime.worker import Setup

_LOG_TAIL = 4000


class WorkerProcess:
    """The parent's end of one worker; `stage` is what it computes, None while it is idle.

    The claim keeps other runs from its log; it is closed when the worker has ended.
    """

    def __init__(
        self, setup: Setup, environment: dict[str, str], log: Path, claim: ExitStack
    ) -> None:
        self.stage: Stage | None = None
        self.log = log
        self._claim = claim
        self._child = Child("harness.runtime.worker", setup, environment, log)
        self.connection = self._child.connection
        self.receive = self._child.receive

    def give(self, stage: Stage) -> None:
        """Hand over a stage to compute."""
        self.stage = stage
        self._child.send(stage.record.as_json())

    def obituary(self) -> tuple[str, str]:
        """Return why a dead worker died, in a sentence, and the end of what it printed."""
        cause = self._child.cause()
        self.stop()
        hint = " (out of memory?)" if cause == "SIGKILL" else ""
        text = self.log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        return f"worker died: {cause}{hint}", text

    def stop(self) -> None:
        """End the process and whatever it started; return when it has ended."""
        self._child.stop()
        self._claim.close()


class Pool:
    """Up to `limit` workers, kept until the pool is left.

    Their logs are `worker-<n>.log` in a folder; where several runs share it, no two living workers
    have the same number.
    """

    def __init__(
        self, limit: int, setup: Setup, environment: dict[str, str], log_dir: Path
    ) -> None:
        self._limit = limit
        self._setup = setup
        self._environment = environment
        self._log_dir = log_dir
        self._workers: dict[int, WorkerProcess] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def at_work(self) -> list[Stage]:
        """The stages that are computed now."""
        return [worker.stage for worker in self._workers.values() if worker.stage]

    @property
    def busy(self) -> bool:
        """Whether any worker is computing."""
        return bool(self.at_work)

    @property
    def has_room(self) -> bool:
        """Whether another stage can be given to a worker."""
        return len(self.at_work) < self._limit

    def idle_worker(self) -> WorkerProcess:
        """Return a worker without work, started if need be; there must be room.

        Raises:
            StoreError: The disk is full, or the folder of the logs may not be written.
        """
        for worker in self._workers.values():
            if worker.stage is None:
                return worker
        with explained("starting a worker", self._log_dir):
            slot, claim = self._free_slot()
            log = self._log_dir / f"worker-{slot}.log"
            self._workers[slot] = WorkerProcess(self._setup, self._environment, log, claim)
        return self._workers[slot]

    def _free_slot(self) -> tuple[int, ExitStack]:
        """Return a number that no living worker has, and what keeps it from other runs."""
        claim, locks = ExitStack(), self._log_dir / ".locks"
        slot = next(
            number
            for number in count()
            if claim.enter_context(hold(locks / f"worker-{number}", wait=False))
        )
        return slot, claim

    def wait(
        self, timeout_s: float | None = None
    ) -> list[tuple[WorkerProcess, dict[str, Any] | None]]:
        """Wait until workers have something to say; return who says what, None for a death."""
        listening = {worker.connection: slot for slot, worker in self._workers.items()}
        said = []
        for connection in sockets.wait(list(listening), timeout_s):
            slot = listening[connection]  # type: ignore[index]
            worker = self._workers[slot]
            message = worker.receive()
            if message is None:
                del self._workers[slot]
            said.append((worker, message))
        return said

    def stop(self) -> None:
        """End all workers, idle or not, and return when they have ended."""
        while self._workers:
            self._workers.popitem()[1].stop()
