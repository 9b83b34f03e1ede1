"""Other processes: started, talked to, watched, and ended with all that they have started.

- *Programs* that are not ours, such as the launcher of a training or a server (`Program`), run
  under a supervisor (`harness.runtime.supervisor`): they end with our block, and also when this
  process is killed. What they print goes to a log, which is quoted when they die.
- *Children* (`Child`) are fresh Python interpreters that compute for us. No fork, so nothing of
  this process leaks into a number; a process group of their own, so that Ctrl-C reaches us only.
  The two talk in JSON, one object a message, over a socket (`Parent` is the child's end). When the
  socket ends, be it that we closed it or were killed, the child ends.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection as sockets
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.project import PACKAGE
from harness.runtime import supervisor
from harness.runtime.supervisor import GRACE_S

HOST = "127.0.0.1"
"""Servers that we start listen on this machine only."""

_LOOK_S = 0.2
_CHILD_GRACE_S = 2.0
_LONGEST_QUOTE = 300
_RAISED = re.compile(r"((?:\w+\.)*\w+(?:Error|Exception): .+)")
_HARMLESS = re.compile(r"\b(?:INFO|WARNING)\b|ConnectionResetError|BrokenPipeError")
"""What says nothing of a death: notes, and a client that hung up."""

_CHILD = "import sys; sys.path[0] = sys.argv[1]; from {} import main; main({})"


def _supervisor(*command: str) -> list[str]:
    return [sys.executable, "-P", supervisor.__file__, str(os.getpid()), *command]


class Program:
    """A program that runs under a supervisor, from its creation until `stop`.

    Its name is for people ("the engine vllm 0.30.0"). What it prints goes to the log, whose
    folder is there. It has our environment variables unless all of its own are given.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                _supervisor(*command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """Its exit code as a shell writes it; None while it runs."""
        return self._process.poll()

    def dies(self, within_s: float) -> bool:
        """Return whether it has ended, or does so within some seconds.

        A broken connection is noticed before the end of the process that broke it.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self.exit_code is not None

    def died(self, when: str) -> HarnessError:
        """Return the error that says that it has ended, with what it said last."""
        code = self._process.wait()
        return HarnessError(f"{self.name} died {when} (exit code {code}); {self.quoted()}")

    def quoted(self) -> str:
        """Return what says why: the first line that names an exception, or else the last lines.

        What follows the first exception are those that it caused in other processes.
        """
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        raised = [
            m[1] for line in lines if not _HARMLESS.search(line) and (m := _RAISED.search(line))
        ]
        words = (raised[0] if raised else " | ".join(lines[-3:]) or "nothing")[:_LONGEST_QUOTE]
        return f"its last words: {words} (all of them in {self.log})"

    def wait_until_healthy(
        self, port: int, limit_s: float, on_wait: Callable[[float], None] = lambda seconds: None
    ) -> None:
        """Wait until a server answers `GET /health`; `on_wait` gets the seconds so far.

        Raises:
            HarnessError: it died, or took longer than the limit.
        """
        begun = time.monotonic()
        while not is_healthy(port):
            on_wait(time.monotonic() - begun)
            if self.exit_code is not None:
                raise self.died("before it was ready")
            if time.monotonic() > begun + limit_s:
                raise HarnessError(
                    f"{self.name} was not ready after {limit_s:g} s; {self.quoted()}"
                )
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """End it with all that it has started; return when they have ended."""
        self._process.terminate()
        try:
            self._process.wait(3 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def running(
    name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """Run a program while the block lasts; see `Program`."""
    program = Program(name, command, log, environment)
    try:
        yield program
    finally:
        program.stop()


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def is_healthy(port: int) -> bool:
    """Return whether a server on this machine answers `GET /health`."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
    finally:
        connection.close()
    return False


class Child:
    """Our end of a Python process that computes for us.

    It calls the module's `main` with the descriptor of its end of the socket, and gets the first
    message. What it prints goes to the log; without one only its errors are shown, among ours.
    """

    def __init__(
        self, module: str, first: Any, environment: Mapping[str, str], log: Path | None = None
    ) -> None:
        self.connection, theirs = sockets.Pipe()
        with (log or Path(os.devnull)).open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CHILD.format(module, theirs.fileno()), str(PACKAGE.parent)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if log is None else subprocess.STDOUT,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        theirs.close()
        self.send([entry or os.getcwd() for entry in sys.path])
        self.send(first)

    def send(self, message: Any) -> None:
        """Send a message; None asks the child to end in its own way."""
        # A child that has just died is noticed when its socket is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(json.dumps(message).encode())

    def receive(self) -> dict[str, Any] | None:
        """Return the child's next message, None where it has died."""
        try:
            message: dict[str, Any] = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        return message

    def cause(self) -> str:
        """Return how a child ended that can no longer be heard: its exit code or signal."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_CHILD_GRACE_S)
        self.stop()
        code = self.process.returncode
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def stop(self) -> None:
        """End the process and its group; return when it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(_CHILD_GRACE_S)
        self.connection.close()


class Parent:
    """A child's end of the socket; takes over its parent's module search path.

    When there will be no more messages, another thread calls `on_end`.
    """

    def __init__(self, descriptor: int, on_end: Callable[[], None]) -> None:
        os.set_inheritable(descriptor, False)
        self._connection: sockets.Connection[Any, Any] = sockets.Connection(descriptor)
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._on_end = on_end
        self._sending = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()
        sys.path[:] = self.receive()

    def receive(self) -> Any:
        """Return the next message, once there is one."""
        return self._messages.get()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message.

        Raises:
            OSError: The parent is gone.
        """
        with self._sending:
            self._connection.send_bytes(json.dumps(message).encode())

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while (message := json.loads(self._connection.recv_bytes())) is not None:
                self._messages.put(message)
        self._on_end()
