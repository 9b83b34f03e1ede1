"""One server: started while no other starts on the same GPUs, awaited, and ended with everything.

*Alone.* Of two vLLM servers that start beside each other each counts the memory that the other is
loading. Starts are therefore held apart by a lock on each GPU, for all processes of a user on this
machine; one that does not know its GPUs holds all.

*With everything.* vLLM computes in processes that outlive its killed server. The server runs under
a supervisor in a session of its own (`harness.runtime.supervisor`) that ends all of them, with the
block, and when the harness or the server was killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UserError
from harness.runtime.processes import HOST, Program, free_port, is_healthy, running
from harness.serving.engines import Installed, Model, command, environment

OnWait = Callable[[str, float], None]
"""Called several times a second while a server is awaited: with what is waited for, and with the
seconds since it was. An error that it raises ends the wait and the server."""

_LOOK_S = 0.2


def ignore(what: str, seconds: float) -> None:
    """Show nobody what is waited for."""


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    url: str
    model: str
    """Name that it serves its model under."""
    program: Program
    port: int

    @property
    def answers(self) -> bool:
        """Whether it does; not any more from its death on, which takes a while to be complete."""
        return self.program.exit_code is None and is_healthy(self.port)


@contextmanager
def serving(
    installed: Installed,
    model: Model,
    log: Path,
    *,
    start_s: float = 1800.0,
    on_wait: OnWait = ignore,
) -> Iterator[Server]:
    """Serve a model while the block lasts; the server answers by then, and prints to the log.

    Raises:
        HarnessError: It died or was not ready in time.
    """
    port, name = free_port(), f"{model.name} on {installed.identity}"
    with ExitStack() as stack:
        with alone_on_gpus(lambda s: on_wait("another server to start", s)):
            arguments = command(installed, model, port)
            program = stack.enter_context(running(name, arguments, log, environment()))
            program.wait_until_healthy(port, start_s, lambda s: on_wait(name, s))
        yield Server(f"http://{HOST}:{port}/v1", model.name, program, port)


@contextmanager
def alone_on_gpus(on_wait: Callable[[float], None]) -> Iterator[None]:
    """Hold the GPUs of this process against all who start a server on one of them.

    Raises:
        UserError: Somebody else has made the folder for it.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    locks = {"all": fcntl.LOCK_EX} if named is None else {"all": fcntl.LOCK_SH}
    if named is not None:
        locks |= dict.fromkeys(sorted(set(re.findall(r"[\w.-]+", named))), fcntl.LOCK_EX)
    begun = time.monotonic()
    with ExitStack() as stack:
        for gpu, kind in locks.items():
            file = stack.enter_context(_lock_file(gpu).open("a"))
            while not _locked(file.fileno(), kind):
                on_wait(time.monotonic() - begun)
                time.sleep(_LOOK_S)
        yield


def _lock_file(gpu: str) -> Path:
    folder = Path(tempfile.gettempdir()) / f"harness-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UserError(
            f"{folder} is not a folder that you alone can write: somebody else made it; name "
            "another folder for temporary files in TMPDIR"
        )
    return folder / f"gpu-{gpu}.lock"


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
