"""The keeper of a server: a small process that ends the server when the one it serves is gone.

    python -m harness.inference.keeper COMMAND...

The keeper starts the command in a process group of its own and waits for its own standard input to
end. That happens when the process that holds the other end closes it, and also when that process
is killed in any way, since the operating system then closes it. All the group's processes are then
ended, first kindly. When the command ends by itself, what it left behind is ended too, and its exit
code becomes the keeper's.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

GRACE_S = 10.0
"""Seconds that the processes have to end by themselves."""

_LOOK_S = 0.1


def main(command: Sequence[str]) -> int:
    """Run a command until it ends or standard input does; return its exit code."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whether to stop is the other end's decision
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    try:
        while server.poll() is None:
            if select.select([sys.stdin], [], [], _LOOK_S)[0] and not os.read(0, 1024):
                break
    finally:
        _end(server)
    return _exit_code(server.returncode)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End all processes of a server's group, and return when there are none."""
    _signal(server, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while _lives(server) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    _signal(server, signal.SIGKILL)
    server.wait()


def _signal(server: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, number)


def _lives(server: subprocess.Popen[bytes]) -> bool:
    """Return whether any process of the group is left."""
    server.poll()  # a process that nobody waited for counts as one of its group
    try:
        os.killpg(server.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _exit_code(code: int) -> int:
    """Return a code as a shell writes it: 128 and the signal's number for one that was killed."""
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
