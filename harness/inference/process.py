"""A server process: started on a free port, watched until it is healthy, ended on every way out.

The process is started through a keeper (`keeper`), so that it also ends when ours is
killed. What it prints goes to a file, whose last line is quoted when it dies.
"""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.errors import HarnessError
from harness.inference.keeper import GRACE_S
from harness.project import PACKAGE

HOST = "127.0.0.1"

START_S = 1800.0
"""Seconds until a server must be healthy: it reads tens of gigabytes and compiles kernels."""

_LOOK_S = 0.2
_LONGEST_QUOTE = 300
_RAISED = re.compile(r"((?:\w+\.)*\w+(?:Error|Exception): .+)")
_HARMLESS = re.compile(r"\b(?:INFO|WARNING)\b")
_START = "import sys; sys.path[0] = sys.argv.pop(1); from harness.inference import keeper; "
_START += "sys.exit(keeper.main(sys.argv[1:]))"


class Server:
    """A running server.

    Attributes:
        name: what it is, for people.
        port: where it listens, on the loopback interface.
        log: what it prints.
    """

    def __init__(self, name: str, port: int, log: Path, keeper: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.port = port
        self.log = log
        self._keeper = keeper

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._keeper.poll() is None

    def dies(self, within_s: float) -> bool:
        """Return whether the process has ended, or does so within some seconds.

        A broken connection is noticed before the end of the process that broke it.
        """
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(within_s)
        return not self.alive

    def died(self, when: str) -> HarnessError:
        """Return the error that says that the process has ended, with the last line it printed."""
        code = self._keeper.wait()
        return HarnessError(
            f"the engine {self.name} died {when} (exit code {code}); its last words: "
            f"{self.last_words()} (all of them in {self.log})"
        )

    def last_words(self) -> str:
        """Return the line that says why: the first that names an exception, or else the last one.

        What follows the first exception are those that it caused in other processes.
        """
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        raised = [
            m[1] for line in lines if not _HARMLESS.search(line) and (m := _RAISED.search(line))
        ]
        return [*raised[:1], *lines[::-1], "nothing"][0][:_LONGEST_QUOTE]

    def wait_until_healthy(self, limit_s: float = START_S) -> None:
        """Wait until the server answers `GET /health`.

        Raises:
            HarnessError: it died, or took longer than the limit.
        """
        end = time.monotonic() + limit_s
        while not _healthy(self.port):
            if not self.alive:
                raise self.died("before it was ready")
            if time.monotonic() > end:
                raise HarnessError(
                    f"the engine {self.name} was not ready after {limit_s:g} s; its last words: "
                    f"{self.last_words()} (all of them in {self.log})"
                )
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """End the process and whatever it started; return when it has ended."""
        if self._keeper.stdin is not None:
            self._keeper.stdin.close()  # what the keeper waits for
        try:
            self._keeper.wait(2 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()


@contextmanager
def running(
    name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, port: int
) -> Iterator[Server]:
    """Start a server and yield it once it is healthy; it ends with the block.

    Args:
        name: what it is, for people.
        command: what starts it, to listen on `port`.
        environment: all its environment variables.
        log: file for what it prints; its folder is there.
        port: where it is to listen.

    Raises:
        HarnessError: it died or was not ready in time.
    """
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-c", _START, str(PACKAGE.parent), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    server = Server(name, port, log, keeper)
    try:
        server.wait_until_healthy()
        yield server
    finally:
        server.stop()


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5.0)
    try:
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
    finally:
        connection.close()
    return False
