"""A host computes a stage on a cluster node for an engine whose driver runs elsewhere.

It runs a worker like the local engine's, in the same environment, so that a stage yields the same
bytes wherever it runs, and forwards the worker's messages. What travels is a `HostOrder`: plain
data without API keys. Keys for judges and creators must be set in the node's environment.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

from harness.errors import HarnessError
from harness.project import PACKAGE, work_dir
from harness.quiet import worker_environment
from harness.runtime.manifest import code_digest
from harness.runtime.stage import StageRecord
from harness.runtime.store import Store
from harness.runtime.worker import LAST, Message, WorkerProcess, WorkerSetup, failed

SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""Suffixes of environment variables that are never sent to nodes."""

_CREDENTIALS = re.compile(r"://[^/\s]*@")


class HostOrder(TypedDict):
    """How a host should compute stages.

    `code` is the driver's `code_digest`, `path` its `sys.path`, `threads` the compute threads per
    worker, `environment` the driver's `HARNESS_*` variables, `log_dir` the workers' log folder.
    """

    code: str
    path: list[str]
    threads: int
    environment: dict[str, str]
    log_dir: str
    setup: WorkerSetup


def order(
    setup: WorkerSetup, threads: int, log_dir: Path, environment: Mapping[str, str]
) -> HostOrder:
    """Return the order for hosts of this process, the driver.

    The work folder, with the paid replies and the one spending ledger, is given by its full path,
    since a node has another working directory.
    """
    return {
        "code": code_digest(),
        "path": [entry or os.getcwd() for entry in sys.path],
        "threads": threads,
        "environment": {
            **own_variables(os.environ),
            **environment,
            "HARNESS_WORK": str(work_dir()),
        },
        "log_dir": str(log_dir),
        "setup": setup,
    }


def own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the `HARNESS_*` variables that hold no secret."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("HARNESS_")
        and not name.endswith(SECRETS)
        and not _CREDENTIALS.search(value)
    }


def fault(asked: HostOrder) -> str | None:
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


class Host:
    """Computes one stage at a time; the worker stays warm between stages without GPUs."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None
        self._order: HostOrder | None = None

    def compute(self, asked: HostOrder, record: StageRecord, gpus: int) -> Iterator[Message]:
        """Yield the messages about a stage.

        Its GPUs are those that were made visible to this process when it was started.
        """
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


def _started(asked: HostOrder, gpus: int) -> WorkerProcess:
    # The node's own modules come first; a worker inherits this process's path.
    sys.path += [entry for entry in asked["path"] if entry not in sys.path]
    setup = asked["setup"]
    environment = worker_environment(asked["threads"]) | asked["environment"]
    if gpus:
        setup = {**setup, "hardware": {**setup["hardware"], "gpus": gpus}}
    else:
        # Ray leaves all GPUs visible to tasks that asked for none.
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return WorkerProcess(setup, environment, Path(asked["log_dir"]) / socket.gethostname())


# As a Slurm job: `python -m harness.runtime.host FOLDER ARRAY`.

ORDER, SAID = "order.json", "said"
"""Within a job folder: the order file, and the folder of hosts' messages by stage."""

TIME_UP_S = 90
"""How many seconds before a job's time limit its host is signaled."""

_RESTARTS = 50


class _TimeUp(Exception):
    """The job is about to reach its time limit."""


def main(folder: Path, array: str) -> int:
    """Compute one stage of an array, append its messages to a file, and return the exit code."""
    asked: HostOrder = json.loads((folder / ORDER).read_text(encoding="utf-8"))
    stages = json.loads((folder / f"{array}.json").read_text(encoding="utf-8"))
    record, gpus = stages[int(os.environ["SLURM_ARRAY_TASK_ID"])]
    fingerprint, host = record["fingerprint"], Host()
    signal.signal(signal.SIGUSR1, _time_is_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    last: Message = {}
    with (folder / SAID / f"{fingerprint}.jsonl").open("a", encoding="utf-8", buffering=1) as said:
        try:
            for last in host.compute(asked, record, gpus):
                said.write(json.dumps(last) + "\n")
        except _TimeUp:
            host.stop()
            if not _again(Store(Path(asked["setup"]["root"])).unfinished(fingerprint)):
                last = failed(
                    "its job of Slurm had no time left: give it more by "
                    "`--sbatch --time=HOURS:00:00`"
                )
                said.write(json.dumps(last) + "\n")
        finally:
            host.stop()
    return 0 if last.get("event") in ("finished", "elsewhere") else 1


def _time_is_up(*_: object) -> None:
    raise _TimeUp


def _again(unfinished: Path) -> bool:
    """Requeue this job if its stage can resume; return whether that succeeded."""
    restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if not unfinished.is_dir() or restarts >= _RESTARTS:
        return False
    job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
