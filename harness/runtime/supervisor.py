"""The supervisor: a small program that ends a command when the process that started it is gone.

    python -P supervisor.py STARTER COMMAND...

The command runs until it ends, the supervisor receives SIGTERM, or the process STARTER is gone,
however it was killed. Then everything the command has started is terminated; orphans become the
supervisor's children (on Linux), so none escape. Temporary files are removed too, since a
terminated engine leaves its sockets behind. The exit code is the command's.

It imports nothing from the harness, so that it starts fast, and it does not watch a pipe, since
forked processes would hold the other end as well.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import psutil

GRACE_S = 10.0
"""Seconds that processes have to exit before they are killed."""

POLL_INTERVAL_S = 0.2
"""Seconds between two polls of another process or server, throughout the harness."""

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def supervise(starter: int, command: Sequence[str]) -> int:
    """Run a command until it ends or its starter is gone; return its shell-style exit code."""
    follow = None
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_SUBREAPER, 1, 0, 0, 0)
        # If the supervisor itself is killed, the command gets SIGTERM.
        follow = partial(prctl, _DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="harness-", ignore_cleanup_errors=True) as scratch:
        own = {**os.environ, "TMPDIR": scratch}
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, preexec_fn=follow, env=own
            )
            while process.poll() is None and os.getppid() == starter:
                time.sleep(POLL_INTERVAL_S)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while family := psutil.Process().children(recursive=True):
                end(family)
        code = process.wait()
    return 128 - code if code < 0 else code


def end(processes: Iterable[psutil.Process]) -> None:
    """Terminate processes, then kill those left; a PID that has been reused is left alone."""
    left = list(processes)
    for action in ("terminate", "kill"):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                getattr(process, action)()
        _, left = psutil.wait_procs(left, timeout=GRACE_S)


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2:]))
