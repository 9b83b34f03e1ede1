"""The servers of a profile's roles: started on first use, shared, and taking turns on the GPU.

A server runs until its GPU memory is needed for a role that does not fit next to it; the one that
was used least recently is stopped first. Roles with identical engine and checkpoint share a server.
vLLM's compute processes outlive a killed server, so each server runs under a supervisor in its own
session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.errors import UserError
from harness.registry.serving import ServedRole, Serving
from harness.runtime.processes import HOST, Program, free_port, is_healthy
from harness.serving.engines import Installed, ServedCheckpoint, command, environment, here

OnWait = Callable[[str, float], None]
"""Called several times a second while waiting, with what is awaited and the seconds so far.
An error that it raises ends the wait and the server."""


START_S = 1800.0
"""Seconds that a server has to load its weights."""

_TO_DIE_S = 30.0
"""Seconds to wait for the exit of a server that stopped responding."""

_ROUNDING = 1e-6


class ServedPolicy(NamedTuple):
    """A stage's policy: its name in requests, and its checkpoint."""

    name: str
    folder: Path


_Wanted = tuple[Installed, ServedCheckpoint]
"""A server specification: engine and checkpoint; equal ones share a server."""


@dataclass
class EngineServer:
    wanted: _Wanted
    program: Program
    port: int
    end: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    @property
    def answers(self) -> bool:
        """Whether it responds; a dying server stops responding before it exits."""
        return self.program.exit_code is None and is_healthy(self.port)


class Servers:
    """The servers of a profile's roles, stopped with the block; used by one block at a time."""

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
        self._loaded: list[EngineServer] = []  # least recently used first
        self._started = 0

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all servers, so that the GPU is free."""
        self._unload(self._loaded)

    @contextmanager
    def hold(
        self, *roles: ServedRole, policy: ServedPolicy | None = None
    ) -> Iterator[dict[ServedRole, str]]:
        """Serve the given roles within the block; yield their addresses."""
        held = self._start({role: self._wanted(role, policy) for role in roles})
        try:
            yield {role: each.url for role, each in held.items()}
        except Exception as error:
            for each in held.values():
                if not each.answers and each.program.dies(_TO_DIE_S):
                    raise each.program.died("in the middle") from error
            raise

    def _wanted(self, role: ServedRole, policy: ServedPolicy | None) -> _Wanted:
        served = self._declared[role]
        if policy is None or role != "policy":
            policy = ServedPolicy(str(served.name), self._find(str(served.model)))
        own = served.model_dump(exclude={"engine", "model"})
        return here(served.engine), ServedCheckpoint(policy.folder, policy.name, **own)

    def _start(self, wanted: dict[ServedRole, _Wanted]) -> dict[ServedRole, EngineServer]:
        """Start the servers that are not running, if they fit."""
        share = _share(wanted.values())
        if share > 1 + _ROUNDING:
            raise UserError(
                f"{' and '.join(wanted)} are needed at once and take {share:.2f} of the GPU's "
                "memory: lower `gpu_memory` in the profile's `serving`"
            )
        return {role: self._running(each, wanted) for role, each in wanted.items()}

    def _running(self, wanted: _Wanted, beside: dict[ServedRole, _Wanted]) -> EngineServer:
        """Return a running server; if it must be started, first evict idle ones as needed."""
        self._unload([each for each in self._loaded if not each.answers])
        found = next((each for each in self._loaded if each.wanted == wanted), None)
        if found is not None:
            self._loaded.remove(found)
        else:
            for idle in list(self._loaded):
                loaded = [each.wanted for each in self._loaded]
                if _share([*loaded, *beside.values()]) <= 1 + _ROUNDING:
                    break
                if idle.wanted not in beside.values():
                    self._unload([idle])
            self._started += 1
            log = self._logs / f"{self._started:03}-{wanted[1].name.replace('/', '--')}.log"
            end = ExitStack()
            found = end.enter_context(serving(*wanted, log, self._on_wait))
            found.end = end
        self._loaded.append(found)
        return found

    def _unload(self, some: list[EngineServer]) -> None:
        """Stop servers, all of them even if stopping one fails."""
        with ExitStack() as ends:
            for each in list(some):
                ends.push(each.end)
                self._loaded.remove(each)


def _share(some: Iterable[_Wanted]) -> float:
    """Return the fraction of GPU memory that servers take, counting equal ones once."""
    different: list[_Wanted] = []
    for each in some:
        if each not in different:
            different.append(each)
    return sum(checkpoint.gpu_memory or 1.0 for _, checkpoint in different)


@contextmanager
def serving(
    installed: Installed,
    checkpoint: ServedCheckpoint,
    log: Path,
    on_wait: OnWait = lambda what, seconds: None,
) -> Iterator[EngineServer]:
    """Serve a checkpoint within the block, which begins once it is healthy."""
    port, name = free_port(), f"{checkpoint.name} on {installed.identity}"
    with Program(name, command(installed, checkpoint, port), log, environment()) as program:
        program.wait_until_healthy(port, START_S, lambda s: on_wait(name, s))
        yield EngineServer((installed, checkpoint), program, port)
