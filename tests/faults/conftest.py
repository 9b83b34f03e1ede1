"""Fixtures: `play`, which plays a scenario in its quick or its long form."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
# The toy worlds and stand-ins of other areas.
sys.path += [str(HERE.parent / area) for area in ("cli", "report")]

from rounds import Ledger, Player, long_seconds  # noqa: E402

LONG = pytest.param("long", marks=[pytest.mark.faults, pytest.mark.timeout(0)])
_SHARES = pytest.StashKey[int]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the scenarios of the long form that will be played: each has the same time."""
    names = [item.name for item in session.items if "play" in getattr(item, "fixturenames", ())]
    session.config.stash[_SHARES] = sum("[long" in name for name in names)


@pytest.fixture(scope="session")
def ledger() -> Iterator[Ledger]:
    """Return the figures of the session."""
    file = os.environ.get("HARNESS_FAULTS_JSON")
    kept = Ledger(None if file is None else Path(file))
    yield kept
    kept.write()


@pytest.fixture(autouse=True)
def _fuzzed(request: pytest.FixtureRequest, ledger: Ledger) -> Iterator[None]:
    """Count the cases of a fuzzer among the figures."""
    if "fuzzer" not in request.fixturenames:
        yield
        return
    fuzzer, tally = request.getfixturevalue("fuzzer"), ledger.tally(_scenario(request))
    before, began = fuzzer.tried, time.monotonic()
    yield
    tally.add("cases fuzzed", fuzzer.tried - before)
    tally.seconds += time.monotonic() - began
    ledger.write()


def _scenario(request: pytest.FixtureRequest) -> str:
    """Return what a test's figures stand under."""
    return str(request.node.originalname).removeprefix("test_").replace("_", " ")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that makes something once, in a folder of its own, and keeps it."""
    made: dict[str, Any] = {}

    def share(name: str, make: Callable[[Path], Any]) -> Any:
        if name not in made:
            made[name] = make(tmp_path_factory.mktemp("shared"))
        return made[name]

    return share


@pytest.fixture(params=["quick", LONG])
def play(
    request: pytest.FixtureRequest, tmp_path: Path, ledger: Ledger, shared: Callable[..., Any]
) -> Player:
    """Return what plays the rounds of the test's scenario."""
    seconds = None
    if request.param == "long":
        seconds = long_seconds() / request.config.stash[_SHARES]
    return Player(_scenario(request), tmp_path, ledger, seconds, shared)
