"""The servers of a profile's roles: started on first use, shared, and taking turns on the GPU.

A role is held for the duration of a block. Its server is started when it is first held and kept
until its GPU memory is needed for a role that does not fit beside it, or for the run itself; the
least recently held goes first. A held role is never evicted: others wait. Roles that are served
alike share one server. A server that died is restarted for the next holder of its role.

Where a variable names the address of a role (`HARNESS_JUDGE_URL`, `HARNESS_SOLVER_URL` for the
policy), that address is used, and nothing is started.

Two vLLM servers that start at the same time each count the memory that the other is loading, so
starts are serialized by a lock on each GPU, for all processes of a user on this machine; a process
that does not know its GPUs locks all of them. vLLM computes in processes that outlive a killed
server, so each server runs under a supervisor in its own session (`harness.runtime.supervisor`)
that ends them all with the block, or when the harness or the server is killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.errors import HarnessError, UserError
from harness.registry.serving import ServedRole, Serving, variable
from harness.runtime.processes import HOST, Program, free_port, is_healthy
from harness.serving.engines import Checkpoint, Installed, command, environment, here

OnWait = Callable[[str, float], None]
"""Called several times a second while a server is awaited: with what is waited for, and with the
seconds since it was. An error that it raises ends the wait and the server."""

_LOOK_S = 0.2
_TO_DIE_S = 30.0
"""Seconds that what a killed server has started may take to end."""

_ROUNDING = 1e-6


class At(NamedTuple):
    """Where a role is served, and the name that requests call its model."""

    url: str
    model: str


class Policy(NamedTuple):
    """The policy that a stage asks: its name in requests, and its checkpoint."""

    name: str
    folder: Path


_Wanted = tuple[Installed, Checkpoint]
"""A server that is to run: its engine, and what it serves; equal ones are one."""


@dataclass
class EngineServer:
    """A server that answers.

    `users` is how many hold it; `end` ends it, where it does not end with a block.
    """

    wanted: _Wanted
    program: Program
    port: int
    users: int = 0
    end: ExitStack = field(default_factory=ExitStack)

    @property
    def at(self) -> At:
        return At(f"http://{HOST}:{self.port}/v1", self.wanted[1].name)

    @property
    def answers(self) -> bool:
        """Whether it does; not any more from its death on, which takes a while to be complete."""
        return self.program.exit_code is None and is_healthy(self.port)

    @property
    def dead(self) -> bool:
        """Whether it has to be started again; a held one may be too busy to answer."""
        return self.program.exit_code is not None or not (self.users or self.answers)


class Servers:
    """The servers of a profile's roles; a context manager, whose end is theirs.

    Threads may share it. `find` returns the folder of a model by its name at a commit; logs are
    kept in a folder that is there. `on_wait` is told what is waited for and for how many seconds.
    """

    def __init__(
        self,
        declared: Serving,
        logs: Path,
        find: Callable[[str], Path],
        on_wait: OnWait = lambda what, seconds: None,
    ) -> None:
        self._declared = declared.roles
        self._logs = logs
        self._find = find
        self._on_wait = on_wait
        self._turn = threading.Condition()
        self._loaded: list[EngineServer] = []  # the one that was held least recently first
        self._alone = False
        self._closing = False
        self._started = 0

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True  # who waits or starts a server now gives up, and lets go of the lock
        with self._turn:
            self._unload(self._loaded)

    @contextmanager
    def hold(
        self, *roles: ServedRole, policy: Policy | None = None
    ) -> Iterator[dict[ServedRole, At]]:
        """Have some roles served while the block lasts.

        Raises:
            UserError: A role is served nowhere, its engine is not installed, or the roles do not
                fit beside each other.
            HarnessError: A server did not start, or died in the block, which therefore failed.
        """
        at: dict[ServedRole, At] = {}
        wanted: dict[ServedRole, _Wanted] = {}
        for role in roles:
            if url := os.environ.get(variable(role, "URL")):
                at[role] = At(url, self._weights(role, policy)[0])
            else:
                wanted[role] = self._wanted(role, policy)
        held = self._take(wanted)
        at |= {role: each.at for role, each in held.items()}
        try:
            yield at
        except Exception as error:
            for each in held.values():
                if not each.answers and each.program.dies(_TO_DIE_S):
                    raise each.program.died("in the middle") from error
            raise
        finally:
            with self._turn:
                for each in _once(held.values()):
                    each.users -= 1
                self._turn.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the GPU to oneself while the block lasts: nothing is served."""
        with self._turn:
            self._wait(lambda: not self._alone and not any(each.users for each in self._loaded))
            self._unload(self._loaded)
            self._alone = True
        try:
            yield
        finally:
            with self._turn:
                self._alone = False
                self._turn.notify_all()

    def _wanted(self, role: ServedRole, policy: Policy | None) -> _Wanted:
        if role not in self._declared:
            raise UserError(
                f"the profile serves no {role}: declare it under `serving`, or name the address of "
                f"one that runs in {variable(role, 'URL')}"
            )
        served = self._declared[role]
        name, folder = self._weights(role, policy)
        return here(served.engine), Checkpoint.declared(served, folder, name)

    def _weights(self, role: ServedRole, policy: Policy | None) -> Policy:
        if policy is not None and role == "policy":
            return policy
        served = self._declared.get(role)
        if served is None or served.model is None:
            raise HarnessError(f"nothing says which model the {role} is")
        return Policy(served.model.partition("@")[0], self._find(served.model))

    def _take(self, wanted: dict[ServedRole, _Wanted]) -> dict[ServedRole, EngineServer]:
        """Wait until some servers can run together, start those that do not, and hold them."""
        if not wanted:
            return {}
        share = _share(wanted.values())
        if share > 1 + _ROUNDING:
            raise UserError(
                f"{' and '.join(wanted)} are needed at once and take {share:.2f} of the GPU's "
                "memory: lower `gpu_memory` in the profile's `serving`"
            )
        with self._turn:
            self._wait(lambda: not self._alone and share + self._others(wanted) <= 1 + _ROUNDING)
            held = {role: self._running(each, wanted) for role, each in wanted.items()}
            for each in _once(held.values()):
                each.users += 1
            return held

    def _others(self, wanted: dict[ServedRole, _Wanted]) -> float:
        others = [each.wanted for each in self._loaded if each.users]
        return _share(each for each in others if each not in wanted.values())

    def _running(self, wanted: _Wanted, beside: dict[ServedRole, _Wanted]) -> EngineServer:
        """Return a server, started if need be, with room made for it and those beside it."""
        self._unload([each for each in self._loaded if each.dead])
        found = next((each for each in self._loaded if each.wanted == wanted), None)
        if found is not None:
            self._loaded.remove(found)
        else:
            for idle in [each for each in self._loaded if not each.users]:
                loaded = [each.wanted for each in self._loaded]
                if _share([*loaded, *beside.values()]) <= 1 + _ROUNDING:
                    break
                if idle.wanted not in beside.values():
                    self._unload([idle])
            self._started += 1
            log = self._logs / f"{self._started:03}-{wanted[1].name.replace('/', '--')}.log"
            end = ExitStack()
            found = end.enter_context(serving(*wanted, log, self._tell))
            found.end = end
        self._loaded.append(found)
        return found

    def _unload(self, some: list[EngineServer]) -> None:
        """End servers, all of them even if the end of one fails."""
        with ExitStack() as ends:
            for each in list(some):
                ends.push(each.end)
                self._loaded.remove(each)

    def _wait(self, ready: Callable[[], bool]) -> None:
        begun = time.monotonic()
        while not self._turn.wait_for(ready, _LOOK_S):
            self._tell("the GPU", time.monotonic() - begun)

    def _tell(self, what: str, seconds: float) -> None:
        if self._closing:
            raise HarnessError("the servers are being stopped")
        self._on_wait(what, seconds)


