"""The guard of processes that a library started in our name: it ends them when we are gone.

    python -m harness.solver.guard PROCESS...

vLLM in process computes in processes of its own, which go on, and hold the GPU, when the process
that started them is killed. The guard waits for its standard input to end, as a keeper does, and
ends those that are left then. It holds them by descriptors, so no other process that got the same
number later is ever meant.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from harness.project import PACKAGE
from harness.solver.keeper import GRACE_S

_START = "import sys; sys.path[0] = sys.argv.pop(1); from harness.solver import guard; "
_START += "guard.main([int(number) for number in sys.argv[1:]])"


@contextmanager
def guarded(processes: Sequence[int]) -> Iterator[None]:
    """Have some processes end, at the latest, when ours does, however it ends.

    Args:
        processes: their numbers; they run, and nobody has waited for them.
    """
    guard = subprocess.Popen(
        [sys.executable, "-c", _START, str(PACKAGE.parent), *map(str, processes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        yield
    finally:
        guard.stdin.close()
        guard.wait()


def main(processes: Sequence[int]) -> None:
    """Wait until standard input ends, then end what is left of some processes."""
    held = []
    for number in processes:
        with suppress(ProcessLookupError):
            held.append(os.pidfd_open(number))
    while os.read(0, 1024):
        pass
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in held:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
        for process in held:
            select.select([process], [], [], GRACE_S)


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]])
