"""Fixtures: the command line in this process or in one of its own, in folders of its own."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import toy_world
from running import ran
from typer.testing import CliRunner
from world_of_names import in_folders_of_its_own

from harness.cli.main import app
from harness.project import profiles_dir, project_root
from harness.registry import declared
from harness.runtime import Event
from harness.runtime.plan import StageFailed, StageFinished, StageProgress
from harness.tracking import TableState

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class QuietTracker:
    """Takes the calls a tracker takes, and keeps their names instead of writing to MLflow."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def follow(self, tables: Any) -> None:
        self.calls.append("follow")

    def observe(self, event: Event) -> None:
        match event:
            case StageProgress():
                self.calls.append("progress")
            case StageFinished(stage):
                self.calls.append(f"finished {stage.kind}")
            case StageFailed(stage):
                self.calls.append(f"failed {stage.kind}")

    def finish(
        self, states: Callable[[], list[TableState]], known: Callable[[], list[TableState]]
    ) -> None:
        known()
        states()
        self.calls.append("finish")

    def sync(self, states: list[TableState]) -> dict[str, int]:
        self.calls += [f"sync {s.runs.table.id} {s.runs.profile.name}" for s in states]
        return {"created": len(states)}


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, world_folder: Path) -> Path:
    """Let everything be read and written in folders of the test; return the work folder."""
    return in_folders_of_its_own(monkeypatch, tmp_path, world_folder)


@pytest.fixture
def declared_anew() -> Iterator[None]:
    """Let tables, figures and profiles be read in the test, and again after it."""
    every = (declared.all_tables, declared.all_figures, declared.all_profiles)
    for cached in every:
        cached.cache_clear()
    yield
    for cached in every:
        cached.cache_clear()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Write table 6 as a table of one's own, `mine`; return its file."""
    text = (project_root() / "ablations" / "table6.yaml").read_text(encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace("id: table6", "id: mine").replace("id: t6-", "id: mine-"))
    return file


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    """Write `micro` with a tenth of the prompts as a profile of one's own; return its file."""
    text = (profiles_dir() / "micro.yaml").read_text(encoding="utf-8")
    text = text.replace("name: micro\n", "name: mini\n").replace("{value: 400,", "{value: 40,")
    file = tmp_path / "mini.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let what is published be in a folder of the test; return it."""
    monkeypatch.setattr("harness.project.results_dir", lambda: tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> QuietTracker:
    """Compute toy stages, and track them nowhere."""
    quiet = QuietTracker()
    monkeypatch.setattr("harness.pipeline.steps.FUNCTIONS", toy_world.FUNCTIONS)
    monkeypatch.setattr("harness.pipeline.factory.needed_modules", lambda stages: [])
    monkeypatch.setattr("harness.selection.stored.tracker_of", lambda *_: quiet)
    return quiet


@pytest.fixture
def call() -> Callable[..., Any]:
    """Return a function that runs the command line in this process, to an end with a code."""

    def run(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, result.stderr
        return result

    return run


@pytest.fixture
def says(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns a command's JSON, which begins with its version."""

    def run(*arguments: str, code: int = 0) -> Any:
        found = json.loads(call(*arguments, "--json", code=code).stdout)
        assert next(iter(found)) == "schema_version"
        return found.get("items", found)

    return run


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command line, with toy stages, in a process of its own."""

    def run(*arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": "toy://", **environment}
        return ran(HERE / "toy_harness.py", *arguments, code=code, env=env)

    return run
