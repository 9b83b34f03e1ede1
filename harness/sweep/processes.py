"""Several processes on one study: each a fresh interpreter with one stage worker of its own.

A process is told what to do and answers with something to say, a warning, or the error it ends
with. When it is asked to end, or its parent is killed, it stops like at Ctrl-C: it gives its trial
back.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import wait

from harness.errors import HarnessError
from harness.quiet import worker_environment
from harness.runtime import Interrupted
from harness.runtime.processes import Child, Parent
from harness.sweep.work import Order, Say, Worker


def run_processes(order: Order, count: int, say: Say, warn: Say) -> None:
    """Work on a study with several processes until it has enough trials.

    Args:
        order: What each is to do.
        count: How many processes.
        say: Takes a line about a trial.
        warn: Takes a warning, each only once.

    Raises:
        HarnessError: A process ended with an error, or died.
        Interrupted: Ctrl-C; the processes have ended.
    """
    heard = _Heard(say, warn)
    children = [
        Child(
            "harness.sweep.processes",
            {"order": order.model_dump(mode="json", by_alias=True), "slot": str(slot)},
            worker_environment(),
        )
        for slot in range(count)
    ]
    try:
        heard.listen(children)
    except KeyboardInterrupt:
        for child in children:
            child.send(None)
        heard.listen(children)
        raise Interrupted("stopped: run the same command again to go on from there") from None
    for child in children:
        heard.check(child)


class _Heard:
    """Passes on what several processes say."""

    def __init__(self, say: Say, warn: Say) -> None:
        self._say = say
        self._warn = warn
        self._warned: set[str] = set()
        self._errors: dict[Child, str] = {}
        self._ended: set[Child] = set()

    def listen(self, children: Collection[Child]) -> None:
        """Listen until all processes have ended."""
        while speaking := {c.connection: c for c in children if c not in self._ended}:
            for connection in wait(list(speaking)):
                child = speaking[connection]  # type: ignore[index]
                message = child.receive()
                if message is None:
                    child.process.wait()
                    self._ended.add(child)
                elif "error" in message:
                    self._errors[child] = message["error"]
                elif "say" in message:
                    self._say(message["say"])
                elif message["warn"] not in self._warned:
                    self._warned.add(message["warn"])
                    self._warn(message["warn"])

    def check(self, child: Child) -> None:
        """Raise what a process ended with, if it was an error."""
        cause = child.cause()
        if child in self._errors:
            raise HarnessError(self._errors[child])
        if child.process.returncode:
            raise HarnessError(
                f"a process of the sweep died ({cause}): run the same command again, its trial is "
                "then done by another"
            )


def main(descriptor: int) -> None:
    """Work as one of several processes, as the parent says."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parent = Parent(descriptor, on_end=_interrupt)

    def send(**message: str) -> None:
        with suppress(OSError):  # whoever listened is gone; that stops this process
            parent.send(message)

    request = parent.receive()
    try:
        order = Order.model_validate(request["order"])
        tracker = order.tracker(lambda text: send(warn=text))
        with order.engine(1, request["slot"]) as engine:
            worker = Worker(order, engine, order.claims(), tracker, lambda text: send(say=text))
            worker.work()
    except (KeyboardInterrupt, Interrupted):
        sys.exit(Interrupted.exit_code)
    except HarnessError as error:
        send(error=str(error))
        sys.exit(error.exit_code)


def _interrupt() -> None:
    """Interrupt the main thread, as Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