def _once(some: Iterable[EngineServer]) -> list[EngineServer]:
    """Return servers without repetition: roles that are served alike have the same one."""
    return list({id(each): each for each in some}.values())


def _share(some: Iterable[_Wanted]) -> float:
    """Return the share of the GPU's memory that servers take; equal ones are one."""
    different: list[_Wanted] = []
    for each in some:
        if each not in different:
            different.append(each)
    return sum(checkpoint.gpu_memory or 1.0 for _, checkpoint in different)


@contextmanager
def serving(
    installed: Installed,
    checkpoint: Checkpoint,
    log: Path,
    on_wait: OnWait = lambda what, seconds: None,
) -> Iterator[EngineServer]:
    """Serve a checkpoint while the block lasts; the server answers by then, and prints to the log.

    Raises:
        HarnessError: It died or was not ready in time.
    """
    port, name = free_port(), f"{checkpoint.name} on {installed.identity}"
    with ExitStack() as stack:
        with alone_on_gpus(lambda s: on_wait("another server to start", s)):
            arguments = command(installed, checkpoint, port)
            program = stack.enter_context(Program(name, arguments, log, environment()))
            program.wait_until_healthy(port, checkpoint.start_s, lambda s: on_wait(name, s))
        yield EngineServer((installed, checkpoint), program, port)


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
