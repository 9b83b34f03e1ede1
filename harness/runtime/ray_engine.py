"""The engine on Ray Core: each stage is a task, on any cluster node that has what it needs.

A task runs a worker on its node and streams the worker's messages back. Ray's retries are off: a
stage whose node was lost is put back by the engine, which knows what is in the store. What travels
to a node is a `NodeOrder`; none of the driver's environment goes into Ray's `runtime_env`, which
Ray's tools display.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

from harness.errors import HarnessError, UserError
from harness.project import PACKAGE, work_dir
from harness.quiet import SECRETS, silence, worker_environment
from harness.runtime.crew import Crew, Need, Needs, visible_gpus
from harness.runtime.manifest import available_cores, code_digest
from harness.runtime.stage import Stage, StageRecord
from harness.runtime.store import Store
from harness.runtime.supervisor import POLL_INTERVAL_S
from harness.runtime.worker import LAST, Message, WorkerProcess, WorkerSetup, failed

_ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes Ray listen on loopback if it serves only this machine, since anyone who can reach its ports
can run code. On Linux it would otherwise use a network address."""

_REACH_S = 5.0
_END_S = 10.0


class RayCrew(Crew):
    """One run's tasks on a Ray cluster, `host:port` or `auto`; None starts Ray here."""

    def __init__(
        self, asked: NodeOrder, needs: Needs, most: int | None, store: Store, address: str | None
    ) -> None:
        super().__init__(needs, most)
        if find_spec("ray") is None:
            raise UserError(
                "the engine `ray` is not installed: type `python -m pip install -e '.[ray]'`"
            )
        store.root.mkdir(parents=True, exist_ok=True)
        each = needs.other.cpus
        self._own = _connect(address, most * each if most else max(available_cores(), each))
        import ray

        self._store = store
        self._at_work: dict[Any, Stage] = {}
        self._asked = ray.put(asked)
        self._task = ray.remote(max_retries=0, num_returns="streaming")(_compute)

    def falls_short(self, need: Need) -> str | None:
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        there = [Need(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in nodes]
        if any(need.cpus <= node.cpus and need.gpus <= node.gpus for node in there):
            return None
        largest = max(there, key=lambda node: (node.gpus, node.cpus))
        return f"the largest node of the Ray cluster has {largest.words}"

    @property
    def at_work(self) -> list[Stage]:
        return list(self._at_work.values())

    def give(self, stage: Stage) -> None:
        need = self.needs.of(stage.kind)
        task = self._task.options(name=stage.kind, num_cpus=need.cpus, num_gpus=need.gpus)
        self._at_work[task.remote(self._asked, stage.record, need.gpus)] = stage

    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        import ray

        if not self._at_work:
            time.sleep(timeout_s or POLL_INTERVAL_S)
            return []
        end = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        ready: list[Any] = []
        while not ready and (left := end - time.monotonic()) > 0:
            tasks = list(self._at_work)
            ready, _ = ray.wait(tasks, timeout=min(POLL_INTERVAL_S, left), fetch_local=False)
        if ready:  # collect all that are ready by now
            ready, _ = ray.wait(list(self._at_work), num_returns=len(self._at_work), timeout=0)
        return [self._heard(task) for task in ready]

    def _heard(self, task: Any) -> tuple[Stage, Message]:
        import ray

        stage = self._at_work[task]
        try:
            message: Message = ray.get(next(task))
        except StopIteration:
            message = _died("its task ended without a word")
        except ray.exceptions.RayTaskError as error:
            message = _died(str(error).strip().splitlines()[-1], str(error), lost=False)
        except ray.exceptions.RayError as error:
            message = _died(f"its worker on Ray was lost ({type(error).__name__})", str(error))
        if message["event"] in LAST:
            del self._at_work[task]
        return stage, message

    def stop(self) -> None:
        import ray

        tasks, self._at_work = self._at_work, {}
        with suppress(ray.exceptions.RayError):
            for task in tasks:
                ray.cancel(task, force=True)
            # A canceled task may take a moment to let go of its stage.
            end, stages = time.monotonic() + _END_S, [it.fingerprint for it in tasks.values()]
            while time.monotonic() < end and any(map(self._store.claimed, stages)):
                time.sleep(POLL_INTERVAL_S)
        if self._own:
            ray.shutdown()


def _connect(address: str | None, cpus: int) -> bool:
    """Connect to a cluster or start one here; return False if already connected."""
    silence(**({} if address else _ON_LOOPBACK))
    import ray

    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            gpus = len(visible_gpus())
            ray.init("local", num_cpus=cpus, num_gpus=gpus, include_dashboard=False, **quiet)
        else:
            name, _, port = address.rpartition("/")[2].rpartition(":")
            if port.isdigit():  # fail fast: Ray itself retries for a minute
                socket.create_connection((name, int(port)), timeout=_REACH_S).close()
            ray.init(address, **quiet)
    except Exception as error:  # noqa: BLE001 (Ray raises plain Exceptions)
        [why, *_] = str(error).strip().splitlines() or [type(error).__name__]
        if address is None:
            raise UserError(f"Ray cannot be started on this machine: {why}") from None
        raise UserError(
            f"no Ray cluster can be reached at {address} ({why}): start one with `ray start "
            "--head`, or correct `--ray-address`"
        ) from None
    return True


def _died(reason: str, text: str = "", *, lost: bool = True) -> Message:
    return {"event": "died", "reason": reason, "traceback": text, "lost": lost}


_CREDENTIALS = re.compile(r"://[^/\s]*@")


class NodeOrder(TypedDict):
    """How a node should compute stages: plain data without API keys."""

    code: str
    path: list[str]
    threads: int
    environment: dict[str, str]
    log_dir: str
    setup: WorkerSetup


def order(
    setup: WorkerSetup, threads: int, log_dir: Path, environment: Mapping[str, str]
) -> NodeOrder:
    """Return the order for nodes of this process, the driver, with the work folder's full path."""
    public = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("HARNESS_")
        and not name.endswith(SECRETS)
        and not _CREDENTIALS.search(value)
    }
    return {
        "code": code_digest(),
        "path": [entry or os.getcwd() for entry in sys.path],
        "threads": threads,
        "environment": {**public, **environment, "HARNESS_WORK": str(work_dir())},
        "log_dir": str(log_dir),
        "setup": setup,
    }


