"""Who computes: a crew, whatever it is, and the pool of worker processes of this machine.

An engine asks a crew whether it has room, gives it a stage, and waits for what it says. What is
said is a message, a dict with an `event`: `started`, any number of `progress`, and one of
`finished`, `failed`, `elsewhere` (another run computes the stage) or `died`, which ends it. A
stage that `died` may be `lost`: its node went away, and another may try.

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
from harness.runtime.files import explained
from harness.runtime.locks import hold
from harness.runtime.stage import Stage
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

    def first_of(self, stages: Iterable[Stage]) -> dict[Need, Stage]:
        found: dict[Need, Stage] = {}
        for stage in stages:
            found.setdefault(self.of(stage.kind), stage)
        return found


class Crew(ABC):
    def check(self, stages: Collection[Stage]) -> None:
        """Refuse stages that can never be computed here.

        Raises:
            UserError: One needs more than there is anywhere; the message says which.
        """
        return

    @property
    @abstractmethod
    def at_work(self) -> list[Stage]:
        """The stages that are given and not ended."""

    @abstractmethod
    def room(self, need: Need) -> bool:
        """Return whether a stage with such a need can be given now."""

    @abstractmethod
    def give(self, stage: Stage) -> None:
        """Have a stage computed; there must be room."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        """Wait until something is said, or so long; return what is said of which stage."""

    @abstractmethod
    def stop(self) -> None:
        """End all that is at work; return when it has ended."""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def refuse(stage: Stage, need: Need, where: str) -> UserError:
    return UserError(
        f"{stage.title} needs {need.words}, and {where}: run on a larger machine, or lower "
        f"`hardware.stages.{stage.kind}` in the profile"
    )


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


class _Worker:
    """Our end of a worker: a fresh Python interpreter that computes stages for us.

    No fork, so nothing of this process leaks into a number; a process group of its own, so that
    Ctrl-C reaches us only. The two talk in JSON over a socket, and when that ends, be it that we
    closed it or were killed, the worker ends. The claim keeps other runs from its log; it was
    started on the GPUs. `stage` is what it computes, None while it is idle.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        environment: Mapping[str, str],
        log: Path,
        claim: ExitStack,
        gpus: tuple[str, ...],
    ) -> None:
        self.stage: Stage | None = None
        self.gpus = gpus
        self._claim = claim
        self._log = log
        self.connection, theirs = sockets.Pipe()
        with log.open("wb") as output:
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

    def give(self, stage: Stage) -> None:
        self.stage = stage
        self._send(stage.record.as_json())

    def said(self) -> Message:
        """Return its next message; that it died and why, with the end of its log, if it did."""
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
    """Up to `limit` workers of this machine, kept until the pool is left.

    Their logs are `worker-<n>.log` in a folder; where several runs share it, no two living workers
    have the same number.

    Where the machine has no GPU at all, stages that need some share the processor, one at a time:
    what fits a GPU may be tried so.
    """

    def __init__(
        self,
        limit: int,
        setup: WorkerSetup,
        environment: Mapping[str, str],
        log_dir: Path,
        needs: Needs | None = None,
    ) -> None:
        self._limit = limit
        self._setup = setup
        self._environment = environment
        self._log_dir = log_dir
        self._needs = needs or Needs()
        self._workers: dict[int, _Worker] = {}
        wanted = any(need.gpus for need in self._needs.kinds.values())
        self._gpus = visible_gpus() if wanted else []

    def check(self, stages: Collection[Stage]) -> None:
        for need, stage in self._needs.first_of(stages).items():
            if self._gpus and need.gpus > len(self._gpus):
                raise refuse(stage, need, f"this machine has {counted(len(self._gpus), 'GPU')}")

    @property
    def at_work(self) -> list[Stage]:
        return [worker.stage for worker in self._workers.values() if worker.stage]

    def room(self, need: Need) -> bool:
        at_work = self.at_work
        if len(at_work) >= self._limit:
            return False
        if need.gpus and not self._gpus:
            return not any(self._needs.of(stage.kind).gpus for stage in at_work)
        return need.gpus <= len(self._free_gpus)

    def give(self, stage: Stage) -> None:
        need = self._needs.of(stage.kind)
        gpus = tuple(self._free_gpus[: need.gpus])
        if not gpus:
            for worker in self._workers.values():
                if worker.stage is None:
                    worker.give(stage)
                    return
        with explained("starting a worker", self._log_dir):
            slot, claim = self._free_slot()
            log = self._log_dir / f"worker-{slot}.log"
            hardware = {**self._setup["hardware"], **({"gpus": len(gpus)} if gpus else {})}
            setup: WorkerSetup = {**self._setup, "hardware": hardware}
            environment = dict(self._environment)
            if self._gpus:
                environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
            self._workers[slot] = _Worker(setup, environment, log, claim, gpus)
        self._workers[slot].give(stage)

    @property
    def _free_gpus(self) -> list[str]:
        taken = {gpu for worker in self._workers.values() for gpu in worker.gpus}
        return [gpu for gpu in self._gpus if gpu not in taken]

    def _free_slot(self) -> tuple[int, ExitStack]:
        claim, locks = ExitStack(), self._log_dir / ".locks"
        slot = next(
            number
            for number in count()
            if claim.enter_context(hold(locks / f"worker-{number}", wait=False))
        )
        return slot, claim

    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        listening = {worker.connection: slot for slot, worker in self._workers.items()}
        said = []
        for connection in sockets.wait(list(listening), timeout_s):
            slot = listening[connection]  # type: ignore[index]
            worker = self._workers[slot]
            stage, message = worker.stage, worker.said()
            if message["event"] in LAST:
                worker.stage = None
                if worker.gpus or message["event"] == "died":
                    self._workers.pop(slot).stop()
            if stage is not None:
                said.append((stage, message))
        return said

    def stop(self) -> None:
        while self._workers:
            self._workers.popitem()[1].stop()
