"""Who computes: the interface of a crew, and the pool of worker processes of this machine.

An engine asks a crew whether it has room, gives it a stage, and waits for messages. A message is a
dict with an `event`: `started`, any number of `progress`, and one of `finished`, `failed`,
`elsewhere` (another run computes the stage) or `died`, which ends it. A stage that `died` may be
`lost`: its node went away, and another may try.

Workers stay warm between stages and are started when there is work for them, with the environment
of `harness.quiet`; their output goes to log files. A stage that needs GPUs gets some that no other
stage has, and a worker of its own, which ends with it: what a process keeps of a GPU's memory is
free only then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import connection as sockets
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.errors import UserError
from harness.project import PACKAGE
from harness.runtime.files import explained, hold
from harness.runtime.stage import Stage, StageRecord
from harness.runtime.store import Store
from harness.words import counted

if TYPE_CHECKING:
    from harness.runtime.worker import WorkerSetup

Message: TypeAlias = dict[str, Any]

LAST = ("finished", "failed", "elsewhere", "died")
"""Events after which nothing more is said of a stage."""


@dataclass(frozen=True)
class Need:
    """What one stage needs while it is computed: cores, and GPUs on one node.

    One that `asks` does little but ask an endpoint, which bears only so many at once.
    """

    cpus: int = 1
    gpus: int = 0
    asks: bool = False

    @property
    def words(self) -> str:
        gpus = f" and {counted(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{counted(self.cpus, 'core')}{gpus}"


@dataclass(frozen=True)
class Needs:
    """What stages need, by kind; they change when and where a stage runs and never a number.

    `other` is what a stage of any other kind needs, `asking` the most stages at once that ask
    endpoints; None for any number.
    """

    kinds: Mapping[str, Need] = field(default_factory=dict)
    other: Need = Need()
    asking: int | None = None

    def of(self, kind: str) -> Need:
        return self.kinds.get(kind, self.other)

    def grouped(self, stages: Iterable[Stage]) -> dict[Need, list[Stage]]:
        found: dict[Need, list[Stage]] = {}
        for stage in stages:
            found.setdefault(self.of(stage.kind), []).append(stage)
        return found


class Crew(ABC):
    """Computes stages, at most `most` at once."""

    def __init__(self, needs: Needs, most: int | None = None) -> None:
        self.needs = needs
        self.most = most

    def check(self, stages: Collection[Stage]) -> None:
        """Refuse stages that can never be computed here.

        Raises:
            UserError: One needs more than there is anywhere; the message says which.
        """
        for need, (stage, *_) in self.needs.grouped(stages).items():
            if (there := self.falls_short(need)) is not None:
                raise UserError(
                    f"{stage.title} needs {need.words}, and {there}: run on a larger machine, or "
                    f"lower `hardware.stages.{stage.kind}` in the profile"
                )

    @abstractmethod
    def falls_short(self, need: Need) -> str | None:
        """Return what there is, for a message, if that never covers the need; else None."""

    @property
    @abstractmethod
    def at_work(self) -> list[Stage]:
        """The stages that are given and not ended."""

    def room(self, need: Need) -> bool:
        """Return whether a stage with such a need can be given now."""
        return self.most is None or len(self.at_work) < self.most

    @abstractmethod
    def give(self, stage: Stage) -> None:
        """Have a stage computed; there must be room."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        """Wait for messages, at most the timeout; return them with their stages."""

    @abstractmethod
    def stop(self) -> None:
        """End all that is at work; return when it has ended."""


def await_release(store: Store, stages: Iterable[Stage], limit_s: float) -> None:
    """Wait until no process works on the stages; one that was ended may take a moment."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and any(store.claimed(stage.fingerprint) for stage in stages):
        time.sleep(0.1)


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True, text=True, check=True, timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.split()


_LOG_TAIL = 4000
_GRACE_S = 2.0
_MAIN = "import sys; sys.path[0] = sys.argv[1]; from harness.runtime.worker import main; main({})"


