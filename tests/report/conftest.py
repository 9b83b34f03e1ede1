"""An empty store, a small published table, and toy worlds for figures."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_figures import FIGURES, TopicWorld, whole_figure
from toy_tables import stored, toy_runs, write_whole

from harness.registry.profile import Profile
from harness.report.figures.report import FigureReport
from harness.report.publish import publish
from harness.runtime import Store
from harness.worlds import freeze
from harness.worlds.freeze import SIZES

PARTS: dict[str, dict[str, str]] = {}
"""What decides the numbers of the embedded world, by the profile's part in it."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> Path:
    """Return the folder of the toy table, published from the store."""
    runs = toy_runs()
    write_whole(store, runs)
    return publish(stored(runs, store), tmp_path / "results")


@pytest.fixture(scope="module")
def toy_world() -> Iterator[None]:
    """Let figures be planned with identities that mean nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.pipeline.runs.world_of", TopicWorld)
        yield


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FigureReport]:
    """Return every figure's report from a store that has all it reads."""
    store = Store(tmp_path_factory.mktemp("whole") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.pipeline.runs.world_of", TopicWorld)
        patch.setattr(os, "fsync", lambda _: None)
        return {name: whole_figure(store, name) for name in FIGURES}


@pytest.fixture(autouse=True)
def _unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave flushing to the system: these stores need not survive a power cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(autouse=True)
def _worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite the human prompts for the freeze once, which takes two seconds."""
    work_out = freeze.embedded_parts

    def parts(profile: Profile) -> dict[str, str]:
        own = profile.model_dump_json(include=set(SIZES))
        return PARTS[own] if own in PARTS else PARTS.setdefault(own, work_out(profile))

    monkeypatch.setattr(freeze, "embedded_parts", parts)