def fault(asked: NodeOrder) -> str | None:
    """Return why this node cannot compute for the driver, or None if it can."""
    node = socket.gethostname()
    if asked["code"] != code_digest():
        return (
            f"the harness on {node} ({code_digest()[:12]} in {PACKAGE}) is not the driver's "
            f"({asked['code'][:12]}): install the same version on all nodes"
        )
    for folder in (asked["setup"]["root"], asked["environment"]["HARNESS_WORK"]):
        if not os.access(folder, os.W_OK):
            return f"{node} cannot write to {folder}: it must be on a disk that all nodes share"
    return None


class Node:
    """Computes one stage at a time with a worker like the local engine's, so bytes are the same."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None
        self._order: NodeOrder | None = None

    def compute(self, asked: NodeOrder, record: StageRecord, gpus: int) -> Iterator[Message]:
        """Yield the messages about a stage; its GPUs are those visible to this process."""
        message: Message = {}
        try:
            if (why := fault(asked)) is not None:
                raise HarnessError(why)
            if self._worker is None or self._order != asked or gpus:
                self.stop()
                self._worker, self._order = _started(asked, gpus), asked
            self._worker.give(record)
            while message.get("event") not in LAST:
                message = self._worker.said()
                yield message
        except HarnessError as error:
            yield failed(str(error))
        finally:
            if gpus or message.get("event") == "died":
                self.stop()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._worker = None


def _started(asked: NodeOrder, gpus: int) -> WorkerProcess:
    # The node's own modules come first; a worker inherits this process's path.
    sys.path += [entry for entry in asked["path"] if entry not in sys.path]
    environment = worker_environment(asked["threads"]) | asked["environment"]
    if not gpus:
        # Ray leaves all GPUs visible to tasks that asked for none.
        environment["CUDA_VISIBLE_DEVICES"] = ""
    log_dir = Path(asked["log_dir"]) / socket.gethostname()
    return WorkerProcess(asked["setup"], environment, log_dir)


_NODE = Node()
"""Used on the nodes; one per Ray worker process."""


def _compute(asked: NodeOrder, record: StageRecord, gpus: int) -> Iterator[Message]:
    yield from _NODE.compute(asked, record, gpus)
