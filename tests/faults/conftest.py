"""Fixtures: `scene`, a round of a scenario."""

import hashlib
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
# The toy worlds and stand-ins of other areas.
sys.path += [str(HERE.parent / area) for area in ("cli", "report")]

from scene import Scene, Shared, rounds  # noqa: E402


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Return a function that makes something once, in a folder of its own, and keeps it."""
    made: dict[str, Any] = {}

    def share(name: str, make: Callable[[Path], Any]) -> Any:
        if name not in made:
            made[name] = make(tmp_path_factory.mktemp("shared"))
        return made[name]

    return share


@pytest.fixture(params=rounds(1))
def scene(request: pytest.FixtureRequest, tmp_path: Path, shared: Shared) -> Iterator[Scene]:
    """Return the place of a round, which is removed after it."""
    seed, number = request.param
    scenario = request.node.originalname.removeprefix("test_").replace("_", " ")
    digest = hashlib.sha256(f"{seed}/{scenario}/{number}".encode()).hexdigest()
    yield Scene(tmp_path, random.Random(int(digest[:12], 16)), shared, seed != "quick")
    shutil.rmtree(tmp_path, ignore_errors=True)
