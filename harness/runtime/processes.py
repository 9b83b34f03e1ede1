"""Programs that are not ours, such as the launcher of a training or a server.

They run under a supervisor (`harness.runtime.supervisor`): they end with our block, and also when
this process is killed. Their output goes to a log, which is quoted when they die.
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
from harness.runtime import supervisor
from harness.runtime.supervisor import GRACE_S

HOST = "127.0.0.1"
"""Servers that we start listen on this machine only."""

_LOOK_S = 0.2
_LONGEST_QUOTE = 300
_RAISED = re.compile(r"((?:\w+\.)*\w+(?:Error|Exception): .+)")
_HARMLESS = re.compile(r"\b(?:INFO|WARNING)\b|ConnectionResetError|BrokenPipeError")
"""What says nothing of a death: notes, and a client that hung up."""


class Program:
    """A program that runs under a supervisor, from its creation until `stop`, or as a block.

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
        code = self._process.wait()
        return HarnessError(f"{self.name} died {when} (exit code {code}); {self.quoted()}")

    def quoted(self) -> str:
        """Return what says why: the first line that names an exception, or else the last lines.

        What follows the first exception are those that it caused in other processes.
        """
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        found = (_RAISED.search(line) for line in lines if not _HARMLESS.search(line))
        raised = next((match[1] for match in found if match), "")
        words = (raised or " | ".join(lines[-3:]) or "nothing")[:_LONGEST_QUOTE]
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
