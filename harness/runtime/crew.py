"""Crews compute stages: their interface, what stages need, and the crew of this machine."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from multiprocessing import connection as sockets
from pathlib import Path

from harness.errors import UserError
from harness.runtime.stage import Stage
from harness.runtime.worker import LAST, Message, WorkerProcess, WorkerSetup
from harness.words import counted


@dataclass(frozen=True)
class Need:
    """The cores and GPUs of one node that a stage needs, and whether it asks an endpoint."""

    cpus: int = 1
    gpus: int = 0
    uses_endpoint: bool = False

    @property
    def words(self) -> str:
        gpus = f" and {counted(self.gpus, 'GPU')}" if self.gpus else ""
        return f"{counted(self.cpus, 'core')}{gpus}"


@dataclass(frozen=True)
class Needs:
    """What stages need, by kind; one at a time queries endpoints, with many requests at once."""

    kinds: Mapping[str, Need] = field(default_factory=dict)
    other: Need = Need()

    def of(self, kind: str) -> Need:
        return self.kinds.get(kind, self.other)


class Crew(ABC):
    """Computes up to `most` stages at once."""

    def __init__(self, needs: Needs, most: int | None = None) -> None:
        self.needs = needs
        self.most = most

    def check(self, stages: Collection[Stage]) -> None:
        """Raise a UserError if a stage needs more than is available anywhere."""
        for stage in {self.needs.of(stage.kind): stage for stage in stages}.values():
            need = self.needs.of(stage.kind)
            if (there := self.falls_short(need)) is not None:
                raise UserError(
                    f"{stage.title} needs {need.words}, and {there}: run on a larger machine, or "
                    "lower `hardware.devices` in the profile"
                )

    @abstractmethod
    def falls_short(self, need: Need) -> str | None:
        """Return what is available, in words, if it can never meet the need, else None."""

    @property
    @abstractmethod
    def at_work(self) -> list[Stage]:
        """Stages that have been given and have not ended."""

    def room(self, need: Need) -> bool:
        """Return whether a stage with this need can be given now."""
        return self.most is None or len(self.at_work) < self.most

    @abstractmethod
    def give(self, stage: Stage) -> None:
        """Start computing a stage; there must be room."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        """Wait up to the timeout for messages; return them with their stages."""

    @abstractmethod
    def stop(self) -> None:
        """Stop everything at work and wait until it has ended."""


def visible_gpus() -> list[str]:
    """Return the GPUs this process may use, named as in `CUDA_VISIBLE_DEVICES`."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()


class LocalCrew(Crew):
    """Up to `most` worker processes on this machine, which stay warm between stages.

    A stage that needs GPUs gets exclusive ones and its own worker, which exits with the stage,
    since only then is all of its GPU memory freed.
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
        self._workers: list[WorkerProcess] = []
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

    def _started(self, gpus: tuple[str, ...]) -> WorkerProcess:
        environment = dict(self._environment)
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        self._workers.append(WorkerProcess(self._setup, environment, self._log_dir, gpus))
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
