"""The supervisor: a small program that ends other processes when the one it serves is gone.

    python -P supervisor.py STARTER COMMAND...

STARTER is the number of the process that starts it. It runs the command until that ends, until
the supervisor is told to stop (SIGTERM), or until the starter is gone, be it killed in any way.
Then all that the command has started is ended, first kindly; what lost its parent in between has
become the supervisor's own child (on Linux), so nothing gets away. Temporary files go with it: an
engine that is ended leaves its sockets behind. The exit code is the command's.

It imports nothing of the harness, so that it starts at once, and it does not listen on a pipe:
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
"""Seconds that processes have to end by themselves."""

_LOOK_S = 0.1
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def supervise(starter: int, command: Sequence[str]) -> int:
    """Run a command until it ends or its starter is gone; return its exit code, as a shell does."""
    follow = None
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_SUBREAPER, 1, 0, 0, 0)
        # Where the supervisor itself is killed, the command is told to end.
        follow = partial(prctl, _DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="harness-", ignore_cleanup_errors=True) as scratch:
        own = {**os.environ, "TMPDIR": scratch}
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, preexec_fn=follow, env=own
            )
            while process.poll() is None and os.getppid() == starter:
                time.sleep(_LOOK_S)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while family := psutil.Process().children(recursive=True):
                end(family)
        code = process.wait()
    return 128 - code if code < 0 else code


def end(processes: Iterable[psutil.Process]) -> None:
    """End processes, first kindly; a number that is another process's by now is left alone."""
    left = list(processes)
    for action in ("terminate", "kill"):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                getattr(process, action)()
        _, left = psutil.wait_procs(left, timeout=GRACE_S)


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2:]))
