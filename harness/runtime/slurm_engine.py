"""The engine on Slurm: ready stages are submitted as array jobs, each running a host on its node.

A job is `python -m harness.runtime.host FOLDER ARRAY`. The folder is on a disk that all nodes
share; it holds the stages of each array and, for each stage, a JSON lines file of its host's
messages, which the driver follows. Whether a stage is done is up to the store, not Slurm. Slurm
requeues a job that is preempted or loses its node.

`submitit` is not used, since it pickles what it submits.

If the driver dies, its jobs continue; the same command reuses what they have stored and waits for
what they are computing. Jobs with nothing left to do end at once. Ctrl-C cancels them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from harness.errors import HarnessError, UserError
from harness.project import PACKAGE
from harness.runtime.crew import Crew, Need, Needs, await_release
from harness.runtime.files import explained
from harness.runtime.host import ORDER, SAID, TIME_UP_S, HostOrder
from harness.runtime.manifest import utc_now
from harness.runtime.plan import Plan
from harness.runtime.stage import Stage
from harness.runtime.store import Store
from harness.runtime.worker import LAST, Message

_LOOK_S = 0.3
"""Seconds between polls of the hosts' messages."""

_ASK_S = 3.0
"""Seconds between queries to Slurm."""

_COMMAND_S = 60.0
_END_S = 30.0

_LARGEST_ARRAY = 1000
"""Slurm's default `MaxArraySize` is 1001."""

_LOST = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REQUEUED")
"""Job states that are not the stage's fault."""


def batch_scripts(
    plan: Plan, store: Store, needs: Needs, most: int | None, log_dir: Path, sbatch: Sequence[str]
) -> list[str]:
    """Return batch scripts for the stages that could start now, one per need.

    Each begins with its submit command, as a comment.
    """
    pending = {stage.fingerprint: stage for stage in plan.pending(store)}
    ready = [
        stage
        for stage in pending.values()
        if not any(needed.fingerprint in pending for needed in stage.inputs.values())
    ]
    folder, found = _new_folder(log_dir), []
    for i, (need, stages) in enumerate(needs.grouped(ready).items()):
        name = f"array-{i}"
        command = ["sbatch", *options(folder, most, sbatch, need, len(stages)), f"{name}.sh"]
        # A newline in a name would end the comment and run the rest as a command.
        line = shlex.join(command).replace("\n", r"'$'\n''")
        found.append(f"# {line}\n{script(folder, name)}")
    return found


def options(
    folder: Path, most: int | None, sbatch: Sequence[str], need: Need, number: int
) -> list[str]:
    """Return the `sbatch` arguments for an array of stages; the user's come last and win.

    They are not `#SBATCH` lines, which have their own quoting rules.
    """
    return [
        "--job-name=harness",
        f"--array=0-{number - 1}{f'%{most}' if most else ''}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={need.cpus}",
        *([f"--gpus-per-node={need.gpus}"] if need.gpus else []),
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{TIME_UP_S}",
        f"--output={str(folder).replace('%', '%%')}/%A_%a.out",
        *sbatch,
    ]


def script(folder: Path, name: str) -> str:
    """Return the batch script of an array whose stages are in `name`.json; it contains no keys."""
    path = os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))
    host = shlex.join([sys.executable, "-m", "harness.runtime.host", str(folder), name])
    return f"#!/bin/bash\nexport PYTHONPATH={shlex.quote(path)}\nexec {host}\n"


def _new_folder(log_dir: Path) -> Path:
    stamp = utc_now().replace(":", "").replace("-", "")
    return log_dir / f"{stamp[:15]}-{uuid.uuid4().hex[:8]}"