class Worker:
    """Our end of a worker: a fresh Python interpreter that computes stages for us.

    No fork, so nothing of this process leaks into a number; a process group of its own, so that
    Ctrl-C reaches us only. The two talk in JSON over a socket; when we close it or are killed, the
    worker ends. Its log is `worker-<n>.log`; where several runs share
    the folder, no two living workers have the same number. `stage` is for a pool: what it computes.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        environment: Mapping[str, str],
        log_dir: Path,
        gpus: tuple[str, ...] = (),
    ) -> None:
        self.stage: Stage | None = None
        self.gpus = gpus
        self._claim = ExitStack()
        with explained("starting a worker", log_dir):
            number = next(
                number
                for number in count()
                if self._claim.enter_context(
                    hold(log_dir / ".locks" / f"worker-{number}", wait=False)
                )
            )
            self._log = log_dir / f"worker-{number}.log"
            self.connection, theirs = sockets.Pipe()
            with self._log.open("wb") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _MAIN.format(theirs.fileno()), str(PACKAGE.parent)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            theirs.close()
        self._send([entry or os.getcwd() for entry in sys.path])
        self._send(setup)

    def give(self, record: StageRecord) -> None:
        self._send(record)

    def said(self) -> Message:
        """Wait for its next message; if it died, return why, with the end of its log."""
        try:
            message: Message = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return self._obituary()
        return message

    def stop(self) -> None:
        """End the process and its group; return when it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_S)
        self.connection.close()
        self._claim.close()

    def _send(self, message: object) -> None:
        # A worker that has just died is noticed when its socket is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(json.dumps(message).encode())

    def _obituary(self) -> Message:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self.stop()
        code = self._process.returncode
        cause = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        hint = " (out of memory?)" if cause == "SIGKILL" else ""
        text = self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        return {"event": "died", "reason": f"worker died: {cause}{hint}", "traceback": text}


class Pool(Crew):
    """Up to `most` workers of this machine, kept until the pool is stopped.

    Where the machine has no GPU at all, stages that need some share the processor, one at a time:
    what fits a GPU may be tried so.
    """

    def __init__(
        self,
        most: int,
        setup: WorkerSetup,
        environment: Mapping[str, str],
        log_dir: Path,
        needs: Needs,
    ) -> None:
        super().__init__(needs, most)
        self._setup = setup
        self._environment = environment
        self._log_dir = log_dir
        self._workers: list[Worker] = []
        wanted = any(need.gpus for need in needs.kinds.values())
        self._gpus = visible_gpus() if wanted else []

    def falls_short(self, need: Need) -> str | None:
        if not self._gpus or need.gpus <= len(self._gpus):
            return None
        return f"this machine has {counted(len(self._gpus), 'GPU')}"

    @property
    def at_work(self) -> list[Stage]:
        return [worker.stage for worker in self._workers if worker.stage]

    def room(self, need: Need) -> bool:
        if not super().room(need):
            return False
        if need.gpus and not self._gpus:
            return not any(self.needs.of(stage.kind).gpus for stage in self.at_work)
        return need.gpus <= len(self._free_gpus)

    def give(self, stage: Stage) -> None:
        gpus = tuple(self._free_gpus[: self.needs.of(stage.kind).gpus])
        idle = None if gpus else next((w for w in self._workers if w.stage is None), None)
        worker = idle or self._started(gpus)
        worker.stage = stage
        worker.give(stage.record)

    def _started(self, gpus: tuple[str, ...]) -> Worker:
        setup, environment = self._setup, dict(self._environment)
        if gpus:
            setup = {**setup, "hardware": {**setup["hardware"], "gpus": len(gpus)}}
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        self._workers.append(Worker(setup, environment, self._log_dir, gpus))
        return self._workers[-1]

    @property
    def _free_gpus(self) -> list[str]:
        taken = {gpu for worker in self._workers for gpu in worker.gpus}
        return [gpu for gpu in self._gpus if gpu not in taken]

    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        listening = {worker.connection: worker for worker in self._workers}
        said = []
        for connection in sockets.wait(list(listening), timeout_s):
            worker = listening[connection]  # type: ignore[index]
            stage, message = worker.stage, worker.said()
            if message["event"] in LAST:
                worker.stage = None
                if worker.gpus or message["event"] == "died":
                    self._workers.remove(worker)
                    worker.stop()
            if stage is not None:
                said.append((stage, message))
        return said

    def stop(self) -> None:
        while self._workers:
            self._workers.pop().stop()
