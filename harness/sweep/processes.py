"""Several processes on one study: each a fresh interpreter with one stage worker of its own.

A process gets its order as one line of JSON and answers with lines of JSON, each something to
say, a warning, or the error it ends with. The end of its input, be it that the parent was stopped
or killed, stops it like Ctrl-C: it gives its trial back and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from harness.errors import HarnessError
from harness.project import PACKAGE
from harness.quiet import worker_environment
from harness.runtime import Interrupted
from harness.sweep.work import Order, Say, Worker

_START = "import sys; sys.path[0] = sys.argv[1]; from harness.sweep.processes import main; main()"


def run_processes(order: Order, count: int, say: Say, warn: Say) -> None:
    """Work on a study with several processes until it has enough trials.

    Args:
        order: What each is to do.
        count: How many processes.
        say: Takes a line about a trial; called by one thread at a time.
        warn: Takes a warning, each only once.

    Raises:
        HarnessError: A process ended with an error, or died.
        Interrupted: Ctrl-C; the processes have ended.
    """
    heard = _Heard(say, warn)
    children = [_Child(order, slot, heard) for slot in range(count)]
    try:
        for child in children:
            child.wait()
    except KeyboardInterrupt:
        for child in children:
            child.stop()
        for child in children:
            child.wait()
        raise Interrupted("stopped: run the same command again to go on from there") from None
    for child in children:
        child.check()


class _Heard:
    """Passes on what several processes say, one at a time."""

    def __init__(self, say: Say, warn: Say) -> None:
        self._say = say
        self._warn = warn
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def take(self, message: dict[str, str]) -> None:
        with self._lock:
            if "say" in message:
                self._say(message["say"])
            elif message["warn"] not in self._warned:
                self._warned.add(message["warn"])
                self._warn(message["warn"])


class _Child:
    """The parent's end of one process."""

    def __init__(self, order: Order, slot: int, heard: _Heard) -> None:
        self._heard = heard
        self._error: str | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(PACKAGE.parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worker_environment(),
            process_group=0,
        )
        path = [entry or os.getcwd() for entry in sys.path]
        request = {
            "order": order.model_dump(mode="json", by_alias=True),
            "slot": str(slot),
            "path": path,
        }
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Tell the process to give its trial back and end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self) -> None:
        """Return when the process has ended and all it said was heard."""
        self._process.wait()
        self._listener.join()

    def check(self) -> None:
        """Raise what the process ended with, if it was an error."""
        code = self._process.returncode
        if self._error is not None:
            raise HarnessError(self._error)
        if code:
            cause = f"exit code {code}" if code > 0 else signal.Signals(-code).name
            raise HarnessError(
                f"a process of the sweep died ({cause}): run the same command again, its trial is "
                "then done by another"
            )

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "error" in message:
                self._error = message["error"]
            else:
                self._heard.take(message)


def main() -> None:
    """Work as one of several processes, as the line on stdin says."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(0, "rb", buffering=0, closefd=False) as pipe:
        request = json.loads(pipe.readline())
    sys.path[:] = request["path"]
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    try:
        order = Order.model_validate(request["order"])
        tracker = order.tracker(lambda text: _send(warn=text))
        with order.engine(1, request["slot"]) as engine:
            worker = Worker(order, engine, order.claims(), tracker, lambda text: _send(say=text))
            worker.work()
    except (KeyboardInterrupt, Interrupted):
        sys.exit(Interrupted.exit_code)
    except HarnessError as error:
        _send(error=str(error))
        sys.exit(error.exit_code)


def _send(**message: Any) -> None:
    # Whoever listened may be gone; then the end of the input stops this process.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _stop_at_end_of_input() -> None:
    """Interrupt the main thread when the parent has closed the pipe, or is gone."""
    while os.read(0, 1):
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
