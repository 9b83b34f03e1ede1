"""Other programs: started with a log, and ended with all they have started, on every way out.

`running` ends a program when its block is left. Should this process be killed before it can, the
program is ended by its `guard`, a process that looks whether the folder that this process holds
(`harness.runtime.files`) has been let go. Another process may hold it at once, to go on with
the work, so the guard knows the holder by its signature.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from harness.project import PACKAGE
from harness.runtime.files import abandoned, held_by

_LOOK_S = 0.5
_GRACE_S = 5.0
_LAST_LINES = 3


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program; end it with everything it started when the block is left.

    Args:
        command: program and arguments.
        log: file that receives what it prints.
        environment: variables that differ from this process's.
    """
    path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)} | dict(environment or {}),
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all its descendants, unless it has ended; return when they have."""
    if process.poll() is not None:  # its number may be another process's by now
        return
    family = [psutil.Process(process.pid)]
    family += family[0].children(recursive=True)
    for signal in ("terminate", "kill"):
        for member in family:
            with suppress(psutil.NoSuchProcess):
                getattr(member, signal)()
        _, family = psutil.wait_procs(family, timeout=_GRACE_S)
    process.wait()


def last_lines(log: Path) -> str:
    """Return the end of what a program printed, on one line."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_LINES:]) or "nothing"


def guarded(folder: Path, command: Sequence[str]) -> list[str]:
    """Return the command that runs a program for as long as this process holds a folder."""
    this = [sys.executable, "-m", "harness.training.processes"]
    return [*this, str(folder), held_by(folder), *command]


def guard(folder: Path, by: str, command: Sequence[str]) -> int:
    """Run a program until it ends or the folder is let go; return its exit code.

    Args:
        folder: the folder.
        by: the signature of who holds it.
        command: program and arguments.
    """
    process = subprocess.Popen(command)
    try:
        while process.poll() is None and not abandoned(folder, by):
            time.sleep(_LOOK_S)
    finally:
        end(process)
    return process.wait()


if __name__ == "__main__":
    sys.exit(guard(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
