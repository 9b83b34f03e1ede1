"""The stand-in endpoint for the duration of a run: started before the workers, stopped after.

Creator, scorer and judge are one server on loopback here. Workers are told its address by the
variables that name any endpoint (`harness.worlds.real.access`), which are set while it serves and
put back afterwards; what a user has set for real endpoints is never asked in the stand-ins' name.

Kept replies are filed under the endpoint's address, so the server takes the port it had before
wherever that is free: a run that was stopped finds the replies it had.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from harness.project import work_dir
from harness.worlds.mock.server import StandIn

ROLES = ("CREATOR", "SCORER", "JUDGE")


@contextmanager
def endpoints() -> Iterator[StandIn]:
    """Serve creator, scorer and judge, and name the address to the workers started meanwhile."""
    given = {f"HARNESS_{role}_{what}": None for role in ROLES for what in ("KEY", "BUDGET_USD")}
    with _server() as server:
        named = {**given, **{f"HARNESS_{role}_URL": server.url for role in ROLES}}
        before = {name: os.environ.get(name) for name in named}
        _set(named)
        try:
            yield server
        finally:
            _set(before)


def _server() -> StandIn:
    """Return a server on the port of last time, or on a free one, which is then remembered."""
    file = work_dir() / "stand-in-port"
    with suppress(OSError, ValueError, OverflowError):
        return StandIn(port=int(file.read_text(encoding="utf-8")))
    server = StandIn()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{server.server.server_address[1]}\n", encoding="utf-8")
    return server


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
