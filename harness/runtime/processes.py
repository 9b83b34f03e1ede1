"""External programs, such as a training launcher or a server, under a supervisor.

They end with the `with` block, and also if this process is killed.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Self

from harness.errors import HarnessError
from harness.foreign import in_a_line
from harness.runtime import supervisor
from harness.runtime.supervisor import GRACE_S, POLL_INTERVAL_S

HOST = "127.0.0.1"
"""Servers started here listen on this machine only."""

_LONGEST_QUOTE = 300
_RAISED = re.compile(r"((?:\w+\.)*\w+(?:Error|Exception): .+)")
_HARMLESS = re.compile(r"\b(?:INFO|WARNING)\b|ConnectionResetError|BrokenPipeError")
"""Log lines that do not explain a crash: notices, and clients that hung up."""


class Program:
    """A program under a supervisor, running until `stop`; its output goes to `log`."""

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
                [sys.executable, "-P", supervisor.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell reports it, or None while it runs."""
        return self._process.poll()

    def dies(self, within_s: float) -> bool:
        """Return whether it has ended, or does so within some seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return self.exit_code is not None

    def died(self, when: str) -> HarnessError:
        code = self._process.wait()
        return HarnessError(f"{self.name} died {when} (exit code {code}); {self.quoted()}")

    def quoted(self) -> str:
        """Quote from the log the first exception or, if there is none, the last lines."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        found = (_RAISED.search(line) for line in lines if not _HARMLESS.search(line))
        raised = next((match[1] for match in found if match), "")
        words = in_a_line(raised or " | ".join(lines[-3:]) or "nothing", _LONGEST_QUOTE)
        return f"last log lines: {words} (all of them in {self.log})"

    def wait_until_healthy(
        self, port: int, limit_s: float, on_wait: Callable[[float], None]
    ) -> None:
        """Wait until a server answers `GET /health`; `on_wait` gets the seconds so far."""
        begun = time.monotonic()
        while not is_healthy(port):
            on_wait(time.monotonic() - begun)
            if self.exit_code is not None:
                raise self.died("before it was ready")
            if time.monotonic() > begun + limit_s:
                raise HarnessError(
                    f"{self.name} was not ready after {limit_s:g} s; {self.quoted()}"
                )
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> None:
        """Stop it and everything it started, and wait until they have ended."""
        self._process.terminate()
        try:
            self._process.wait(3 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def is_healthy(port: int) -> bool:
    asked = http.client.HTTPConnection(HOST, port, timeout=5.0)
    with closing(asked), suppress(OSError, http.client.HTTPException):
        asked.request("GET", "/health")
        return asked.getresponse().status == 200
    return False
