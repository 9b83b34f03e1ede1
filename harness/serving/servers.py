"""The servers of a profile's roles: started when first needed, shared, and taking turns on the GPU.

A role is held as long as a block lasts. Its server is started when it is first held and kept until
the GPU's memory is needed for another role that does not fit beside it, or for the run itself; the
one that was held least recently goes first. Who holds a role is never disturbed: others wait.
Roles that are served alike have one server. A server that died is started again for the next one
who holds its role.

Where a variable names the address of a role (`HARNESS_JUDGE_URL`, `HARNESS_SOLVER_URL` for the
policy) that is where it is, and nothing is started for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.errors import HarnessError, UserError
from harness.registry.serving import Role, Serving
from harness.serving.engines import Installed, Model, here
from harness.serving.server import OnWait, Server, ignore, serving

VARIABLES: dict[Role, str] = {
    "policy": "HARNESS_SOLVER_URL",
    "creator": "HARNESS_CREATOR_URL",
    "scorer": "HARNESS_SCORER_URL",
    "judge": "HARNESS_JUDGE_URL",
}
"""What names the address of a role, for the harness and for the processes that it starts."""

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


@dataclass(frozen=True)
class _Wanted:
    """A server that is to run; equal ones are one."""

    installed: Installed
    model: Model
    start_s: int


@dataclass
class _Loaded:
    """A server that runs, how many hold it, and what ends it."""

    wanted: _Wanted
    server: Server
    end: ExitStack
    users: int = 0

    @property
    def dead(self) -> bool:
        """Whether it has to be started again; a held one may be too busy to answer."""
        return self.server.program.exit_code is not None or not (self.users or self.server.answers)


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
        on_wait: OnWait = ignore,
    ) -> None:
        self._declared = declared.roles
        self._logs = logs
        self._find = find
        self._on_wait = on_wait
        self._turn = threading.Condition()
        self._loaded: list[_Loaded] = []  # the one that was held least recently first
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
    def hold(self, *roles: Role, policy: Policy | None = None) -> Iterator[dict[Role, At]]:
        """Have some roles served while the block lasts.

        Raises:
            UserError: A role is served nowhere, its engine is not installed, or the roles do not
                fit beside each other.
            HarnessError: A server did not start, or died in the block, which therefore failed.
        """
        at: dict[Role, At] = {}
        wanted: dict[Role, _Wanted] = {}
        for role in roles:
            if url := os.environ.get(VARIABLES[role]):
                at[role] = At(url, self._weights(role, policy)[0])
            else:
                wanted[role] = self._wanted(role, policy)
        held = self._take(wanted)
        at |= {role: At(each.server.url, each.server.model) for role, each in held.items()}
        try:
            yield at
        except Exception as error:
            for each in held.values():
                if not each.server.answers and each.server.program.dies(_TO_DIE_S):
                    raise each.server.program.died("in the middle") from error
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

    def _wanted(self, role: Role, policy: Policy | None) -> _Wanted:
        """Return the server that a role needs."""
        if role not in self._declared:
            raise UserError(
                f"the profile serves no {role}: declare it under `serving`, or name the address of "
                f"one that runs in {VARIABLES[role]}"
            )
        served = self._declared[role]
        name, folder = self._weights(role, policy)
        model = Model.declared(served, folder, name)
        return _Wanted(here(served.engine), model, served.start_s)

    def _weights(self, role: Role, policy: Policy | None) -> Policy:
        """Return the name of a role's model and its folder."""
        if policy is not None and role == "policy":
            return policy
        served = self._declared.get(role)
        if served is None or served.model is None:
            raise HarnessError(f"nothing says which model the {role} is")
        return Policy(served.model.partition("@")[0], self._find(served.model))

    def _take(self, wanted: dict[Role, _Wanted]) -> dict[Role, _Loaded]:
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

    def _others(self, wanted: dict[Role, _Wanted]) -> float:
        """Return the share of the memory that is in use for other servers."""
        others = [each.wanted for each in self._loaded if each.users]
        return _share(each for each in others if each not in wanted.values())

    def _running(self, wanted: _Wanted, beside: dict[Role, _Wanted]) -> _Loaded:
        """Return a server, started if need be, with room made for it and those beside it."""
        self._unload([each for each in self._loaded if each.dead])
        found = next((each for each in self._loaded if each.wanted == wanted), None)
        if found is None:
            for idle in [each for each in self._loaded if not each.users]:
                loaded = [each.wanted for each in self._loaded]
                if _share([*loaded, *beside.values()]) <= 1 + _ROUNDING:
                    break
                if idle.wanted not in beside.values():
                    self._unload([idle])
            found = self._start(wanted)
        else:
            self._loaded.remove(found)
        self._loaded.append(found)
        return found

    def _start(self, wanted: _Wanted) -> _Loaded:
        self._started += 1
        log = self._logs / f"{self._started:03}-{wanted.model.name.replace('/', '--')}.log"
        end = ExitStack()
        block = serving(
            wanted.installed, wanted.model, log, start_s=wanted.start_s, on_wait=self._tell
        )
        return _Loaded(wanted, end.enter_context(block), end)

    def _unload(self, some: list[_Loaded]) -> None:
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


def _once(some: Iterable[_Loaded]) -> list[_Loaded]:
    """Return servers without repetition: roles that are served alike have the same one."""
    return list({id(each): each for each in some}.values())


def _share(some: Iterable[_Wanted]) -> float:
    """Return the share of the GPU's memory that servers take; equal ones are one."""
    different: list[_Wanted] = []
    for each in some:
        if each not in different:
            different.append(each)
    return sum(each.model.gpu_memory or 1.0 for each in different)