class SlurmCrew(Crew):
    """The jobs of one run.

    A job is identified by its number and array index: `17_3`. `sbatch` holds extra arguments for
    that command.

    Raises:
        UserError: Slurm is not installed or not reachable.
    """

    def __init__(
        self, asked: HostOrder, needs: Needs, most: int | None, store: Store, sbatch: Sequence[str]
    ) -> None:
        super().__init__(needs, most)
        if shutil.which("sbatch") is None:
            raise UserError(
                "the engine `slurm` needs Slurm's command `sbatch`, which is not on this machine: "
                "run on a login node of the cluster"
            )
        queue = _slurm("squeue", "--noheader", "--me")
        if queue.returncode:
            raise UserError(f"Slurm cannot be reached: {_sentence(queue)}")
        self._folder = folder = _new_folder(Path(asked["log_dir"]))
        self._sbatch = sbatch
        self._store = store
        self._new: list[Stage] = []
        self._jobs: dict[str, Stage] = {}
        self._heard: dict[str, int] = {}
        self._missing: set[str] = set()
        self._arrays = count()
        self._asked_at = 0.0
        # A host computes a single stage, so it imports only what that one needs.
        asked = {**asked, "setup": {**asked["setup"], "preload": []}}
        with explained("writing what jobs of Slurm are told", folder):
            (folder / SAID).mkdir(parents=True)
            store.root.mkdir(parents=True, exist_ok=True)
            (folder / ORDER).write_text(json.dumps(asked), encoding="utf-8")

    def falls_short(self, need: Need) -> str | None:
        asked = options(self._folder, self.most, self._sbatch, need, 1)
        tried = _slurm("sbatch", "--test-only", *asked, text=script(self._folder, "test"))
        return f"Slurm refuses that ({_sentence(tried)})" if tried.returncode else None

    @property
    def at_work(self) -> list[Stage]:
        return [*self._new, *self._jobs.values()]

    def give(self, stage: Stage) -> None:
        self._new.append(stage)

    def wait(self, timeout_s: float | None = None) -> list[tuple[Stage, Message]]:
        self._submit()
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            said = [(s, m) for job, s in list(self._jobs.items()) for m in self._listen(job, s)]
            if not said and time.monotonic() - self._asked_at > _ASK_S:
                said = self._look()
            if said or (end is not None and time.monotonic() >= end):
                return said
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        stages, jobs = self._jobs.values(), {job.partition("_")[0] for job in self._jobs}
        self._new, self._jobs = [], {}
        if jobs:
            _slurm("scancel", *sorted(jobs))
            await_release(self._store, stages, _END_S)

    def _submit(self) -> None:
        new, self._new = self._new, []
        for need, stages in self.needs.grouped(new).items():
            for first in range(0, len(stages), _LARGEST_ARRAY):
                self._submit_array(need, stages[first : first + _LARGEST_ARRAY])

    def _submit_array(self, need: Need, stages: Sequence[Stage]) -> None:
        name = f"array-{next(self._arrays)}"
        file = self._folder / f"{name}.sh"
        with explained("writing a batch script", self._folder):
            listed = json.dumps([(stage.record, need.gpus) for stage in stages])
            (self._folder / f"{name}.json").write_text(listed, encoding="utf-8")
            file.write_text(script(self._folder, name), encoding="utf-8")
        asked = options(self._folder, self.most, self._sbatch, need, len(stages))
        done = _slurm("sbatch", "--parsable", *asked, str(file))
        if done.returncode:
            raise HarnessError(f"Slurm refuses {file}: {_sentence(done)}")
        number = done.stdout.strip().partition(";")[0]
        self._jobs.update({f"{number}_{i}": stage for i, stage in enumerate(stages)})
        self._asked_at = time.monotonic()

    def _listen(self, job: str, stage: Stage) -> list[Message]:
        """Return a host's new messages; its job is removed after the last one."""
        path, messages = self._folder / SAID / f"{stage.fingerprint}.jsonl", []
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(self._heard.get(stage.fingerprint, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break  # incomplete line
                self._heard[stage.fingerprint] = file.tell()
                messages.append(json.loads(line))
        if messages and messages[-1]["event"] in LAST:
            del self._jobs[job]
        return messages

    def _look(self) -> list[tuple[Stage, Message]]:
        if not self._jobs:
            return []
        numbers = ",".join(sorted({job.partition("_")[0] for job in self._jobs}))
        found = _slurm("squeue", "--noheader", "--array", "--format=%i", "--jobs", numbers)
        self._asked_at = time.monotonic()
        if found.returncode and "Invalid job id" not in found.stderr:
            return []  # for example while Slurm restarts; the jobs continue
        gone = self._jobs.keys() - set(found.stdout.split())
        ended = [(self._jobs.pop(job), _end(job)) for job in sorted(gone & self._missing)]
        self._missing = gone
        return ended


def _end(job: str) -> Message:
    shown = _slurm("scontrol", "show", "job", "--oneliner", job).stdout
    fields = dict(field.partition("=")[::2] for field in shown.split())
    state = fields.get("JobState", "unknown")
    return {
        "event": "died",
        "reason": f"its job {job} of Slurm ended: {state}",
        "traceback": shown,
        "lost": state in _LOST,
    }


def _slurm(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a Slurm command; a timeout counts as failure."""
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_COMMAND_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} does not answer")


def _sentence(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.partition(": ")[2] or line for line in done.stderr.strip().splitlines()]
    return lines[-1] if lines else f"exit code {done.returncode}"
