"""Fixtures shared by all tests."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from world_of_names import write_world

from harness.extensions import REGISTRIES
from harness.registry.declared import load_tables
from harness.registry.figures import Figure, load_figures
from harness.registry.profile import Profile, load_profiles
from harness.registry.schema import Table

ROOT = Path(__file__).resolve().parents[1]

# A loaded machine is no failure, and a test that fails must fail again. Every night more cases are
# tried (`--hypothesis-profile=long`).
settings.register_profile("harness", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("long", settings.get_profile("harness"), max_examples=300)
settings.load_profile("harness")

# pytest-xdist gives its workers a width; without a terminal there is none.
os.environ.pop("COLUMNS", None)

# As the harness's own workers have it: threads of two processes on two cores wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what it puts into the background without Ctrl-C, and every child inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the modules of the longest limits, lest one of two workers be left with them."""

    def limit(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return marker.args[0] if marker else 0.0

    if hasattr(config, "workerinput"):
        items.sort(key=limit, reverse=True)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Return the folder of published reference data, or skip the test where it is absent."""
    folder = ROOT.parent / "shared"
    if not (folder / "benchmarks").is_dir():
        pytest.skip(f"the published reference data is not at {folder}")
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium: the machine's, or the one that playwright has fetched."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        own = shutil.which("chromium") or shutil.which("chromium-browser")
        path = own or started.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("there is no Chromium: install it, or run `playwright install chromium`")
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def tables() -> dict[str, Table]:
    return load_tables()


@pytest.fixture(scope="session")
def figures(tables: dict[str, Table]) -> dict[str, Figure]:
    return load_figures(tables)


@pytest.fixture(scope="session")
def micro() -> Profile:
    return load_profiles()["micro"]


@pytest.fixture(scope="session")
def paper() -> Profile:
    return load_profiles()["paper"]


@pytest.fixture(scope="session")
def laptop() -> Profile:
    return load_profiles()["laptop"]


@pytest.fixture(scope="session")
def policy_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random policy."""
    from tiny_gemma import build_tiny_gemma

    return build_tiny_gemma(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def world_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a world whose files hold nothing but their names."""
    return write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def list_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pay what is listed, for a judge of AlpacaEval too, who is not asked without its package."""
    for role in ("CREATOR", "SCORER", "JUDGE"):
        monkeypatch.delenv(f"HARNESS_{role}_PRICE", raising=False)
    real, ours = metadata.version, {"alpaca-eval": "0.6.6"}
    monkeypatch.setattr(metadata, "version", lambda name: ours.get(name) or real(name))


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget, after a test, what it added to the registries."""
    with ExitStack() as stack:
        for registry in REGISTRIES:
            stack.enter_context(patch.dict(registry))
        yield


@pytest.fixture(scope="module")
def shipped_world() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HARNESS_WORLD", raising=False)
        yield


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts Python with the project on its path, until the test ends."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(
                command, text=True, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
