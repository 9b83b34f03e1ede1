"""The guard of processes that a library starts in our name: it ends them if we are killed.

    python -m harness.inference.guard PROCESS

vLLM in process computes in processes of its own, which go on, and hold the GPU, when the process
that started them is killed. The guard looks after the descendants of a process while that lives,
and ends them when it dies before it has said a word on the guard's standard input. That the pipe
breaks would not tell: forked descendants hold its other end as well. The guard holds all of them by
descriptors, so no other process that got the same number later is ever meant.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.inference.keeper import GRACE_S
from harness.project import PACKAGE

_LOOK_S = 0.2
_START = "import sys; sys.path[0] = sys.argv.pop(1); from harness.inference import guard; "
_START += "guard.main(int(sys.argv[1]))"


@contextmanager
def guarded() -> Iterator[None]:
    """Have the processes that are started in the block end if ours is killed in it."""
    guard = subprocess.Popen(
        [sys.executable, "-c", _START, str(PACKAGE.parent), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate(b"all is well")


def main(process: int) -> None:
    """Look after the descendants of a process until it says a word or dies."""
    held: dict[int, int] = {}
    with suppress(ProcessLookupError):  # it is gone already, and nothing was started
        alive = os.pidfd_open(process)
        while not select.select([0, alive], [], [], _LOOK_S)[0]:
            for number in descendants(process) - held.keys() - {os.getpid()}:
                with suppress(ProcessLookupError):
                    held[number] = os.pidfd_open(number)
    if select.select([0], [], [], 0)[0] and os.read(0, 1):
        return
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for descriptor in held.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, sent)
        for descriptor in held.values():
            select.select([descriptor], [], [], GRACE_S)


def descendants(process: int) -> set[int]:
    """Return the processes that a process started, and those that these started."""
    found: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for number in map(int, children.read_text().split()):
                found |= {number} | descendants(number)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
