"""Both ends of a worker: a process that computes stage after stage until its parent goes away.

It first receives its setup (`WorkerSetup`), then one stage at a time, and answers with messages, in
JSON over a socket. A message is a dict with an `event`: `started`, any number of `progress`, and
finally one of `finished`, `failed`, `elsewhere` (another process is computing the stage) or `died`,
which may be `lost` with its node. When the parent closes the socket or is killed, the process exits
at once.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from harness.errors import HarnessError
from harness.extensions import load_plugins
from harness.foreign import error_in_a_line
from harness.project import PACKAGE
from harness.runtime.files import DiskFullError, explained, hold
from harness.runtime.manifest import Provenance
from harness.runtime.stage import (
    PROGRESS,
    Json,
    Stage,
    StageContext,
    StageRecord,
    append_point,
    stage_seed,
    title_of,
)
from harness.runtime.store import Store

Message: TypeAlias = dict[str, Any]

LAST = ("finished", "failed", "elsewhere", "died")
"""Events that end a stage's messages."""


def failed(reason: str, traceback_text: str = "", *, disk_full: bool = False) -> Message:
    told = {"reason": reason, "traceback": traceback_text, "disk_full": disk_full}
    return {"event": "failed", **told}


class WorkerSetup(TypedDict):
    """What a worker receives before its first stage: `functions` by kind, as `module:function`."""

    root: str
    functions: dict[str, str]
    preload: list[str]
    provenance: Provenance
    hardware: dict[str, Json]


_LOG_TAIL = 4000
_GRACE_S = 2.0
_MAIN = "import sys; sys.path[0] = sys.argv[1]; from harness.runtime.worker import main; main({})"


class WorkerProcess:
    """The parent's end of a worker: a fresh Python interpreter that computes stages.

    It is not forked, so this process's state cannot affect a number, and has its own process group,
    so that Ctrl-C reaches only the parent.
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
            self.connection, theirs = Pipe()
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
        self.give([entry or os.getcwd() for entry in sys.path])
        self.give(setup)

    def give(self, told: StageRecord | WorkerSetup | list[str]) -> None:
        # A worker that has died is noticed when its socket is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(json.dumps(told).encode())

    def said(self) -> Message:
        """Wait for its next message; if it died, return a `died` message with its log's tail."""
        try:
            message: Message = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return self._exit_message()
        return message

    def stop(self) -> None:
        """Stop the process and its group, and wait until it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_S)
        self.connection.close()
        self._claim.close()

    def _exit_message(self) -> Message:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self.stop()
        code = self._process.returncode
        cause = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        hint = " (out of memory?)" if cause == "SIGKILL" else ""
        text = self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        return {"event": "died", "reason": f"worker died: {cause}{hint}", "traceback": text}


# In the worker's own process.


def main(descriptor: int) -> None:
    """Compute stages until the parent closes the socket; `descriptor` is the worker's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides whether to stop
    faulthandler.enable()
    os.set_inheritable(descriptor, False)
    connection: Connection[Any, Any] = Connection(descriptor)
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, told), daemon=True).start()
    sys.path[:] = told.get()
    sending = threading.Lock()  # a stage may report from several threads

    def send(message: Mapping[str, Any]) -> None:
        with sending:
            connection.send_bytes(json.dumps(message).encode())

    worker = StageWorker(told.get(), send)
    worker.preload()
    while True:
        worker.compute(told.get())


def _listen(connection: Connection[Any, Any], told: queue.SimpleQueue[Any]) -> None:
    """Receive what the parent sends; exit when it is gone, even in the middle of a stage."""
    with suppress(EOFError, OSError):
        while True:
            told.put(json.loads(connection.recv_bytes()))
    os._exit(0)


class StageWorker:
    """Computes stages into a store and reports to the parent."""

    def __init__(self, setup: WorkerSetup, send: Callable[[Mapping[str, Any]], None]) -> None:
        self._setup = setup
        self._send = send
        self._store = Store(Path(setup["root"]))
        self._broken: BaseException | None = None

    def preload(self) -> None:
        """Import what the stages will need; an error here fails every stage."""
        try:
            load_plugins()
            for name in self._setup["preload"]:
                importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 (reported with the first stage)
            self._broken = error
        # gc.freeze(): skip these in later collections.
        gc.freeze()

    def compute(self, record: StageRecord) -> None:
        """Compute one stage and send `finished`, `failed` or `elsewhere`."""
        answer: dict[str, Any] = {"event": "elsewhere"}
        try:
            with (
                explained(f"computing {title_of(record)}", self._store.root),
                self._store.claim(record["fingerprint"]) as mine,
            ):
                if mine:
                    wall_s = self._computed(record)
                    answer = {"event": "finished", "wall_s": wall_s}
        except BaseException as error:  # noqa: BLE001 (stages may fail in any way; it is reported)
            text = traceback.format_exc()
            with suppress(OSError):  # the log may be on a full disk
                print(text, file=sys.stderr)  # noqa: T201 (it is the log)
            reason = str(error) if isinstance(error, HarnessError) else error_in_a_line(error)
            answer = failed(reason, text, disk_full=isinstance(error, DiskFullError))
        self._send(answer)

    def _computed(self, record: StageRecord) -> float:
        """Compute a claimed stage, unless another run just did; return its wall seconds."""
        fingerprint = record["fingerprint"]
        if self._store.status(fingerprint) != "done":
            self._send({"event": "started"})
            self._store.clear_failure(fingerprint)
            if self._broken is not None:
                raise self._broken
            self._compute(record)
        return self._store.manifest(fingerprint)["wall_s"]

    def _compute(self, record: StageRecord) -> None:
        module, _, name = self._setup["functions"][record["kind"]].partition(":")
        function = getattr(importlib.import_module(module), name)
        inputs = {name: self._store.open(needed) for name, needed in record["inputs"].items()}
        with self._store.writing(record, self._setup["provenance"]) as output:
            last: int | None = None

            def report(step: int, metrics: Mapping[str, float]) -> None:
                append_point(output / PROGRESS, step, metrics)
                values = {name: float(value) for name, value in metrics.items()}
                self._send({"event": "progress", "step": step, "metrics": values, "last": last})

            def expect(step: int) -> None:
                nonlocal last
                last = step

            function(
                StageContext(
                    settings=record["settings"],
                    inputs=inputs,
                    output=output,
                    seed=stage_seed(record["fingerprint"]),
                    report=report,
                    unfinished=self._store.unfinished(record["fingerprint"]),
                    hardware=self._setup["hardware"],
                    expect=expect,
                )
            )
