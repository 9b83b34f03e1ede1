"""A worker: a process that computes one stage after another until its parent goes away.

First it is told how to work (`WorkerSetup`), then it gets one stage at a time and answers with
`started`, any number of `progress`, and one `finished` or `failed`; or, where another process
computes the stage, with `elsewhere` at once. When its parent closes the socket or is killed, the
process ends at once, even in the middle of a stage. What it was writing is then a leftover that the
store sweeps.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypedDict

from harness.errors import HarnessError
from harness.extensions import load_plugins
from harness.foreign import error_in_a_line
from harness.runtime.files import DiskFullError, explained
from harness.runtime.manifest import Provenance
from harness.runtime.stage import (
    Json,
    ProgressWriter,
    StageContext,
    StageRecord,
    seed_of,
    title_of,
)
from harness.runtime.store import Store


class WorkerSetup(TypedDict):
    """What a worker is told before its first stage.

    `functions` are `module:function` by stage kind, `preload` modules to import before the first
    stage arrives; `hardware` is how the machine is to be used.
    """

    root: str
    functions: dict[str, str]
    preload: list[str]
    provenance: Provenance
    hardware: dict[str, Json]


def main(descriptor: int) -> None:
    """Work until the parent closes the socket, of which this is the worker's end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whether to stop is the parent's decision
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
    """Receive what the parent sends, and end the process with it, even in the middle of a stage."""
    with suppress(EOFError, OSError):
        while True:
            told.put(json.loads(connection.recv_bytes()))
    os._exit(0)


class StageWorker:
    """Computes stages into a store and tells the parent how they went."""

    def __init__(self, setup: WorkerSetup, send: Callable[[Mapping[str, Any]], None]) -> None:
        self._setup = setup
        self._send = send
        self._store = Store(Path(setup["root"]))
        self._broken: BaseException | None = None

    def preload(self) -> None:
        """Import what the stages will need; what goes wrong fails each stage with its reason."""
        try:
            load_plugins()
            for name in self._setup["preload"]:
                importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 (reported with the first stage)
            self._broken = error
        # Modules stay: each training collects garbage, and would look at half a million objects.
        gc.freeze()

    def compute(self, record: StageRecord) -> None:
        """Compute one stage and answer `finished`, `failed` or `elsewhere`."""
        answer: dict[str, Any] = {"event": "elsewhere"}
        try:
            with (
                explained(f"computing {title_of(record)}", self._store.root),
                self._store.claim(record["fingerprint"]) as mine,
            ):
                if mine:
                    wall_s = self._computed(record)
                    answer = {"event": "finished", "wall_s": wall_s}
        except BaseException as error:  # noqa: BLE001 (a stage may fail in any way; it is reported)
            text = traceback.format_exc()
            with suppress(OSError):  # the log may be on the disk that is full
                print(text, file=sys.stderr)
            foreseen = isinstance(error, HarnessError)
            answer = {
                "event": "failed",
                "reason": str(error) if foreseen else error_in_a_line(error),
                "traceback": text,
                "disk_full": isinstance(error, DiskFullError),
            }
        self._send(answer)

    def _computed(self, record: StageRecord) -> float:
        """Compute a stage that is claimed, unless another run just did; return its seconds."""
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
        inputs = {
            name: self._store.open(needed, whole=True) for name, needed in record["inputs"].items()
        }
        with self._store.writing(record, self._setup["provenance"]) as output:
            curves = ProgressWriter(output)
            last: int | None = None

            def report(step: int, metrics: Mapping[str, float]) -> None:
                curves.write(step, metrics)
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
                    seed=seed_of(record["fingerprint"]),
                    report=report,
                    unfinished=self._store.unfinished(record["fingerprint"]),
                    hardware=self._setup["hardware"],
                    kind=record["kind"],
                    expect=expect,
                )
            )
